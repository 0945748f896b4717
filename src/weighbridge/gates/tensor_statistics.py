"""tensor-statistics: are the mean, spread and extremes of the named tensors inside the bounds that a contract gives?

Bounds are the contract's alone: no figure is normal for every model.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.gates.dtype_preservation import listed
from weighbridge.gates.gate_kind import Evidence, Falsifier, Kind, Need, blocked, each_row, failed, passed, rows_of
from weighbridge.gates.pair_damage import blank_table, unlooked, variant
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict

STATISTICS = ("mean", "std", "min", "max", "absmax", "rms", "zero_share")
LARGEST = 1e308


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One statistic of the tensors of one role, held on one side or on both."""

    tensors: Annotated[str, Doc("glob over tensor names")]
    statistic: Annotated[str, Doc("of the finite elements", choices=STATISTICS)]
    at_least: Annotated[float | None, Doc("inclusive", ge=-LARGEST, le=LARGEST, tight="up")] = None
    at_most: Annotated[float | None, Doc("inclusive", ge=-LARGEST, le=LARGEST, tight="down")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each role's statistics must be."""

    bounds: Annotated[tuple[Bound, ...], Doc("all of them must hold", min_items=1, tight="up")]


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every named tensor against every bound that names it."""
    rows = rows_of(evidence, "moments")
    named = [(row, bound) for bound in limits.bounds for row in rows if listed(str(row["name"]), (bound.tensors,))]
    offences = [offence for row, bound in named for offence in _broken(row, bound)]
    looked = list(dict.fromkeys(str(row["name"]) for row, _ in named))
    if offences:
        return failed(offences, looked=looked, unit="tensors", figures=_figures(limits, named))
    idle = [bound.tensors for bound in limits.bounds if not any(_names(bound, row) for row in rows)]
    if idle:
        return blocked("names-nothing", {"globs": sorted(set(idle)), "names": len(rows)})
    unknown = sorted({str(row["name"]) for row, bound in named if _value(row, bound) is None})
    if unknown:
        return blocked("not-measured", {"tensors": len(unknown), "of": len(looked), "first": unknown[0]})
    return passed(looked=looked, unit="tensors", figures=_figures(limits, named))


def _names(bound: Bound, row: Fields) -> bool:
    return listed(str(row["name"]), (bound.tensors,))


def _broken(row: Fields, bound: Bound) -> Iterator[Offence]:
    value = _value(row, bound)
    if value is None:
        return
    if bound.at_least is not None and value < bound.at_least:
        yield _offence(row, bound, "below", value, bound.at_least)
    if bound.at_most is not None and value > bound.at_most:
        yield _offence(row, bound, "above", value, bound.at_most)


def _value(row: Fields, bound: Bound) -> float | None:
    """Take a statistic; none where the tensor has no single or no finite values, or where it overflowed."""
    value = row[bound.statistic]
    return value if isinstance(value, float) and not math.isnan(value) else None


def _offence(row: Fields, bound: Bound, code: str, value: float, limit: float) -> Offence:
    figures: Fields = {"statistic": bound.statistic, "value": value, "bound": limit, "glob": bound.tensors}
    return Offence(place=str(row["name"]), code=code, figures=figures)


def _figures(limits: Limits, named: Sequence[tuple[Fields, Bound]]) -> Fields:
    return {"bounds": len(limits.bounds), "held": len(named)}


def check(limits: Limits, _measure: object) -> list[str]:
    """Say which bounds hold nothing, or cannot be held."""
    told = []
    for at, bound in enumerate(limits.bounds):
        if bound.at_least is None and bound.at_most is None:
            told.append(f"bounds[{at}] has neither at_least nor at_most")
        elif bound.at_least is not None and bound.at_most is not None and bound.at_least > bound.at_most:
            told.append(f"bounds[{at}]: at_least {bound.at_least} is more than at_most {bound.at_most}")
    return told


# --- Falsifiers -------------------------------------------------------------------------------------------------------


def _outside(
    side: str, choose: Callable[[Sequence[Bound], Fields], Bound]
) -> Callable[[Fields, Limits], Fields | None]:
    """Move one statistic just beyond one bound that names the tensor."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        mine = [bound for bound in limits.bounds if fnmatch.fnmatchcase(str(row["name"]), bound.tensors)]
        held = [bound for bound in mine if getattr(bound, side) is not None]
        if not held:
            return None
        bound = choose(held, row)
        limit, towards = getattr(bound, side), -math.inf if side == "at_least" else math.inf
        return {**row, bound.statistic: math.nextafter(limit, towards)}

    return change


def _first(bounds: Sequence[Bound], _row: Fields) -> Bound:
    return bounds[0]


def _last(bounds: Sequence[Bound], _row: Fields) -> Bound:
    return bounds[-1]


def _in_turn(bounds: Sequence[Bound], row: Fields) -> Bound:
    return bounds[len(str(row["name"])) % len(bounds)]


def _unknown(value: float | None) -> Callable[[Fields, Limits], Fields | None]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        mine = [bound for bound in limits.bounds if fnmatch.fnmatchcase(str(row["name"]), bound.tensors)]
        return {**row, mine[-1].statistic: value} if mine else None

    return change


def _all_named_by(glob_at: int) -> Falsifier[Limits]:
    """Take away all that one glob names; what the others name is still inside."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        return None if fnmatch.fnmatchcase(str(row["name"]), limits.bounds[glob_at].tensors) else row

    return blank_table(
        "a glob that names nothing", change, why="no other tensor is named", code="names-nothing", need="moments"
    )


def _not_measured(name: str, value: float | None) -> Falsifier[Limits]:
    return each_row(name, "not-measured", "moments", _unknown(value), why="no tensors", outcome=Outcome.BLOCKED)


KIND = Kind(
    name="tensor-statistics",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"moments": Need("tensor_moments", of=("candidate",))},
    limits=Limits,
    codes={
        "below": Outcome.FAIL,
        "above": Outcome.FAIL,
        "not-measured": Outcome.BLOCKED,
        "names-nothing": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        each_row("below the first bound", "below", "moments", _outside("at_least", _first), why="nothing from below"),
        each_row("above the first bound", "above", "moments", _outside("at_most", _first), why="nothing from above"),
        each_row("below the last bound", "below", "moments", _outside("at_least", _last), why="nothing from below"),
        each_row("above the last bound", "above", "moments", _outside("at_most", _last), why="nothing from above"),
        variant("below a bound", "below", _outside("at_least", _in_turn), why="nothing from below", need="moments"),
        variant("above a bound", "above", _outside("at_most", _in_turn), why="nothing from above", need="moments"),
        unlooked(
            "below a bound elsewhere", "below", _outside("at_least", _in_turn), why="all were looked at", need="moments"
        ),
        unlooked(
            "above a bound elsewhere", "above", _outside("at_most", _in_turn), why="all were looked at", need="moments"
        ),
        _not_measured("without single values", None),
        _not_measured("overflowed", math.nan),
        _all_named_by(0),
        _all_named_by(-1),
    ),
    check=check,
)
