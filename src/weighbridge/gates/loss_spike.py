"""loss-spike: does a logged column stay near what it was just before, step by step?

A sample is a spike when it lies above the median of the `window` samples before it by more than `k` robust standard
deviations (1.4826 × MAD), and by more than a share of that median: without it, a column that hardly moves would spike
at every rounding. Only what rises is a spike; warm-up is neither judged nor part of a window.
"""

from __future__ import annotations

import bisect
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, Whole
from weighbridge.clauses.faults import Injected
from weighbridge.clauses.kind import Evidence, series_of
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Outcome
from weighbridge.gates.families import run_columns

DEVIATION = 1.4826  # of a normal law: standard deviations in one median absolute deviation
TOLD = 20  # spikes that are told one by one


@dataclass(frozen=True, slots=True)
class SpikesFault:
    """Fault of `at_most_spikes`: so many of the smallest spikes that there are, by the definition."""

    def inject(
        self, evidence: Evidence, _held: Any, limits: Any, value: int, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield the column with spikes after a flat stretch, at its beginning, at its end and out of noise."""
        from statistics import median

        series = series_of(evidence, run_columns.SAMPLES)
        first, low = sum(step < limits.warmup_steps for step in series.step) + limits.window, min(series.value)
        if first + value > len(series.step):
            return

        def spike(values: array[float], some: range) -> None:
            for index in some:
                before = values[index - limits.window : index]
                usual = median(before)
                spread = limits.k * DEVIATION * median(abs(one - usual) for one in before)
                values[index] = math.nextafter(usual + max(spread, limits.min_rise * abs(usual)), math.inf)

        def at_the_beginning(_steps: array[int], values: array[float]) -> None:
            spike(values, range(first, first + value))
            values[first + value :] = array("d", [low]) * (len(values) - first - value)

        def at_the_end(_steps: array[int], values: array[float], noise: float = 0.0) -> None:
            last = len(values) - value
            values[:last] = array("d", [low - noise * (at % 3) for at in range(last)])
            spike(values, range(last, len(values)))

        def out_of_noise(steps: array[int], values: array[float]) -> None:
            at_the_end(steps, values, noise=max(abs(low), 1.0) * (1 + limits.min_rise))

        for way in (at_the_beginning, at_the_end, *([out_of_noise] if limits.k * DEVIATION >= 1 else [])):
            name = way.__name__.replace("_", " ")
            moved, at = run_columns.changed(evidence, way), run_columns.place(evidence)
            yield Injected(name, "spikes", moved, frozenset({at}))


@dataclass(frozen=True, slots=True)
class TooFewFault:
    """Fault of `min_samples` beside `window` and `warmup_steps`: the run ends too early, or warm-up too late."""

    def inject(
        self, evidence: Evidence, _held: Any, limits: Any, value: Any, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield a column with `value` samples that have a window before them."""
        first = (
            sum(step < limits.warmup_steps for step in series_of(evidence, run_columns.SAMPLES).step) + limits.window
        )

        def ends(steps: array[int], values: array[float]) -> None:
            run_columns.end(steps, values, first + value)

        def warms_up(steps: array[int], _values: array[float]) -> None:
            shift = steps[len(steps) - limits.window - value] - limits.warmup_steps
            steps[:] = array("q", [step - shift for step in steps])

        yield Injected("the run ends too early", "too-few-samples", run_columns.changed(evidence, ends))
        yield Injected("warm-up ends too late", "too-few-samples", run_columns.changed(evidence, warms_up))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What counts as a spike, and how many of them there may be."""

    k: Annotated[float, Doc("robust standard deviations above the median before it", gt=0, le=1000, tight="down")] = 8.0
    min_rise: Annotated[float, Doc("share of that median that it must rise by, too", ge=0, le=10, tight="down")] = 0.05
    window: Annotated[int, Doc("samples before a sample that it is held against", ge=5, le=10_000)] = 50
    warmup_steps: Annotated[int, Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")] = 100
    at_most_spikes: Annotated[
        int, Doc("how many spikes there may be", ge=0, le=10**9, tight="down", must="at most", fault=SpikesFault())
    ] = 0
    min_samples: Annotated[
        int,
        Doc("samples that must have been held against a window", ge=1, tight="up", must="at least",
            fault=TooFewFault(), comes_to="BLOCKED"),
    ] = 100  # fmt: skip


def trailing(evidence: Evidence, limits: Limits) -> Iterator[tuple[int, float, list[float]]]:
    """Yield step and value of each sample that has a window before it, with that window in order of size.

    The window is one and the same list throughout.
    """
    series = series_of(evidence, run_columns.SAMPLES)
    start = bisect.bisect_left(series.step, limits.warmup_steps)
    before = sorted(series.value[start : start + limits.window])
    for index in range(start + limits.window, len(series.value)):
        yield series.step[index], series.value[index], before
        del before[bisect.bisect_left(before, series.value[index - limits.window])]
        bisect.insort(before, series.value[index])


def counted(evidence: Evidence, limits: Limits) -> int:
    """Return how many samples have a window before them."""
    steps = series_of(evidence, run_columns.SAMPLES).step
    return max(len(steps) - bisect.bisect_left(steps, limits.warmup_steps) - limits.window, 0)


def most(before: Sequence[float], limits: Limits) -> float:
    """Return how high a sample may lie after these samples, which stand in order of size."""
    usual = run_columns.middle(before)
    spread = run_columns.middle(sorted(abs(value - usual) for value in before))
    return usual + max(limits.k * DEVIATION * spread, limits.min_rise * abs(usual))


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that there are enough samples, and no more spikes than there may be."""
    asked = {"window": limits.window, "warmup_steps": limits.warmup_steps, "k": limits.k}

    def spikes(evidence: Evidence) -> tuple[float, Fields]:
        found = [(value - top, step, value, top) for step, value, before in trailing(evidence, limits)
                 if value > before[len(before) // 2 - 1] and value > (top := most(before, limits))]  # fmt: skip
        _, at, worst, allowed = max(found, default=(None, None, None, None))
        told: Fields = {"worst_step": at, "worst": worst, "allowed": allowed, "enough": len(found)}
        return len(found), {**told, "spikes": [one[1] for one in found[:TOLD]], "of": counted(evidence, limits)}

    def enough(evidence: Evidence) -> tuple[float, Fields]:
        return counted(evidence, limits), {"samples": counted(evidence, limits), "needed": limits.min_samples}

    most_spikes, place = limits.at_most_spikes, run_columns.place
    return (
        Whole(code="too-few-samples", place=place, read=enough, must="at least", bound=limits.min_samples,
              figures=asked, outcome=Outcome.BLOCKED),
        Whole(code="spikes", place=place, read=spikes, must="at most", bound=most_spikes, figures=asked),
    )  # fmt: skip


KIND = run_columns.kind_of_column(
    "loss-spike",
    version=1,
    column="loss",
    asks=(run_columns.GENUINE, run_columns.RISING, run_columns.FINITE),
    limits=Limits,
    clauses=clauses,
    codes={"spikes": Outcome.FAIL, "too-few-samples": Outcome.BLOCKED},
)
