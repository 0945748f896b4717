"""Figures of the worst sample of a series, or of several in a row: how far it goes, or how far it is off."""

import operator
from collections.abc import Callable
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, figure


def lasting(series: Series, limits: Any, each: Callable[..., float], most: Callable[..., Any]) -> FigureValue:
    """Return what `most` says of what `each` says of so many samples in a row, and the step of the last of them."""
    count = limits.in_a_row
    rows = ((each(series.value[at - count : at]), series.step[at - 1]) for at in range(count, len(series.value) + 1))
    value, step = most(rows, key=operator.itemgetter(0))
    return FigureValue(value, {"step": step, "in_a_row": count})


@figure("largest number that `in_a_row` samples in a row all reach")
def reached(series: Series, limits: Any) -> FigureValue:
    """Return the largest number that so many samples in a row reach, and where."""
    return lasting(series, limits, min, max)


@figure("least number that `in_a_row` samples in a row all come down to")
def sunk(series: Series, limits: Any) -> FigureValue:
    """Return the least number that so many samples in a row come down to, and where."""
    return lasting(series, limits, max, min)


@figure("largest |sample / its reference - 1|")
def off(series: Series, *more: Any) -> FigureValue:
    """Return by which share a sample is off its reference, or 1, at most, and where."""
    compared = more[0].value if more[1:] else [1.0] * len(series.value)
    rows = zip(series.value, compared, series.step, strict=True)
    found = ((abs(value / reference - 1), value, reference, step) for value, reference, step in rows)
    worst, value, reference, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "reference": reference})


@figure("largest |sample - declared|")
def undeclared(series: Series, limits: Any) -> FigureValue:
    """Return by how much a sample is off the number that was declared, at most, and where."""
    found = ((abs(value - limits.declared), value, step) for value, step in zip(series.value, series.step, strict=True))
    worst, value, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "declared": limits.declared})
