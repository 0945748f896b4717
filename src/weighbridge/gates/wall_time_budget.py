"""wall-time-budget: is a declared statistic of step wall time, over declared steps, under the budget?

A median is the mean of the two middle values; windows are inclusive. Warm-up and outliers outside the window stand in
the figures. An invented, constant or derived time column is never judged.
"""

from __future__ import annotations

import enum
import math
import operator
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, Requires, Whole
from weighbridge.clauses.faults import Injected
from weighbridge.clauses.kind import Damage, Evidence, Falsifier, NotApplicable, rows_of, series_of
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Outcome
from weighbridge.gates.families.column_basis import MOST_FLOPS_PER_S
from weighbridge.gates.families.run_columns import (
    COLUMNS,
    GENUINE,
    SAMPLES,
    SPEED,
    changed,
    inside,
    kind_of_column,
    middle,
    placeholder_rows,
    window_place,
    without_placeholders,
)
from weighbridge.quantities.runs import StepColumn


def _reference(which: str, values: Sequence[float]) -> float:
    """Return a statistic for the fault: computed by the standard library, not by what judges."""
    import statistics  # half as long as reading a contract, and only a trial needs it

    if which == "max":
        return max(values)
    return statistics.median(values) if which == "median" else statistics.fmean(values)


@dataclass(frozen=True, slots=True)
class OverFault:
    """Fault of the budget of the window's statistic: as few times as move it, at its end and at its beginning."""

    def inject(
        self, evidence: Evidence, _held: Any, limits: Any, value: Any, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield a column whose statistic is this value, or just beyond it."""
        which, at = str(limits.statistic), rows_that_count(evidence, limits, limits.repeated)
        many = (len(at) + 1) // 2 if which == "median" else 1
        for way, some, others in (
            ("at the end", at[-many:], at[:-many]),
            ("at the beginning", at[:many], at[many:]),
        ):

            def move(
                _steps: array[int], values: array[float], some: Sequence[int] = some, others: Sequence[int] = others
            ) -> None:
                kept = [values[index] for index in others]
                high = value
                if which == "median" and len(at) % 2 == 0:
                    high = max(value, 2 * value - max(kept))
                elif which == "mean":
                    high = value * len(at) - math.fsum(kept)
                for doubling in range(20):  # rounding needs two or three
                    for index in some:
                        values[index] = high
                    if _reference(which, [values[index] for index in at]) >= value:
                        return
                    high += abs(high) * 2.0 ** (doubling - 53)

            yield Injected(way, "over-budget", changed(evidence, move), frozenset({window_place(limits.steps)}))


def rows_that_count(evidence: Evidence, limits: Limits, which: Repeated | None) -> list[int]:
    """Return the indices of the window's rows; of a repeated step the first or the last alone, where it is said."""
    steps = series_of(evidence, SAMPLES).step
    at = [index for index, step in enumerate(steps) if limits.steps[0] <= step <= limits.steps[1]]
    if which is None:
        return at
    return sorted({steps[index]: index for index in (at if which == "last" else at[::-1])}.values())


class Repeated(enum.StrEnum):
    """Which row of a step counts that is logged more than once."""

    FIRST = "first"
    LAST = "last"


class Statistic(enum.StrEnum):
    """What of the samples is held against the budget."""

    MEDIAN = "median"
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A budget for a step, strict (`below_ms`) or inclusive (`at_most_ms`)."""

    statistic: Annotated[Statistic, Doc("what of the samples is held against the budget")] = Statistic.MEDIAN
    steps: Annotated[tuple[Annotated[int, Doc(ge=0)], Annotated[int, Doc(ge=0)]], Doc("first and last step")]
    below_ms: Annotated[
        float | None,
        Doc("the statistic is less than this", unit="ms", gt=0, le=1e7, tight="down", must="below", fault=OverFault()),
    ] = None
    at_most_ms: Annotated[
        float | None,
        Doc("the statistic is at most this", unit="ms", gt=0, le=1e7, tight="down", must="at most", fault=OverFault()),
    ] = None
    min_samples: Annotated[
        int | None, Doc("how many different steps of the window must have a time; all without it", ge=1, tight="up")
    ] = None
    repeated: Annotated[
        Repeated | None,
        Doc("which row counts of a step that is logged again, by a resumed run, say; without it none may be"),
    ] = None
    max_flops_per_s: Annotated[
        float,
        Doc("most work that the median wall time may imply, 6 × parameters × tokens of a process", unit="1/s", ge=1e12,
            le=1e21, tight="down", must="at most", fault=SPEED, comes_to="BLOCKED"),
    ] = MOST_FLOPS_PER_S  # fmt: skip

    @property
    def needed(self) -> int:
        """Return how many steps must have a time."""
        return self.min_samples if self.min_samples is not None else self.steps[1] - self.steps[0] + 1


def check(limits: Limits, _measure: object) -> Sequence[str]:
    """Return what is wrong with limits that are each in order alone."""
    width = limits.steps[1] - limits.steps[0] + 1
    problems = []
    if (limits.below_ms is None) == (limits.at_most_ms is None):
        problems.append("give one of below_ms and at_most_ms")
    if width < 1:
        problems.append(f"steps: the window ends at {limits.steps[1]}, before it begins at {limits.steps[0]}")
    elif limits.min_samples is not None and limits.min_samples > width:
        problems.append(f"min_samples: {limits.min_samples} samples cannot come from a window of {width} steps")
    return problems


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return enough times in the window, real ones that move, and their statistic under the budget."""
    asked: Fields = {"needed": limits.needed, "steps": list(limits.steps)}
    must, budget = ("below", limits.below_ms) if limits.below_ms is not None else ("at most", limits.at_most_ms)
    assert budget is not None

    def too_fast(evidence: Evidence) -> Fields | None:
        speeds = (row.flops_per_s for row in rows_of(evidence, COLUMNS, StepColumn) if row.flops_per_s is not None)
        fastest, most = max(speeds, default=0.0), limits.max_flops_per_s
        return {"flops_per_s": fastest, "most": most} if fastest > most else None

    def repeats(evidence: Evidence) -> Fields | None:
        steps = Counter(inside(evidence, limits.steps)[0])
        again = sorted(step for step, times in steps.items() if times > 1)
        some = again and limits.repeated is None
        return {**asked, "again": len(again), "first_step": again[0], "rows": steps.total()} if some else None

    def too_few(evidence: Evidence) -> Fields | None:
        distinct = len(set(inside(evidence, limits.steps)[0]))
        return {**asked, "samples": distinct} if distinct < limits.needed else None

    def not_times(evidence: Evidence) -> Fields | None:
        steps, values = _counting(evidence, limits)
        bad = [step for step, value in zip(steps, values, strict=True) if not 0.0 < value < math.inf]
        return {**asked, "bad": len(bad), "first_step": bad[0], "samples": len(set(steps))} if bad else None

    def constant(evidence: Evidence) -> Fields | None:
        values = _counting(evidence, limits)[1]
        return {**asked, "value": values[0]} if len(values) > 1 and min(values) == max(values) else None

    def statistic(evidence: Evidence) -> tuple[float, Fields]:
        values = _counting(evidence, limits)[1]
        found = STATISTICS[limits.statistic](values)
        over = sum(value > budget or (must == "below" and value == budget) for value in values)
        told: Fields = {"statistic": str(limits.statistic), "bound": must, "over": over, "samples": len(values)}
        of: Fields = {"unit": "ms", "of": len(values), "counted": len(values) - over, "enough": found}
        return found, {**told, **of, "steps": list(limits.steps), **_slowest(evidence, limits)}

    return (
        Requires(code="beyond-hardware", lacking=too_fast),
        Requires(code="placeholder-rows", lacking=lambda evidence: placeholder_rows(evidence, limits.steps)),
        Requires(code="too-few-samples", lacking=too_few),
        Requires(code="repeated-steps", lacking=repeats),
        Requires(code="not-a-time", lacking=not_times),
        Requires(code="constant-window", lacking=constant),
        Whole(
            code="over-budget", place=lambda _: window_place(limits.steps), read=statistic, must=must, bound=budget
        ),
    )  # fmt: skip


STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "median": lambda values: middle(sorted(values)),
    "mean": lambda values: math.fsum(values) / len(values),
    "max": max,
}


def _counting(evidence: Evidence, limits: Limits) -> tuple[Sequence[int], Sequence[float]]:
    """Return the steps and times that count: one row of each step, where the contract says which."""
    steps, values = inside(evidence, limits.steps)
    if limits.repeated is None:
        return steps, values
    pairs = zip(steps, values, strict=True)
    rows = dict(pairs) if limits.repeated is Repeated.LAST else dict(reversed(list(pairs)))
    return list(rows), list(rows.values())


def _slowest(evidence: Evidence, limits: Limits) -> Fields:
    """Return the slowest step inside the window, and outside it: warm-up and outliers are not hidden."""
    series, (first, last) = series_of(evidence, SAMPLES), limits.steps
    steps, times = _counting(evidence, limits)
    slowest = max(zip(times, steps, strict=True), key=operator.itemgetter(0))
    others = (
        (time, step)
        for time, step in zip(series.value, series.step, strict=True)
        if not first <= step <= last and math.isfinite(time)
    )
    outer = max(others, key=operator.itemgetter(0), default=(None, None))
    return {
        "slowest_ms": slowest[0], "slowest_step": slowest[1], "outside": len(series.step) - len(steps),
        "outside_slowest_ms": outer[0], "outside_slowest_step": outer[1],
    }  # fmt: skip


# --- How what no limit bounds is broken: each change takes steps, times, and the indices of the window ----------------

Change = Callable[["array[int]", "array[float]", Sequence[int], Limits], None]


def _breaks(name: str, code: str, change: Change, least: int = 1) -> Falsifier[Limits]:
    def damage(evidence: Evidence, limits: Limits, _places: tuple[str, ...]) -> Damage | NotApplicable:
        if code == "repeated-steps" and limits.repeated is not None:
            return NotApplicable("the contract says which row of a repeated step counts")
        which = limits.repeated if code in ("not-a-time", "constant-window") else None
        at = rows_that_count(evidence, limits, which)
        if len(at) < least or limits.needed < least:
            return NotApplicable("one sample is enough for this contract")
        return Damage(changed(evidence, lambda steps, times: change(steps, times, at, limits)), frozenset())

    return Falsifier(name, code, damage, Outcome.BLOCKED)


def _push_out(steps: array[int], _times: array[float], at: Sequence[int], limits: Limits) -> None:
    """Leave one step too few in the window, and put the others right before and right after it."""
    kept = set(sorted({steps[index] for index in at})[: limits.needed - 1])
    for turn, index in enumerate(index for index in at if steps[index] not in kept):
        steps[index] = limits.steps[0] - 1 if turn % 2 else limits.steps[1] + 1


def _repeat(steps: array[int], _times: array[float], at: Sequence[int], _limits: Limits) -> None:
    for index in at:
        steps[index] = steps[at[0]]


def _twice(steps: array[int], times: array[float], at: Sequence[int], limits: Limits) -> None:
    steps.append(steps[at[-1]])
    times.append(times[at[-1]])


def _equal(_steps: array[int], times: array[float], at: Sequence[int], _limits: Limits) -> None:
    for index in at:
        times[index] = times[at[0]]


def _one(place: int, value: float) -> Change:
    return lambda _steps, times, at, _limits: times.__setitem__(at[place], value)


KIND = kind_of_column(
    "wall-time-budget",
    version=3,
    column="wall_ms",
    means="the column of step wall times in milliseconds",
    asks=(GENUINE,),
    limits=Limits,
    check=check,
    clauses=clauses,
    codes={
        "over-budget": Outcome.FAIL,
        "beyond-hardware": Outcome.BLOCKED,
        "placeholder-rows": Outcome.BLOCKED,
        "too-few-samples": Outcome.BLOCKED,
        "repeated-steps": Outcome.BLOCKED,
        "not-a-time": Outcome.BLOCKED,
        "constant-window": Outcome.BLOCKED,
    },
    falsifiers=(
        _breaks("one step too few", "too-few-samples", _push_out),
        _breaks("one step again and again", "too-few-samples", _repeat, least=2),
        _breaks("one step twice", "repeated-steps", _twice),
        *without_placeholders("steps"),
        _breaks("the last time is NaN", "not-a-time", _one(-1, math.nan)),
        _breaks("the last time is infinite", "not-a-time", _one(-1, math.inf)),
        _breaks("the first time is zero", "not-a-time", _one(0, 0.0)),
        _breaks("one time throughout the window", "constant-window", _equal, least=2),
    ),
)
