"""How trials break step-metrics, by rules of their own: a weakened rule of the judge cannot weaken them too."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Change, Way
from weighbridge.core import Fields, Outcome
from weighbridge.gates.families import column_basis
from weighbridge.gates.families.run_columns import telling_speed
from weighbridge.quantities.runs import StepColumn

Limits: TypeAlias = Any  # those of step-metrics, which imports this module
STEP = "step"
NEED = "columns"
FAILS = (
    *("missing", "no-step", "unreadable", "non-finite", "repeated-steps", "backward-steps", "gap", "fractional-steps"),
    *("constant", "noise", "derived", "placeholder", "recurring", "impossible-speed", "beyond-hardware", "impossible"),
    *("inconsistent", "non-finite-beside", "all-nan"),
)
BLOCKED = ("absent", "nan-filtered", "column-undecided", "too-few-steps")

_breaks = Breaks(need=NEED, row=StepColumn, blocked=BLOCKED, why="not required")


def _promised(rows: Sequence[StepColumn], limits: Limits) -> dict[str, str]:
    """Return the column of each required name: the standard one, else the first that is logged so."""
    columns = {row.logged_as: row.column for row in reversed(rows)} | {row.column: row.column for row in rows}
    return {name: columns[name] for name in limits.required if name in columns}


def _required(evidence: Evidence, limits: Limits, places: Sequence[str]) -> set[str]:
    return set(_promised(rows_of(evidence, NEED, StepColumn), limits).values()).intersection(places)


def _owing(evidence: Evidence, limits: Limits, places: Sequence[str]) -> set[str]:
    return _required(evidence, limits, places) | ({STEP} & set(places))


def _judged(_evidence: Evidence, _limits: Limits, places: Sequence[str]) -> list[str]:
    """Return the columns that are not left to rules of their own."""
    return [place for place in places if place not in column_basis.LOOKED_AT]


def _reordered(row: StepColumn, **changed: Any) -> StepColumn | None:
    return None if row.order is None else replace(row, order=replace(row.order, **changed))


def _in_cells(code: str, field: str) -> Way:
    return "beyond", code, lambda row, _, value: None if row.column == STEP else {field: value}


def _in_order(code: str, field: str) -> Way:
    return "beyond", code, lambda row, _, value: _reordered(row, **{field: value})


def _at_rate(sign: int) -> Callable[[StepColumn, Any, float], StepColumn | None]:
    def change(row: StepColumn, _limits: Any, value: float) -> StepColumn | None:
        off = math.nextafter(1 + sign * value, sign * math.inf)
        return None if row.rate is None else replace(row, rate=replace(row.rate, over_tokens=off))

    return change


FEW_STEPS = _breaks.beyond(_in_order("too-few-steps", "steps"), at=_owing)
TWICE = _breaks.beyond(_in_cells("repeated-steps", "logged_twice"), at=_owing)
BACKWARD = _breaks.beyond(_in_order("backward-steps", "backward_steps"), at=_owing)
HOLES = _breaks.beyond(_in_cells("missing", "largest_hole"), _in_order("gap", "largest_gap"), at=_owing)
RATE = _breaks.beyond(("above", "inconsistent", _at_rate(1)), ("below", "inconsistent", _at_rate(-1)))


def _unless(change: Change, *allowed: str) -> Change:
    def changed(row: StepColumn, limits: Limits) -> Any:
        free = any(listed(name, getattr(limits, globs)) for globs in allowed for name in (row.column, row.logged_as))
        return None if free else change(row, limits)

    return changed


def _unlogged(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, NEED, StepColumn)
    gone = {name: column for name, column in _promised(rows, limits).items() if column in set(places) - {STEP}}
    left = [row for row in rows if row.column not in gone.values() and row.logged_as not in gone]
    return Mutated(with_rows(evidence, NEED, left), frozenset(gone)) if gone else "not required"


def _left_out(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Leave one number out of each required column: twice its interval, or twice the step's where it has too few."""
    rows = rows_of(evidence, NEED, StepColumn)
    of_step = next((row.interval for row in rows if row.column == STEP), None)

    def left_out(row: StepColumn, _limits: Limits) -> Fields | None:
        own = row.interval if row.samples > 2 else None
        return None if row.column == STEP else {"largest_hole": 2 * (own or of_step or 1)}

    if limits.max_gap is not None and _required(evidence, limits, places) - {STEP}:
        return "max_gap is declared"
    return _breaks("", "", left_out, at=_required)(evidence, limits, places)


def _row_lost(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Leave out a row where it shows in every column: twice the longest interval of any."""
    longest = max((row.interval or 1 for row in rows_of(evidence, NEED, StepColumn)), default=1)

    def lost(row: StepColumn, limits: Limits) -> StepColumn | None:
        return _reordered(row, largest_gap=2 * longest) if limits.max_gap is None else None

    return _breaks("", "", lost, "max_gap is declared")(evidence, limits, places)


INVENTED = (
    ("a placeholder throughout", "constant", column_basis.as_constant),
    ("one value on all but a few samples", "constant", column_basis.as_nearly_constant),
    ("uniform noise for telemetry", "noise", column_basis.as_noise),
    ("noise that hardly moves", "noise", column_basis.as_faint_noise),
    ("noise of another shape for telemetry", "noise", column_basis.as_shaped_noise),
)
IMPOSSIBLE: tuple[tuple[str, Sequence[str], Callable[[StepColumn], Fields]], ...] = (
    ("a time below zero", column_basis.NOT_BELOW_ZERO, lambda _: {"negative": 1}),
    ("a step without tokens, or in no time", column_basis.ABOVE_ZERO, lambda _: {"zeros": 1}),
    ("a utilisation above all of it", ("gpu_util_pct",), lambda _: {"max": math.nextafter(100.0, math.inf)}),
    ("a rate that was zero throughout", column_basis.NOT_ALL_ZERO, lambda row: {"zeros": row.finite}),
)
NO: Fields = {"samples": 5, "nan": 5, "ends_not_finite": 5}
FILTERED, UNDECIDED = "not required, or allowed by the contract", "none must be measured"
PART = "no column that each step gives anew, or allowed by the contract"


def _invented(make: Callable[[StepColumn], StepColumn | None], code: str) -> Change:
    return _unless(lambda row, _: make(row), f"allow_{code}")


def _impossible(columns: Sequence[str], fields: Callable[[StepColumn], Fields]) -> Change:
    return lambda row, _: fields(row) if row.column in columns else None


def _part(row: StepColumn, limits: Limits) -> StepColumn | None:
    anew = column_basis.of_a_step(row.column) or not {row.column, row.logged_as}.isdisjoint(limits.required)
    return column_basis.as_stretch(row) if anew and row.min != row.max and not row.order else None


_in_part = _unless(_part, "allow_constant")
_now_and_then = _unless(lambda row, _: None if row.min == row.max else column_basis.as_recurring(row), "allow_constant")
_nan_kept = _unless(lambda _row, _limits: {"nan_filtered": True}, "allow_filtered")
_all_nan = _unless(lambda of, _: None if of.order or column_basis.must_be_finite(of) else NO, "allow_nan", "required")
_once_nan = _unless(lambda row, _: {"nan": 1, "missing": 1} if column_basis.must_be_finite(row) else None, "required")
_computed = _unless(lambda row, _: column_basis.as_derived(row) if row.column in column_basis.OF_A_STEP else None)
_too_quick = _unless(lambda row, _: column_basis.as_quick(row))
_too_short = _unless(lambda row, _: column_basis.as_undecided(row), "allow_noise", "allow_undecided")

MUTATIONS: tuple[Mutation[Any], ...] = (
    Mutation("a required metric is not logged", "absent", _unlogged, Outcome.BLOCKED),
    _breaks("a NaN would not be logged", "nan-filtered", _nan_kept, FILTERED, at=_required),
    Mutation("one number left out", "missing", _left_out),
    _breaks("one cell is not a number", "unreadable", at=_owing, unreadable=1),
    _breaks("NaN at one step", "non-finite", at=_owing, nan=1),
    _breaks("infinite at one step", "non-finite", at=_owing, infinite=1),
    _breaks("NaN once in a loss or rate beside", "non-finite-beside", _once_nan, "none beside", at=_judged),
    _breaks("NaN in all of a metric that is not required", "all-nan", _all_nan, "none, or allowed", at=_judged),
    _breaks("a row without a step", "no-step", lambda row, _: {"missing": 1} if row.order else None),
    Mutation("a row lost", "gap", _row_lost),
    _breaks("half a step", "fractional-steps", lambda row, _: _reordered(row, fractional=1)),
    _breaks("a placeholder from one step to another", "placeholder", _in_part, PART, at=_judged),
    _breaks("a formula of another column", "derived", _computed, PART),
    _breaks("a placeholder now and then", "recurring", _now_and_then, PART),
    _breaks("steps too quick to have trained", "impossible-speed", _too_quick, "no column of times", at=telling_speed),
    _breaks("a metric of too few samples to tell", "column-undecided", _too_short, UNDECIDED, at=_required),
    *(_breaks(name, code, _invented(make, code), "allowed of every column", at=_judged)
      for name, code, make in INVENTED),
    *(_breaks(name, "impossible", _impossible(columns, fields), "every column may have that")
      for name, columns, fields in IMPOSSIBLE),
)  # fmt: skip
