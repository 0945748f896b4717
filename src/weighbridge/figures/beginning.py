"""Figures of how a run begins and gets on, beside what a model loses that knows nothing."""

import math
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, Push, figure
from weighbridge.figures.whole import ends


def _first(_limits: Any) -> Push:
    found: list[float] = []

    def push(_step: int, value: float, reference: float) -> float:
        found[:] = found or [abs(value / reference - 1)]
        return found[0]

    return push


@figure("|first sample / its reference - 1|", samples=lambda series, _limits: len(series.value[:1]), running=_first)
def first_off(series: Series, known: Series, _limits: Any) -> FigureValue:
    """Return by which share the first sample is off its reference."""
    value, reference = series.value[0], known.value[0]
    return FigureValue(abs(value / reference - 1), {"step": series.step[0], "value": value, "reference": reference})


@figure("median of the last samples / the lesser of their reference and the median of the first ones")
def left(series: Series, known: Series, limits: Any) -> FigureValue:
    """Return what is left of the loss at first, which counts for no more than its reference."""
    before, after = ends(series, limits)
    low, more = min(before, known.value[0]), {"before": before, "after": after, "reference": known.value[0]}
    return FigureValue(after / low if low > 0 else math.inf, more)
