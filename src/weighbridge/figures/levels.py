"""Figures of a series' level: the median of so many samples in a row, which no single batch moves."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, Push, figure, middle, most_of, ratio
from weighbridge.figures.trailing import Latest


def levels(series: Series, count: int) -> Iterator[tuple[int, float]]:
    """Yield the median of each so many samples in a row, and the step of the last of them."""
    row = sorted(series.value[:count])
    yield series.step[count - 1], middle(row)
    for at in range(count, len(series.value)):
        del row[bisect.bisect_left(row, series.value[at - count])]
        bisect.insort(row, series.value[at])
        yield series.step[at], middle(row)


def level_by_level(of: Callable[[Any], Callable[[float, float], float | None]]) -> Callable[[Any], Push]:
    """Begin the running form of a figure of levels: what `of` says of a level, and of how the samples began."""

    def begin(limits: Any) -> Push:
        latest, began, judge = Latest(limits.median_of), list[float](), of(limits)

        def push(_step: int, value: float) -> float | None:
            latest.add(value)
            began.extend([value] if len(began) < 3 else ())
            return judge(middle(latest.ordered), middle(sorted(began))) if latest.full else None

        return push

    return begin


def _lost_so_far(_limits: Any) -> Callable[[float, float], float]:
    seen: list[float] = []  # the first level, the best, and the highest rise above the best before it

    def judge(level: float, began: float) -> float:
        start, best, rise = seen or (level, level, 0.0)
        best = min(best, level)
        rise = max(rise, level - best)
        seen[:] = start, best, rise
        first = min(began, start) if began > 0 else start
        return ratio(rise, abs(first)) if rise else 0.0

    return judge


def _grown(limits: Any) -> Callable[[float, float], float | None]:
    first, before = list[float](), deque[float](maxlen=limits.window + 1)

    def judge(level: float, _began: float) -> float | None:
        first[:] = first or [level]
        before.append(level)
        return ratio(level, max(before[0], first[0])) if len(before) > limits.window else None

    return judge


@figure(
    "largest of (level - best level before it) / |first level, or the median of three samples that is below it|",
    running=level_by_level(_lost_so_far),
)
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


@figure(
    "largest of level / the greater of the first level and the level `window` samples before it",
    running=most_of(level_by_level(_grown)),
)
def growth(series: Series, limits: Any) -> FigureValue:
    """Return how many times a level is that of a window before it, or the first, whichever is greater, and where."""
    found = levels(series, limits.median_of)
    _, first = start = next(found)
    before, later = itertools.tee(itertools.chain([start], found))
    pairs = zip(itertools.islice(later, limits.window, None), before, strict=False)
    times = ((ratio(one, max(was, first)), step, one, max(was, first)) for (step, one), (_, was) in pairs)
    most, step, level, was = max(times, key=operator.itemgetter(0))
    return FigureValue(most, {"step": step, "level": level, "before": was, "window": limits.window})
