"""Digests that a log states, each compared with formulas of the seed, epoch and tokens beside it. Knows no bound."""

import itertools
from collections.abc import Iterator
from typing import Literal

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, replace, sha256
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StatedDigest
from weighbridge.run_logs.log_table import MAX_DIGESTS, NUMBER, Cells
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, table
from weighbridge.views.run import RunView

QUANTITY = "digest_formulas"
PREFIXES = ("", "aprender-train:pretrain:optstate:v1:")
ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
SEEDS = (*range(100), 123, 1234, 1337, 2024, 2025)  # besides the seed that the run states
COUNTERS, TOKENS = ("epoch", "step"), ("tokens_seen", "tokens")


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Return for every digest of `column` the formula that gives it."""
    view, name = views[0], str(options.get("column"))
    if not 0 < extent(views, options) <= MAX_DIGESTS:
        why = f"the run states no digest {name!r}, or more than {MAX_DIGESTS}"
        return Unmeasured(code="no-column", why=why, remedy=f"log a SHA-256 an epoch as {name!r}")
    rows = []
    for row, digest in view.stated[name].items():
        formulas = list(_formulas(view, row))
        found = next((words for words, data in formulas if sha256(data) == digest), "")
        rows.append(StatedDigest(place=f"{name}, row {row}", digest=digest, tried=len(formulas), formula=found))
    return table(QUANTITY, rows)


def _formulas(view: RunView, row: int) -> Iterator[tuple[str, bytes]]:
    """Yield in words and bytes each choice of seed, counter and tokens, any of which may be left out, but not all."""
    stated = view.facts.get("seed")
    own = (stated,) if type(stated) is int and 0 <= stated < 1 << 64 else ()
    seeds = [("seed", seed) for seed in dict.fromkeys((*own, *SEEDS))]
    counters, tokens = _beside(view, row, COUNTERS), _beside(view, row, TOKENS)
    for prefix, order, *chosen in itertools.product(PREFIXES, ORDERS, [(), *seeds], [(), *counters], [(), *tokens]):
        if numbers := list(filter(None, chosen)):
            said = ", ".join((repr(prefix), *(f"{name} {number}" for name, number in numbers)))
            data = b"".join(number.to_bytes(8, order) for _, number in numbers)
            yield f"SHA-256 of {said} ({order}-endian)", prefix.encode() + data


def _beside(view: RunView, row: int, names: tuple[str, str]) -> list[tuple[str, int]]:
    name = next((name for name in names if name in view.cells), "")
    cells = view.dense(name) if name else Cells(row + 1)
    whole = cells.state[row] == NUMBER and cells.values[row].is_integer() and 0 <= cells.values[row] < 2**63
    return [(name, int(cells.values[row]))] if whole else []


def extent(views: Views, options: Fields) -> int:
    """Count the digests."""
    return len(views[0].stated.get(str(options.get("column")), ()))


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Lay a formula of all that may be in one over the last digest of a few."""
    view, name = views[0], str(options.get("column"))
    few: RunView = view.cut(sorted(view.stated[name])[-4:])
    beside = (_beside(few, few.rows - 1, names) for names in (COUNTERS, TOKENS))
    numbers = [SEEDS[-1], *(one[0][1] for one in beside if one)]
    digest = sha256(PREFIXES[-1].encode() + b"".join(number.to_bytes(8, "big") for number in numbers))
    damaged = replace(few, stated={name: {**few.stated[name], few.rows - 1: digest}})
    before = rows_of(measure((few,), options), StatedDigest)

    def seen(again: Measurement | Unmeasured) -> bool:
        found = rows_of(again, StatedDigest)
        return found[:-1] == before[:-1] and found[-1].formula.startswith("SHA-256")

    return Canary(name="a formula for the last digest", place=f"{name}, last row", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
