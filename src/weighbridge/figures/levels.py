"""Figures of a series' level: the median of so many samples in a row, which no single batch moves."""

from __future__ import annotations

import bisect
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


@figure("largest of (level - best level before it) / |first level|; a level is the median of `median_of` samples")
def lost(series: Series, limits: Any) -> FigureValue:
    """Return which share of the first level a later one lies above the best before it, at most, and where."""
    found = list(levels(series, limits.median_of))
    bests = list(found)
    for at, one in enumerate(found[1:], start=1):
        bests[at] = one if one[1] < bests[at - 1][1] else bests[at - 1]
    rises = [(one[1] - best[1], one, best) for one, best in zip(found, bests, strict=True)]
    rise, (step, level), (best_step, best) = max(rises, key=operator.itemgetter(0))
    more = {"step": step, "level": level, "best": best, "best_step": best_step, "first": found[0][1]}
    return FigureValue(ratio(rise, abs(found[0][1])) if rise else 0.0, more)


@figure("largest of level / the greater of the first level and the level `window` samples before it")
def growth(series: Series, limits: Any) -> FigureValue:
    """Return how many times a level is that of a window before it, or the first, whichever is greater, and where."""
    found = list(levels(series, limits.median_of))
    befores = (max(before, found[0][1]) for _, before in found)
    pairs = zip(found[limits.window :], befores, strict=False)
    most, step, level, before = max(
        ((ratio(one, was), at, one, was) for (at, one), was in pairs), key=operator.itemgetter(0)
    )
    return FigureValue(most, {"step": step, "level": level, "before": before, "window": limits.window})
