"""wall-time-budget: is a declared statistic of step wall time, over declared steps, under the budget?

A median is the mean of the two middle values; windows are inclusive. Warm-up and outliers outside the window stand in
the figures. An invented, constant or derived time column is never judged.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
import operator
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from weighbridge.clauses import column_basis
from weighbridge.clauses.column_basis import ColumnBasis, basis_of
from weighbridge.clauses.kind import (
    Damage,
    Evidence,
    Falsifier,
    Kind,
    Need,
    NotApplicable,
    blocked,
    each_row,
    failed,
    passed,
    rows_of,
    series_of,
    with_value,
)
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, Series, SubjectKind, Verdict

T = TypeVar("T")
NUDGES = 20  # each twice as large as the one before; rounding needs two or three


class Statistic(enum.StrEnum):
    """What of the samples is held against the budget."""

    MEDIAN = "median"
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which column holds the wall time of a step."""

    column: Annotated[str, Doc("the column of step wall times in milliseconds")] = "wall_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A budget for a step, strict (`below_ms`) or inclusive (`at_most_ms`)."""

    statistic: Annotated[Statistic, Doc("what of the samples is held against the budget")] = Statistic.MEDIAN
    steps: Annotated[tuple[Annotated[int, Doc(ge=0)], Annotated[int, Doc(ge=0)]], Doc("first and last step")]
    below_ms: Annotated[float | None, Doc("the statistic is less than this", unit="ms", gt=0, le=1e7, tight="down")] = (
        None
    )
    at_most_ms: Annotated[float | None, Doc("the statistic is at most this", unit="ms", gt=0, le=1e7, tight="down")] = (
        None
    )
    min_samples: Annotated[
        int | None, Doc("how many different steps of the window must have a time; all without it", ge=1, tight="up")
    ] = None

    @property
    def budget(self) -> float:
        """Give the budget, strict or not."""
        budget = self.below_ms if self.below_ms is not None else self.at_most_ms
        assert budget is not None
        return budget

    @property
    def needed(self) -> int:
        """Give how many steps must have a time."""
        return self.min_samples if self.min_samples is not None else self.steps[1] - self.steps[0] + 1

    @property
    def least_excess(self) -> float:
        """Give the least time that is over the budget."""
        return self.budget if self.below_ms is not None else math.nextafter(self.budget, math.inf)


def check(limits: Limits, _measure: Measure) -> Sequence[str]:
    """Find what is wrong with limits that are each in order alone."""
    width = limits.steps[1] - limits.steps[0] + 1
    problems = []
    if (limits.below_ms is None) == (limits.at_most_ms is None):
        problems.append("give one of below_ms and at_most_ms")
    if width < 1:
        problems.append(f"steps: the window ends at {limits.steps[1]}, before it begins at {limits.steps[0]}")
    elif limits.min_samples is not None and limits.min_samples > width:
        problems.append(f"min_samples: {limits.min_samples} samples cannot come from a window of {width} steps")
    return problems


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the statistic of the window's samples against the budget."""
    series = series_of(evidence, "times")
    inside = _inside(series, limits)
    values = _take(series.value, inside)
    held_back = _basis(evidence) or _samples(_take(series.step, inside), values, limits)
    if held_back is not None:
        return held_back
    measured = statistic(limits.statistic, values)
    place = window(limits)
    common: dict[str, Any] = {
        "looked": [place],
        "of": len(values),
        "unit": "ms",
        "measured": measured,
        "limit": limits.budget,
        "figures": _figures(series, inside, limits),
    }
    if measured >= limits.least_excess:
        least = limits.least_excess
        over = sum(value >= least for value in values)
        offence = Offence(place=place, code="over-budget", figures={"over": over, "samples": len(values)})
        return failed([offence], counted=len(values) - over, enough=measured, **common)
    return passed(**common)


def statistic(which: Statistic, values: Sequence[float]) -> float:
    """Compute a statistic of at least one value; a median is the mean of the two middle ones."""
    if which is Statistic.MAX:
        return max(values)
    if which is Statistic.MEAN:
        return math.fsum(values) / len(values)
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else math.fsum(ordered[middle - 1 : middle + 1]) / 2


def window(limits: Limits) -> str:
    """Name the window."""
    return f"steps {limits.steps[0]}..{limits.steps[1]}"


def _inside(series: Series, limits: Limits) -> Sequence[int]:
    """Give the indices of the samples inside the window: a range where steps only rise, for speed."""
    first, last = limits.steps
    if all(map(operator.le, series.step, itertools.islice(series.step, 1, None))):
        return range(bisect.bisect_left(series.step, first), bisect.bisect_right(series.step, last))
    return [index for index, step in enumerate(series.step) if first <= step <= last]


def _take(items: Sequence[T], indices: Sequence[int]) -> Sequence[T]:
    if isinstance(indices, range):
        return items[indices.start : indices.stop]
    return [items[index] for index in indices]


def _column(evidence: Evidence) -> str:
    return evidence["times"].at or "wall_ms"


def _basis(evidence: Evidence) -> Verdict | None:
    column = _column(evidence)
    row = next((row for row in rows_of(evidence, "columns") if row["column"] == column), None)
    if row is None:
        return blocked("no-basis", {"column": column})
    found = basis_of(row)
    figures: Fields = {"column": column, "how": found.how, "partner": found.partner, "samples": row["finite"]}
    if found.basis in (ColumnBasis.CONSTANT, ColumnBasis.NOISE, ColumnBasis.DERIVED):
        return blocked(f"column-{found.basis}", {**figures, "min": row["min"], "max": row["max"]})
    return None


def _samples(steps: Sequence[int], values: Sequence[float], limits: Limits) -> Verdict | None:
    distinct = len(set(steps))
    figures: Fields = {"samples": distinct, "needed": limits.needed, "steps": list(limits.steps)}
    if distinct < limits.needed:
        return blocked("too-few-samples", figures)
    bad = [step for step, value in zip(steps, values, strict=True) if not 0.0 < value < math.inf]
    if bad:
        return blocked("not-a-time", {**figures, "bad": len(bad), "first_step": bad[0]})
    if len(values) > 1 and min(values) == max(values):
        return blocked("constant-window", {**figures, "value": values[0]})
    return None


def _figures(series: Series, inside: Sequence[int], limits: Limits) -> Fields:
    """Put warm-up and outliers into the open: the slowest step inside the window, and outside it."""
    first, last = limits.steps
    outside = [index for index, step in enumerate(series.step) if not first <= step <= last]
    slowest, slowest_step = _slowest(series, inside)
    outer, outer_step = _slowest(series, [index for index in outside if math.isfinite(series.value[index])])
    return {
        "statistic": str(limits.statistic),
        "steps": list(limits.steps),
        "bound": "below" if limits.below_ms is not None else "at most",
        "slowest_ms": slowest,
        "slowest_step": slowest_step,
        "outside": len(outside),
        "outside_slowest_ms": outer,
        "outside_slowest_step": outer_step,
    }


def _slowest(series: Series, some: Sequence[int]) -> tuple[float | None, int | None]:
    at = max(some, key=lambda index: series.value[index], default=None)
    return (None, None) if at is None else (series.value[at], series.step[at])


# --- Falsifiers -------------------------------------------------------------------------------------------------------

Change = Callable[
    ["array[int]", "array[float]", Sequence[int], Limits], None
]  # steps, values, indices inside the window


def _falsifier(
    name: str,
    code: str,
    change: Change,
    outcome: Outcome = Outcome.BLOCKED,
    *,
    applies: Callable[[int, Limits], bool] = lambda _samples, _limits: True,
    why: str = "",
) -> Falsifier[Limits]:
    def damage(evidence: Evidence, limits: Limits, _places: tuple[str, ...]) -> Damage | NotApplicable:
        series = series_of(evidence, "times")
        inside = _inside(series, limits)
        if not applies(len(inside), limits):
            return NotApplicable(why)
        steps, values = array("q", series.step), array("d", series.value)
        change(steps, values, inside, limits)
        return Damage(with_value(evidence, "times", Series(steps, values)), frozenset({window(limits)}))

    return Falsifier(name, code, damage, outcome)


def _slow(name: str, pick: Callable[[Sequence[int], int], Sequence[int]]) -> Falsifier[Limits]:
    """Slow as few steps as move the statistic, just so far that it is over the budget."""

    def change(_steps: array[int], values: array[float], inside: Sequence[int], limits: Limits) -> None:
        halved = limits.statistic is Statistic.MEDIAN
        slowed = pick(inside, (len(inside) + 1) // 2 if halved else 1)
        left = set(inside).difference(slowed)
        kept = [values[index] for index in left]
        slow = limits.least_excess
        if halved and len(inside) % 2 == 0:
            slow = max(slow, 2 * slow - max(kept))
        elif limits.statistic is Statistic.MEAN:
            slow = slow * len(inside) - math.fsum(kept)
        for index in slowed:
            values[index] = slow
        _nudge(values, slowed, inside, limits)

    return _falsifier(name, "over-budget", change, Outcome.FAIL)


def _nudge(values: array[float], some: Sequence[int], inside: Sequence[int], limits: Limits) -> None:
    """Undo rounding: raise some values until the statistic is over the budget."""
    for doubled in range(NUDGES):
        if statistic(limits.statistic, _take(values, inside)) >= limits.least_excess:
            return
        for index in some:
            values[index] *= 1 + 2.0 ** (doubled - 53)


def _to(place: int, value: float) -> Change:
    def change(_steps: array[int], values: array[float], inside: Sequence[int], _limits: Limits) -> None:
        values[inside[place]] = value

    return change


def _push_out(steps: array[int], _values: array[float], inside: Sequence[int], limits: Limits) -> None:
    """Leave one step too few in the window, and put the others right before and right after it."""
    kept = set(sorted({steps[index] for index in inside})[: limits.needed - 1])
    moved = [index for index in inside if steps[index] not in kept]
    for turn, index in enumerate(moved):
        steps[index] = limits.steps[0] - 1 if turn % 2 else limits.steps[1] + 1


def _repeat(steps: array[int], _values: array[float], inside: Sequence[int], _limits: Limits) -> None:
    for index in inside:
        steps[index] = steps[inside[0]]


def _equal(_steps: array[int], values: array[float], inside: Sequence[int], _limits: Limits) -> None:
    for index in inside:
        values[index] = values[inside[0]]


def _basis_falsifier(name: str, basis: ColumnBasis, change: Callable[[Fields], Fields | None]) -> Falsifier[Limits]:
    rows: Falsifier[Limits] = each_row(
        name,
        f"column-{basis}",
        "columns",
        lambda row, _: change(row),
        why="no other column has the rank of this one",
        outcome=Outcome.BLOCKED,
    )

    def damage(evidence: Evidence, limits: Limits, _places: tuple[str, ...]) -> Damage | NotApplicable:
        return rows.damage(evidence, limits, (_column(evidence),))

    return Falsifier(name, f"column-{basis}", damage, Outcome.BLOCKED)


KIND = Kind(
    name="wall-time-budget",
    version=1,
    roles={"run": SubjectKind.RUN},
    needs={
        "times": Need("step_series", of=("run",), options=("column",)),
        "columns": Need("step_columns", of=("run",)),
    },
    limits=Limits,
    measure=Measure,
    codes={
        "over-budget": Outcome.FAIL,
        "too-few-samples": Outcome.BLOCKED,
        "not-a-time": Outcome.BLOCKED,
        "constant-window": Outcome.BLOCKED,
        "column-constant": Outcome.BLOCKED,
        "column-noise": Outcome.BLOCKED,
        "column-derived": Outcome.BLOCKED,
        "no-basis": Outcome.BLOCKED,
    },
    judge=judge,
    check=check,
    falsifiers=(
        _slow("slow at the end of the window", lambda inside, some: inside[-some:]),
        _slow("slow at the beginning of the window", lambda inside, some: inside[:some]),
        _falsifier("one step too few", "too-few-samples", _push_out),
        _falsifier(
            "one step again and again",
            "too-few-samples",
            _repeat,
            applies=lambda _samples, limits: limits.needed > 1,
            why="one sample is enough for this contract",
        ),
        _falsifier("the last time is NaN", "not-a-time", _to(-1, math.nan)),
        _falsifier("the last time is infinite", "not-a-time", _to(-1, math.inf)),
        _falsifier("the first time is zero", "not-a-time", _to(0, 0.0)),
        _falsifier(
            "one time throughout the window",
            "constant-window",
            _equal,
            applies=lambda samples, _limits: samples > 1,
            why="a window of one sample",
        ),
        _basis_falsifier("the times are constant", ColumnBasis.CONSTANT, column_basis.as_constant),
        _basis_falsifier("the times are noise", ColumnBasis.NOISE, column_basis.as_noise),
        _basis_falsifier("the times are noise that hardly moves", ColumnBasis.NOISE, column_basis.as_faint_noise),
        _basis_falsifier("the times are derived", ColumnBasis.DERIVED, column_basis.as_derived),
        _basis_falsifier("the times are derived, with holes", ColumnBasis.DERIVED, column_basis.as_derived_with_holes),
        _basis_falsifier("the times are another column's", ColumnBasis.DERIVED, column_basis.as_twin),
    ),
)
