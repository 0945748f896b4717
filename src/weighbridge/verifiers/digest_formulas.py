"""Digests that a log states, each held against formulas of the seed, epoch and tokens beside it. Knows no bound."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Literal

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, sha256
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StatedDigest
from weighbridge.run_logs.log_table import MAX_DIGESTS, NUMBER
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, table
from weighbridge.views.run import RunView

QUANTITY = "digest_formulas"
PREFIXES = ("", "aprender-train:pretrain:optstate:v1:")
ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
SEEDS = (*range(100), 123, 1234, 1337, 2024, 2025)  # besides the seed that the run states
BESIDE = (("epoch", "step"), ("tokens_seen", "tokens"))


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Return for every digest of `column` the formula that gives it."""
    view: RunView = views[0]
    name = _column(options)
    stated = view.stated.get(name, {})
    if not stated or len(stated) > MAX_DIGESTS:
        why = f"{name!r} holds more than {MAX_DIGESTS} digests" if stated else f"the run states no digest {name!r}"
        return Unmeasured(code="no-column", why=why, remedy=f"log a SHA-256 an epoch as {name!r}")
    return table(QUANTITY, [_tried(view, name, row, digest) for row, digest in stated.items()])


def _column(options: Fields) -> str:
    return str(options.get("column", "optimizer_state_sha"))


def _tried(view: RunView, name: str, row: int, digest: str) -> StatedDigest:
    formulas = list(_formulas(view, row))
    found = next((told for told, data in formulas if sha256(data) == digest), "")
    return StatedDigest(place=f"{name}, row {row}", digest=digest, tried=len(formulas), formula=found)


def _formulas(view: RunView, row: int) -> Iterator[tuple[str, bytes]]:
    """Yield in words and bytes each choice of seed, counter and tokens, any of which may be left out, but not all."""
    seed = view.facts.get("seed")
    stated = (seed,) if type(seed) is int and 0 <= seed < 1 << 64 else ()
    choices = [[("seed", one) for one in dict.fromkeys((*stated, *SEEDS))]]
    choices += [list(itertools.islice(_numbers(view, names, row), 1)) for names in BESIDE]
    for prefix, order in itertools.product(PREFIXES, ORDERS):
        for chosen in itertools.product(*([None, *those] for those in choices)):
            if numbers := [one for one in chosen if one is not None]:
                told = ", ".join((repr(prefix), *(f"{name} {number}" for name, number in numbers)))
                data = b"".join(number.to_bytes(8, order) for _, number in numbers)
                yield f"SHA-256 of {told} ({order}-endian)", prefix.encode() + data


def _numbers(view: RunView, names: tuple[str, ...], row: int) -> Iterator[tuple[str, int]]:
    for name in (name for name in names if name in view.cells):
        cells = view.dense(name)
        if cells.state[row] == NUMBER and cells.values[row].is_integer() and 0 <= cells.values[row] < 2.0**63:
            yield name, int(cells.values[row])


def extent(views: Views, options: Fields) -> int:
    """Count the digests."""
    return len(views[0].stated.get(_column(options), {}))


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Lay a formula over the last digest of a few."""
    name, view = _column(options), views[0]
    few: RunView = view.cut(sorted(view.stated[name])[-4:])
    *_, (told, data) = _formulas(few, few.rows - 1)
    laid = dataclasses.replace(few, stated={name: {**few.stated[name], few.rows - 1: sha256(data)}})

    def seen(again: Measurement | Unmeasured) -> bool:
        found = rows_of(again, StatedDigest)
        return len(found) == few.rows and found[-1].formula == told

    return Canary(name="a formula for the last digest", place=f"{name}, last row", views=(laid,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
