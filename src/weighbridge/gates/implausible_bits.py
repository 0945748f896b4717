"""Falsifiers of label-plausibility: tables of bits that are wrong by exactly one clause, at the boundary of its limit.

By rules of their own, so that a weakened rule of the judge cannot weaken them too. Never judges.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from weighbridge.gates.gate_kind import Damage, Evidence, Falsifier, NotApplicable, rows_of, with_value
from weighbridge.gates.pair_damage import blank_table
from weighbridge.model import Fields, Rows

Limits: TypeAlias = Any  # those of label-plausibility, which imports this module
Change: TypeAlias = Callable[[Fields, Limits], Fields | None]

FAR = 20.0  # bits: under no reading like weights
OTHER = {"F16": "BF16", "BF16": "F16"}


def _above(limit: float) -> float:
    return math.nextafter(limit, math.inf)


def _below(limit: float) -> float:
    return math.nextafter(limit, -math.inf)


def _words(
    row: Fields, limits: Limits, *, label: float, other: float, swapped: float = FAR, **more: Any
) -> Fields | None:
    """Describe words with these excesses, which can be decided by a hair, and only just."""
    dtype = str(row["dtype"])
    if dtype not in ("F16", "BF16", "F32"):
        return None
    nonzero = more.pop("nonzero", limits.min_nonzero)
    reading, rival = ("BF16", "F16") if dtype == "F32" else (dtype, OTHER[dtype])
    told = {"negative": math.floor(nonzero * limits.one_sign_at_most_share), "symbols": limits.min_symbols}
    beside = swapped if dtype != "F32" else min(other, swapped)
    return {
        **row,
        "nonzero": nonzero,
        "as_stored": {**told, "excess": {reading: label, rival: other}},
        "byte_swapped": {**told, "excess": {reading: beside, rival: FAR}},
        "half_divergence": 1.0,
        "half_entropy": 6.0,
        "trailing_zero_bits": 0,
        **more,
    }  # fmt: skip


def _mislabelled(row: Fields, limits: Limits) -> Fields | None:
    if row["dtype"] == "F32":
        return None
    return _words(row, limits, label=_above(limits.fits_not_above_bits), other=_below(limits.fits_below_bits))


def _swapped(row: Fields, limits: Limits, **more: Any) -> Fields | None:
    fits = _below(limits.fits_below_bits)
    return _words(row, limits, label=_above(limits.fits_not_above_bits), other=FAR, swapped=fits, **more)


def _swapped_of_one_sign(row: Fields, limits: Limits) -> Fields | None:
    found: Any = _swapped(row, limits)
    return found and {**found, "as_stored": {**found["as_stored"], "negative": 0, "symbols": 1}}


def _pairs(row: Fields, limits: Limits) -> Fields | None:
    alike = {"half_divergence": _below(limits.halves_alike_below_bits), "half_entropy": _below(limits.random_from_bits)}
    return _words(row, limits, label=0.0, other=FAR, **alike)


def _implausible(row: Fields, limits: Limits) -> Fields | None:
    far = _above(limits.implausible_above_bits)
    return _words(row, limits, label=far, other=far)


def _many(name: str, code: str, change: Change, share: Callable[[Limits], float], why: str) -> Falsifier[Limits]:
    """Break a clause about a share of the elements: everywhere, or at one place where some are allowed."""

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
        rows = rows_of(evidence, "bits")
        wanted = set(places)
        changed = {str(row["name"]): new for row in rows if str(row["name"]) in wanted and (new := change(row, limits))}
        if not changed:
            return NotApplicable(why)
        if share(limits):  # one place that is as large as it takes, and no larger
            place = next(reversed(changed))
            others = wanted if len(places) > 1 else {str(row["name"]) for row in rows}
            rest = sum(int(str(row["elements"])) for row in rows if str(row["name"]) in others - {place})
            least = math.floor(share(limits) * rest / (1 - share(limits))) + 1
            changed = {place: {**changed[place], "elements": least}}
        damaged = tuple(changed.get(str(row["name"]), row) for row in rows)
        return Damage(with_value(evidence, "bits", Rows("name", damaged)), frozenset(changed))

    return Falsifier(name, code, damage)


def _wrong(name: str, code: str, change: Change, why: str = "no tensor is of 16 or 32 bits") -> Falsifier[Limits]:
    return _many(name, code, change, lambda limits: float(limits.wrong_at_most_share), why)


def _elsewhere(name: str, code: str, change: Change) -> Falsifier[Limits]:
    """Break a clause where the judge decided nothing; it must object there all the same."""
    inner = _wrong(name, code, change)

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
        names = (str(row["name"]) for row in rows_of(evidence, "bits"))
        mine = tuple(name for name in names if name not in places and _named(name, limits))
        if len(places) == 1 < len(rows_of(evidence, "bits")) or not mine:
            return NotApplicable("everything that is named was decided")
        return inner.damage(evidence, limits, mine)

    return Falsifier(name, code, damage)


def _named(name: str, limits: Limits) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in limits.tensors)


def _unused(row: Fields, limits: Limits) -> Fields | None:
    most = limits.trailing_zero_bits_at_most.get(str(row["dtype"]))
    return None if most is None else {**row, "nonzero": limits.min_nonzero, "trailing_zero_bits": most + 1}


def _undecidable(name: str, change: Change) -> Falsifier[Limits]:
    """Leave every tensor just short of a decision; the judge must then say that it decided nothing."""

    def left(row: Fields, limits: Limits) -> Fields | None:
        found = change(row, limits)
        return None if found is None else {**found, "trailing_zero_bits": 0}

    return blank_table(name, left, why="no tensor is of 16 or 32 bits", code="nothing-decided", need="bits")


def _plain(row: Fields, limits: Limits, **more: Any) -> Fields | None:
    return _words(row, limits, **{"label": 0.0, "other": FAR, **more})


def _no_better(row: Fields, limits: Limits) -> Fields | None:
    label = limits.fits_below_bits / 2
    other = label + limits.apart_above_bits
    while other - label > limits.apart_above_bits:
        other = _below(other)
    return _words(row, limits, label=label, other=other)


def _doubtful(name: str, **more: Callable[[int, Limits], int]) -> tuple[Falsifier[Limits], ...]:
    """Leave too little to tell from, in words that would be plausible otherwise, and in words that would be swapped."""

    def told(change: Change, reading: str) -> Change:
        def doubted(row: Fields, limits: Limits) -> Fields | None:
            found: Any = change(row, limits)
            if found is None:
                return None
            return {**found, reading: {**found[reading], **{k: of(found["nonzero"], limits) for k, of in more.items()}}}

        return doubted

    plain, swapped = told(_plain, "as_stored"), told(_swapped, "byte_swapped")
    return _undecidable(name, plain), _undecidable(f"{name}, swapped", swapped)


def _one_sign(nonzero: int, limits: Limits) -> int:
    return int(nonzero * limits.one_sign_at_most_share) + 1


def _all_named_by(glob_at: int) -> Falsifier[Limits]:
    """Take away all that one glob names; what the others name is still plausible."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        name = str(row["name"])
        mine = fnmatch.fnmatchcase(name, limits.tensors[glob_at])
        return None if mine or not _named(name, limits) else _plain(row, limits)

    return blank_table(
        "a glob that names nothing", change, why="no other tensor is named", code="names-nothing", need="bits"
    )


UNDECIDABLE = (
    _undecidable("too few elements", lambda row, limits: _plain(row, limits, nonzero=limits.min_nonzero - 1)),
    _undecidable("too few, swapped", lambda row, limits: _swapped(row, limits, nonzero=limits.min_nonzero - 1)),
    *_doubtful("too few magnitudes", symbols=lambda _, limits: int(limits.min_symbols) - 1),
    *_doubtful("almost all negative", negative=_one_sign),
    *_doubtful("almost all positive", negative=lambda nonzero, limits: nonzero - _one_sign(nonzero, limits)),
    _undecidable("all zeros", lambda row, limits: _plain(row, limits, as_stored=None, byte_swapped=None)),
    _undecidable("not like weights", lambda row, limits: _words(row, limits, label=limits.fits_below_bits, other=FAR)),
    _undecidable("no reading better", _no_better),
    _undecidable(
        "the other reading not good enough",
        lambda row, limits: _words(row, limits, label=limits.implausible_above_bits, other=limits.fits_below_bits),
    ),
    _undecidable(
        "the other reading better, this one not bad enough",
        lambda row, limits: _words(row, limits, label=limits.fits_not_above_bits, other=0.0),
    ),
    _undecidable(
        "both almost implausible",
        lambda row, limits: _words(
            row, limits, label=_above(limits.implausible_above_bits), other=limits.implausible_above_bits
        ),
    ),
    _undecidable(
        "the label almost implausible",
        lambda row, limits: _words(row, limits, label=limits.implausible_above_bits, other=FAR),
    ),
    _undecidable(
        "swapped as good as stored",
        lambda row, limits: _words(row, limits, label=limits.fits_not_above_bits, other=FAR, swapped=0.0),
    ),
    _undecidable(
        "swapped not good enough",
        lambda row, limits: _words(
            row, limits, label=limits.implausible_above_bits, other=FAR, swapped=limits.fits_below_bits
        ),
    ),
    _undecidable(
        "halves not alike enough",
        lambda row, limits: _words(
            row, limits, label=limits.fits_below_bits, other=FAR, half_divergence=limits.halves_alike_below_bits
        ),
    ),
    _undecidable(
        "halves of noise",
        lambda row, limits: _words(
            row, limits, label=limits.fits_below_bits, other=FAR, half_divergence=0.0,
            half_entropy=limits.random_from_bits,
        ),
    ),
)  # fmt: skip

FALSIFIERS: tuple[Falsifier[Limits], ...] = (
    _wrong("the other reading fits", "mislabelled", _mislabelled, why="no tensor is of 16 bits"),
    _wrong("the other order of bytes fits", "byte-swapped", _swapped),
    _wrong("the other order of bytes fits, this one has no order", "byte-swapped", _swapped_of_one_sign),
    _wrong("both halves of every word alike", "pairs", _pairs),
    _many(
        "no reading fits", "implausible", _implausible, lambda limits: float(limits.implausible_at_most_share),
        "no tensor is of 16 or 32 bits",
    ),
    _elsewhere("the other order of bytes fits elsewhere", "byte-swapped", _swapped),
    _many("bits unused", "unused-bits", _unused, lambda _: 0.0, "no dtype is held to its bits"),
    *UNDECIDABLE,
    _all_named_by(0),
    _all_named_by(-1),
)  # fmt: skip
