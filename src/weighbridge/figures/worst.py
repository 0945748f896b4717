"""Figures of the worst sample of a series, or of several in a row: how far it goes, or how far it is off."""

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, Push, figure, most_of


def lasting(series: Series, limits: Any, each: Callable[..., float], most: Callable[..., Any]) -> FigureValue:
    """Return what `most` says of what `each` says of so many samples in a row, and the step of the last of them."""
    count = limits.in_a_row
    rows = ((each(series.value[at - count : at]), series.step[at - 1]) for at in range(count, len(series.value) + 1))
    value, step = most(rows, key=operator.itemgetter(0))
    return FigureValue(value, {"step": step, "in_a_row": count})


def row_by_row(each: Callable[..., float], most: Callable[[float, float], float]) -> Callable[[Any], Push]:
    """Return the running form of `lasting`."""

    def begin(limits: Any) -> Push:
        row = deque[float](maxlen=limits.in_a_row)

        def of(_step: int, value: float) -> float | None:
            row.append(value)
            return each(row) if len(row) == limits.in_a_row else None

        return of

    return most_of(begin, most)


@figure("largest number that `in_a_row` samples in a row all reach", running=row_by_row(min, max))
def reached(series: Series, limits: Any) -> FigureValue:
    """Return the largest number that so many samples in a row reach, and where."""
    return lasting(series, limits, min, max)


@figure("least number that `in_a_row` samples in a row all come down to", running=row_by_row(max, min))
def sunk(series: Series, limits: Any) -> FigureValue:
    """Return the least number that so many samples in a row come down to, and where."""
    return lasting(series, limits, max, min)


@figure(
    "largest |sample / its reference - 1|",
    running=most_of(lambda _limits: lambda _step, value, reference=1.0: abs(value / reference - 1)),
)
def off(series: Series, *more: Any) -> FigureValue:
    """Return by which share a sample is off its reference, or 1, at most, and where."""
    compared = more[0].value if more[1:] else [1.0] * len(series.value)
    rows = zip(series.value, compared, series.step, strict=True)
    found = ((abs(value / reference - 1), value, reference, step) for value, reference, step in rows)
    worst, value, reference, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "reference": reference})


@figure("largest |sample - declared|", running=most_of(lambda limits: lambda _, value: abs(value - limits.declared)))
def undeclared(series: Series, limits: Any) -> FigureValue:
    """Return by how much a sample is off the number that was declared, at most, and where."""
    found = ((abs(value - limits.declared), value, step) for value, step in zip(series.value, series.step, strict=True))
    worst, value, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "declared": limits.declared})
