"""What every kind that judges one column of a run asks of it first, and how that is broken: said once for all."""

import bisect
import functools
import itertools
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.clauses import kind
from weighbridge.clauses.clause import Clause, Requires, Whole
from weighbridge.clauses.kind import At, Evidence, Mutated, Mutation, rows_of, series_of, with_rows
from weighbridge.clauses.mutations import Breaks, Limit, in_rows
from weighbridge.core import Doc, Fields, Outcome, Series, plain
from weighbridge.gates.families import column_basis
from weighbridge.gates.families.column_basis import ColumnBasis, basis_of
from weighbridge.quantities.runs import QuickSteps, StepColumn, Stretch

SAMPLES, COLUMNS = "samples", "columns"
INVENTED = (ColumnBasis.CONSTANT, ColumnBasis.NOISE, ColumnBasis.DERIVED, ColumnBasis.UNDECIDED)
HOLE = 2  # times the interval that nine in ten of a column's own do not exceed
CUT = 1024  # samples that trials need of a long column


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGuard:
    """One thing asked of a column before it is judged: the clauses under these limits, their codes, their mutations."""

    clauses: Callable[[Any], Iterable[Clause]]
    codes: Mapping[str, Outcome]
    mutations: tuple[Mutation[Any], ...]
    family: str = "run-columns"


def place(evidence: Evidence) -> str:
    """Return the name of the column that is judged."""
    return evidence[SAMPLES].at


def changed(evidence: Evidence, change: "Callable[[array[int], array[float]], None]") -> Evidence:
    """Return the evidence with steps and samples changed in place by `change`."""
    series = series_of(evidence, SAMPLES)
    steps, values = array("q", series.step), array("d", series.value)
    change(steps, values)
    return kind.with_value(evidence, SAMPLES, Series(steps, values))


def cut(evidence: Evidence, first: int, needed: int, last: float) -> tuple[Evidence, int | None]:
    """Return as many samples of a long column as are needed from a step on, with a few around them, and the last step.

    No step is None where the whole column is kept; none beyond `last` is counted.
    """
    series = series_of(evidence, SAMPLES)
    if len(series.step) <= 2 * CUT:
        return evidence, None
    start = bisect.bisect_left(series.step, first)
    stop = min(start + max(needed, CUT), bisect.bisect_right(series.step, last))
    kept = slice(max(start - CUT // 4, 0), stop + CUT // 4)
    return kind.with_value(evidence, SAMPLES, Series(series.step[kept], series.value[kept])), series.step[stop - 1]


def _row(evidence: Evidence) -> StepColumn | None:
    return next((row for row in rows_of(evidence, COLUMNS, StepColumn) if row.column == place(evidence)), None)


def _invented(evidence: Evidence, basis: ColumnBasis) -> Fields | None:
    row = _row(evidence)
    if row is None or row.column in column_basis.LOOKED_AT or (found := basis_of(row)).basis is not basis:
        return None
    figures: Fields = {"column": row.column, "how": found.how, "partner": found.partner, "samples": row.finite}
    return {**figures, "min": row.min, "max": row.max}


def placeholder_rows(evidence: Evidence, window: tuple[int, int]) -> Fields | None:
    """Return the first rows of a window that no step gave, by the judged column or by any that each step gives anew."""
    judged = place(evidence)
    rows = [row for row in rows_of(evidence, COLUMNS, StepColumn) if row.column == judged or _given_anew(row)]
    timed = {row.column for row in rows}
    for row in rows:
        found: Fields | None = next((plain(one) for one in column_basis.placeholders(row) if _meets(one, window)), None)
        quick = column_basis.too_quick(row) if column_basis.tells_speed(row.column, timed) else None
        if found is None and quick is not None and _meets(quick, window):
            value = f"at most {quick.below_ms:.4g}, the other steps at least {quick.above_ms:.4g}"
            found = {**plain(quick), "value": value}
        if found is not None:
            return {"column": row.column, **{key: found[key] for key in ("first_step", "last_step", "length", "value")}}
    return None


def _meets(one: Stretch | QuickSteps, window: tuple[float, float]) -> bool:
    """Return whether rows lie in a window, as they do where their steps are unknown."""
    first, last = one.first_step, one.last_step
    return first is None or last is None or (first <= window[1] and last >= window[0])


def _hole(evidence: Evidence, limits: Any) -> Fields | None:
    """Return where a column lacks numbers for far longer than between its own ones, while the log goes on."""
    if (row := _row(evidence)) is None or row.column in column_basis.LOOKED_AT or row.hole_after_step is None:
        return None
    begin, hole = row.hole_after_step, row.largest_hole
    log = next((one for one in rows_of(evidence, COLUMNS, StepColumn) if one.column == "step"), row)
    if log is not row and (log.hole_after_step, log.largest_hole) == (begin, hole):
        return None  # as in every full column, which need not be sorted to see that
    steps = sorted(series_of(evidence, SAMPLES).step)
    first, last = getattr(limits, "steps", None) or (-math.inf, math.inf)
    if len(steps) < 3 or begin < steps[0] or begin + hole <= first or begin >= last:
        return None
    usual = sorted(after - before for before, after in itertools.pairwise(steps))[(len(steps) - 1) * 9 // 10]
    return {"column": row.column, "hole": hole, "step": begin, "usual": usual} if hole > HOLE * usual else None


def _falling(evidence: Evidence) -> Fields | None:
    """Return the first step that is no later than the one before it."""
    pairs = itertools.pairwise(series_of(evidence, SAMPLES).step)
    return next(({"step": after, "after": before} for before, after in pairs if after <= before), None)


def _moving(limits: Any) -> Iterator[Clause]:
    def lacking(evidence: Evidence) -> Fields | None:
        row, window = _row(evidence), getattr(limits, "steps", None) or (-math.inf, math.inf)
        if row is None or not _given_anew(row):
            return None
        found = next((one for one in column_basis.placeholders(row) if _meets(one, window)), None)
        return {"column": row.column, "samples": row.finite, **plain(found)} if found else None

    yield Requires(code="column-placeholder", lacking=lacking)


def _given_anew(row: StepColumn) -> bool:
    return column_basis.of_a_step(row.column) and row.column not in column_basis.LOOKED_AT


def _not_finite(evidence: Evidence) -> tuple[float, Fields]:
    series = series_of(evidence, SAMPLES)
    bad = [step for step, value in zip(series.step, series.value, strict=True) if not math.isfinite(value)]
    return len(bad), {"not_finite": len(bad), "samples": len(series.value), "first_step": bad[0] if bad else None}


def _the_judged(evidence: Evidence, _limits: object, _places: Sequence[str]) -> tuple[str, ...]:
    return (place(evidence),)


def _of_basis(name: str, basis: ColumnBasis, change: Callable[[StepColumn], StepColumn | None]) -> Mutation[Any]:
    return in_rows(
        name, f"column-{basis}", COLUMNS, StepColumn,
        lambda row, _: None if row.column in column_basis.LOOKED_AT else change(row),  # 0 throughout, by rights
        why="no other column has the rank of this one, or a recorder looked", outcome=Outcome.BLOCKED, at=_the_judged,
    )  # fmt: skip


def _without_row(evidence: Evidence, _limits: object, _places: tuple[str, ...]) -> Mutated:
    left = [row for row in rows_of(evidence, COLUMNS, StepColumn) if row.column != place(evidence)]
    return Mutated(with_rows(evidence, COLUMNS, left))


def _in_samples(
    name: str, code: str, change: "Callable[[array[int], array[float]], None]", outcome: Outcome = Outcome.BLOCKED
) -> Mutation[Any]:
    def damage(evidence: Evidence, _limits: object, _places: tuple[str, ...]) -> Mutated:
        return Mutated(changed(evidence, change), frozenset({place(evidence)}))

    return Mutation(name, code, damage, outcome)


def _again(steps: "array[int]", values: "array[float]", at: int, later: int) -> None:
    """Log the sample at an index once more right after itself, so much later by its step."""
    after = at % len(steps) + 1
    steps.insert(after, steps[at] + later)
    values.insert(after, values[at])


def _put(at: int, value: float) -> "Callable[[array[int], array[float]], None]":
    return lambda _steps, values: values.__setitem__(at, value)


def _with_hole(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
    steps, judged = series_of(evidence, SAMPLES).step, _row(evidence)
    first, last = getattr(limits, "steps", None) or (max(steps, default=0), math.inf)
    at, hole = max(first, min(steps, default=0)), 10 * (max(steps, default=0) + 1 - min(steps, default=0))
    if judged is None or judged.column in column_basis.LOOKED_AT or len(steps) < 3 or at >= last:
        return "a recorder looked when it did, or so few samples have no cadence"
    damaged = replace(judged, hole_after_step=at, largest_hole=hole)
    rows = [damaged if one is judged else one for one in rows_of(evidence, COLUMNS, StepColumn)]
    return Mutated(with_rows(evidence, COLUMNS, rows), frozenset({judged.column}))


INVENTING: tuple[Mutation[Any], ...] = (
    Mutation("no such column", "no-basis", _without_row, Outcome.BLOCKED),
    _of_basis("a constant column", ColumnBasis.CONSTANT, column_basis.as_constant),
    _of_basis("a column of noise", ColumnBasis.NOISE, column_basis.as_noise),
    _of_basis("a column of noise that hardly moves", ColumnBasis.NOISE, column_basis.as_faint_noise),
    _of_basis("a column too short to rule out noise", ColumnBasis.UNDECIDED, column_basis.as_undecided),
    _of_basis("a derived column", ColumnBasis.DERIVED, column_basis.as_derived),
    _of_basis("a derived column, with holes", ColumnBasis.DERIVED, column_basis.as_derived_with_holes),
    _of_basis("a copy of another column", ColumnBasis.DERIVED, column_basis.as_copy),
)


def genuine(*bases: ColumnBasis) -> ColumnGuard:
    """Return the guard that a column is there, and came about in none of these ways."""

    def clauses(_limits: object) -> Iterator[Clause]:
        yield Requires(code="no-basis", lacking=lambda of: None if _row(of) else {"column": place(of)})
        for basis in bases:
            yield Requires(code=f"column-{basis}", lacking=functools.partial(_invented, basis=basis))

    codes = dict.fromkeys(("no-basis", *(f"column-{basis}" for basis in bases)), Outcome.BLOCKED)
    mutations = tuple(one for one in INVENTING if one.code in codes)
    return ColumnGuard(clauses=clauses, codes=codes, mutations=mutations)


GENUINE = genuine(*INVENTED)
EVALUATED = genuine(ColumnBasis.CONSTANT, ColumnBasis.DERIVED)  # evaluations are too few to rule out noise
LOGGED = ColumnGuard(
    clauses=lambda limits: [Requires(code="column-hole", lacking=lambda of: _hole(of, limits))],
    codes={"column-hole": Outcome.BLOCKED},
    mutations=(Mutation("numbers that end while the log goes on", "column-hole", _with_hole, Outcome.BLOCKED),),
)
RISING = ColumnGuard(
    clauses=lambda _limits: [Requires(code="out-of-order", lacking=_falling)],
    codes={"out-of-order": Outcome.BLOCKED},
    mutations=(
        _in_samples("the last step logged twice", "out-of-order", lambda steps, values: _again(steps, values, -1, 0)),
        _in_samples("the step falls", "out-of-order", lambda steps, values: _again(steps, values, 0, -1)),
    ),
)
FINITE = ColumnGuard(
    clauses=lambda _limits: [Whole(code="not-finite", place=place, read=_not_finite, must="at most", bound=0)],
    codes={"not-finite": Outcome.FAIL},
    mutations=(
        _in_samples("the last sample is NaN", "not-finite", _put(-1, math.nan), Outcome.FAIL),
        _in_samples("the first is infinite", "not-finite", _put(0, math.inf), Outcome.FAIL),
    ),
)
MOVING = ColumnGuard(
    clauses=_moving,
    codes={"column-placeholder": Outcome.BLOCKED},
    mutations=(
        in_rows(
            "a stretch of one number", "column-placeholder", COLUMNS, StepColumn,
            lambda row, limits: _still(row, getattr(limits, "steps", None)) if _given_anew(row) else None,
            why="not every step gives this anew, so that it may repeat", outcome=Outcome.BLOCKED, at=_the_judged,
        ),
    ),
)  # fmt: skip
THERE = (GENUINE, LOGGED)  # throughout, and measured
OF_STEPS = (*THERE, RISING, FINITE, MOVING)
OF_EVALUATIONS = (EVALUATED, LOGGED, RISING, FINITE, MOVING)


def _still(row: StepColumn, window: tuple[int, int] | None) -> StepColumn:
    """Return the row with the shortest stretch that rounding does not explain, at the end of the window."""
    still = column_basis.as_stretch(row)
    if window is None:
        return still
    at = window[1]
    return replace(still, stretches=tuple(replace(one, first_step=at, last_step=at + 9) for one in still.stretches))


def telling_speed(evidence: Evidence, _limits: object, places: Sequence[str]) -> Sequence[str]:
    """Return which columns of times tell how quick a step was: the CPU time, where it is logged."""
    logged = {row.column for row in rows_of(evidence, COLUMNS, StepColumn)}
    others = column_basis.LOOKED_AT | ({"wall_ms"} if "cpu_ms" in logged else set())
    return [name for name in places if name not in others]


def _breaks(name: str, change: Callable[[StepColumn, int], StepColumn | None], at: At) -> Mutation[Any]:
    return in_rows(
        name, "placeholder-rows", COLUMNS, StepColumn, lambda row, limits: change(row, limits.steps[1]),
        why="this column does not tell how quick a step was", outcome=Outcome.BLOCKED, at=at,
    )  # fmt: skip


def _too_quick(row: StepColumn, at: int) -> StepColumn | None:
    quick = column_basis.as_quick(row)
    return quick and replace(quick, quick=quick.quick and replace(quick.quick, first_step=at, last_step=at))


NO_PLACEHOLDERS = (  # of a window, the limit `steps`, in which no row may be one
    _breaks("placeholders at the end", lambda row, at: _still(row, (at, at)), _the_judged),
    _breaks("steps too quick to have trained", _too_quick, lambda of, given, _: telling_speed(of, given, (place(of),))),
)


def at_most_speed(outcome: Outcome) -> Doc:
    """Return the limit of the work that a wall time may imply; what breaking it comes to is `outcome`."""
    blocked = ("beyond-hardware",) if outcome is Outcome.BLOCKED else ()
    breaks = Breaks(need=COLUMNS, row=StepColumn, blocked=blocked)
    moves = breaks.beyond(("faster than any hardware", "beyond-hardware", _faster))
    text = "most work that the median wall time may imply, 6 × parameters × tokens of a process"
    return Doc(text, unit="1/s", ge=1e12, le=1e21, must="at most", moves=moves)


def _faster(row: StepColumn, _limits: object, value: float) -> StepColumn | None:
    return None if row.flops_per_s is None else replace(row, flops_per_s=value)


def ends_early(limit: Limit) -> Iterator[Mutation[Any]]:
    """Yield the mutation that ends a column before it has the samples that there must be."""

    def end(steps: "array[int]", samples: "array[float]") -> None:
        del steps[limit.value :], samples[limit.value :]

    yield _in_samples("the run ends too early", "too-few-samples", end)
