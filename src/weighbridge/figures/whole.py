"""Figures of a whole series: its ends, its extremes, its spread."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weighbridge.core.model import Series
from weighbridge.figures.figure import FigureValue, figure, middle, ratio


@figure("last sample - lowest sample")
def rise(series: Series, _limits: Any) -> FigureValue:
    """Return how far the last sample lies above the lowest."""
    best = min(series.value)
    return FigureValue(series.value[-1] - best, {"best": best, "at": series.step[series.value.index(best)]})


@figure("1 - median of the last ones / median of the first ones")
def drop(series: Series, limits: Any) -> FigureValue:
    """Return by which share the median of the last samples lies below that of the first."""
    count = limits.samples_each
    before, after = (middle(sorted(part)) for part in (series.value[:count], series.value[-count:]))
    return FigureValue(1 - ratio(after, before), {"before": before, "after": after})


@figure("population standard deviation / |mean|")
def spread(series: Series, _limits: Any) -> FigureValue:
    """Return the standard deviation over the mean."""
    mean = math.fsum(series.value) / len(series.value)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in series.value) / len(series.value))
    return FigureValue(ratio(deviation, abs(mean)), {"mean": mean})


STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "median": lambda values: middle(sorted(values)),
    "mean": lambda values: math.fsum(values) / len(values),
    "max": max,
}


def in_window(series: Series, limits: Any) -> Series:
    """Return the samples of the steps that the limits name; one of each step, where they say which."""
    first, last = limits.steps
    pairs = [pair for pair in zip(series.step, series.value, strict=True) if first <= pair[0] <= last]
    if limits.repeated is not None:
        pairs = list(dict(pairs if limits.repeated == "last" else reversed(pairs)).items())
    return Series(tuple(step for step, _ in pairs), tuple(value for _, value in pairs))


@figure(
    "median (mean of the two middle ones), mean or largest", unit="ms",
    samples=lambda series, limits: len(in_window(series, limits).value),
)  # fmt: skip
def statistic(series: Series, limits: Any) -> FigureValue:
    """Return the statistic of a window that the limits name, the slowest step in it, and the slowest outside it."""
    window = in_window(series, limits)
    slowest, step = max(zip(window.value, window.step, strict=True), key=operator.itemgetter(0))
    outer = (
        (time, step)
        for time, step in zip(series.value, series.step, strict=True)
        if not limits.steps[0] <= step <= limits.steps[1] and math.isfinite(time)
    )
    outside, outside_step = max(outer, key=operator.itemgetter(0), default=(None, None))
    return FigureValue(
        STATISTICS[limits.statistic](window.value),
        {
            "statistic": str(limits.statistic), "steps": list(limits.steps), "slowest_ms": slowest,
            "slowest_step": step, "outside": len(series.step) - len(window.step), "outside_slowest_ms": outside,
            "outside_slowest_step": outside_step,
        },
    )  # fmt: skip
