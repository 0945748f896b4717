"""Figures of a series' level: the median of so many samples in a row, which no single batch moves."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterator
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, figure, middle, ratio


def levels(series: Series, count: int) -> Iterator[tuple[int, float]]:
    """Yield the median of each so many samples in a row, and the step of the last of them."""
    row = sorted(series.value[:count])
    yield series.step[count - 1], middle(row)
    for at in range(count, len(series.value)):
        del row[bisect.bisect_left(row, series.value[at - count])]
        bisect.insort(row, series.value[at])
        yield series.step[at], middle(row)


@figure("largest of (level - best level before it) / |first level, or the median of three samples that is below it|")
def lost(series: Series, limits: Any) -> FigureValue:
    """Return which share of the loss at first a level lies above the best before it, at most, and where."""
    found = levels(series, limits.median_of)
    start = best = best_then = highest = next(found)
    for one in found:
        best = one if one[1] < best[1] else best
        if one[1] - best[1] > highest[1] - best_then[1]:
            highest, best_then = one, best
    rise = highest[1] - best_then[1]
    began = middle(sorted(series.value[:3]))  # where the first level is already one of a hump
    first = min(began, start[1]) if began > 0 else start[1]
    more = {"step": highest[0], "level": highest[1], "best": best_then[1], "best_step": best_then[0], "first": first}
    return FigureValue(ratio(rise, abs(first)) if rise else 0.0, more)


@figure("largest of level / the greater of the first level and the level `window` samples before it")
def growth(series: Series, limits: Any) -> FigureValue:
    """Return how many times a level is that of a window before it, or the first, whichever is greater, and where."""
    found = levels(series, limits.median_of)
    _, first = start = next(found)
    before, later = itertools.tee(itertools.chain([start], found))
    pairs = zip(itertools.islice(later, limits.window, None), before, strict=False)
    times = ((ratio(one, max(was, first)), step, one, max(was, first)) for (step, one), (_, was) in pairs)
    most, step, level, was = max(times, key=operator.itemgetter(0))
    return FigureValue(most, {"step": step, "level": level, "before": was, "window": limits.window})
