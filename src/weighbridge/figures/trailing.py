"""Figures that compare each sample of a series, or the median of so many in a row, with those before it."""

import bisect
import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, Push, deviations, figure, middle, most_of, ratio

NOISE = 3  # robust standard deviations of a level's samples, by which one of them may lie below the level
ROUNDED = 3  # units of the last printed decimal: what rises by no more may be rounding
LISTED = 20  # spikes that are listed one by one


def trailing(series: Series, limits: Any) -> Iterator[tuple[int, float, list[float]]]:
    """Yield step and value of each sample that has a window before it, with that window in order of size.

    The window is one and the same list throughout; what comes before `warmup_steps` is neither judged nor part of it.
    """
    start = bisect.bisect_left(series.step, limits.warmup_steps)
    before = sorted(series.value[start : start + limits.window])
    for index in range(start + limits.window, len(series.value)):
        yield series.step[index], series.value[index], before
        del before[bisect.bisect_left(before, series.value[index - limits.window])]
        bisect.insort(before, series.value[index])


class Latest:
    """The last so many samples that came, and the same in order of size."""

    def __init__(self, size: int) -> None:
        self.size, self.ordered = size, list[float]()
        self._row = deque[float]()

    @property
    def full(self) -> bool:
        """Return whether so many came."""
        return len(self._row) == self.size

    def add(self, value: float) -> None:
        """Add a sample; the oldest of as many goes."""
        if self.full:
            del self.ordered[bisect.bisect_left(self.ordered, self._row.popleft())]
        self._row.append(value)
        bisect.insort(self.ordered, value)


def sample_by_sample(judge: Callable[[float, list[float], float, Any], float]) -> Callable[[Any], Push]:
    """Begin the running form of `trailing`: what `judge` says of a sample, its window and the first one's median."""

    def begin(limits: Any) -> Push:
        latest, first = Latest(limits.window), list[float]()

        def push(step: int, value: float) -> float | None:
            if step < limits.warmup_steps:
                return None
            found = None
            if latest.full:
                first[:] = first or [abs(middle(latest.ordered)) if limits.or_first else 0.0]
                found = judge(value, latest.ordered, first[0], limits)
            latest.add(value)
            return found

        return push

    return begin


def with_a_window(series: Series, limits: Any) -> int:
    """Return how many samples have a window before them."""
    start: int = bisect.bisect_left(series.step, limits.warmup_steps) + limits.window
    return max(len(series.step) - start, 0)


def at_first(series: Series, limits: Any) -> float:
    """Return the median of the first window, where no sample is compared with less; else nothing."""
    _, _, before = next(trailing(series, limits), (0, 0.0, [0.0]))
    return abs(middle(before)) if limits.or_first else 0.0


def usual(value: float, before: Sequence[float], first: float, limits: Any) -> float:
    """Return how high a sample may lie after these samples, which stand in order of size."""
    median = middle(before)
    least: float = median + limits.min_rise * max(abs(median), first)
    if value <= least:  # as most do, and most of the time goes into the spread
        return least
    most: float = max(median + deviations(limits.k, before), least)
    return most


def beyond_rounding(value: float, before: Sequence[float]) -> bool:
    """Return whether a sample lies farther above the median than the decimals explain that it and its window have."""
    decimals = max(-int(Decimal(repr(one)).normalize().as_tuple().exponent) for one in (value, *before))
    return Decimal(repr(value)) - Decimal(repr(middle(before))) > ROUNDED * Decimal(10) ** -decimals


def _is_spike(value: float, before: list[float], first: float, limits: Any) -> float:
    return value > usual(value, before, first, limits) and beyond_rounding(value, before)


@figure(
    "samples above median + max(k × 1.4826 × MAD, min_rise × |median|, 3 last decimals) of the window before them",
    unit="spikes",
    source="median absolute deviation: Hampel 1974",
    samples=with_a_window,
    running=most_of(sample_by_sample(_is_spike), operator.add),
)
def spikes(series: Series, limits: Any) -> FigureValue:
    """Return how many samples lie far above the samples before them, where the worst is, and what it might be."""
    first = at_first(series, limits)
    found = [
        (value - top, step, value, top)
        for step, value, before in trailing(series, limits)
        if value > (top := usual(value, before, first, limits)) and beyond_rounding(value, before)
    ]
    _, at, worst, allowed = max(found, default=(None, None, None, None))
    listed = {"worst_step": at, "worst": worst, "allowed": allowed, "spikes": [one[1] for one in found[:LISTED]]}
    asked = {"window": limits.window, "warmup_steps": limits.warmup_steps, "k": limits.k}
    return FigureValue(len(found), {**asked, **listed})


@figure(
    "largest of value / median of the window before it",
    source="gradient spikes: 10 × the median of 30",
    samples=with_a_window,
    each=sample_by_sample(lambda value, before, first, _limits: ratio(value, max(middle(before), first))),
)
def jump(series: Series, limits: Any) -> FigureValue:
    """Return how many times a sample is the median of those before it, or of the first ones, at most."""
    first = at_first(series, limits)
    seen = ((ratio(value, max(middle(before), first)), value, step) for step, value, before in trailing(series, limits))
    worst, value, step = max(seen)
    return FigureValue(worst, {"step": step, "value": value, "window": limits.window})


def levels(series: Series, count: int) -> Iterator[tuple[int, float, list[float]]]:
    """Yield the median of each so many samples in a row, the step of the last of them, and them in order of size.

    The last is one and the same list throughout.
    """
    row = sorted(series.value[:count])
    yield series.step[count - 1], middle(row), row
    for at in range(count, len(series.value)):
        del row[bisect.bisect_left(row, series.value[at - count])]
        bisect.insort(row, series.value[at])
        yield series.step[at], middle(row), row


def level_by_level(of: Callable[[Any], Callable[[list[float], list[float]], float | None]]) -> Callable[[Any], Push]:
    """Begin the running form of a figure of levels: what `of` says of a level's samples, and of the first three."""

    def begin(limits: Any) -> Push:
        latest, began, judge = Latest(limits.median_of), list[float](), of(limits)

        def push(_step: int, value: float) -> float | None:
            latest.add(value)
            began.extend([value] if len(began) < 3 else ())
            return judge(latest.ordered, began) if latest.full else None

        return push

    return begin


def _first_level(began: Sequence[float], start: float) -> float:
    """Return the first level, or the median of three samples below it, where that is already one of a hump."""
    low = middle(sorted(began))
    return min(low, start) if low > 0 else start


def _over_first(level: float, row: list[float], first: float) -> float:
    """Return by which share a level lies above the first sample, beyond the noise of its samples; none is of zero."""
    return (level - deviations(NOISE, row)) / first - 1 if level > first > 0 else 0.0


def _lost_so_far(_limits: Any) -> Callable[[list[float], list[float]], float]:
    seen: list[float] = []  # the first level, the best, the highest rise above the best before it, and the share over

    def judge(row: list[float], began: list[float]) -> float:
        level = middle(row)
        start, best, rise, over = seen or (level, level, 0.0, 0.0)
        best = min(best, level)
        rise, over = max(rise, level - best), max(over, _over_first(level, row, began[0]))
        seen[:] = start, best, rise, over
        return max(ratio(rise, abs(_first_level(began, start))) if rise else 0.0, over)

    return judge


def _grown(limits: Any) -> Callable[[list[float], list[float]], float | None]:
    first, before = list[float](), deque[float](maxlen=limits.window + 1)

    def judge(row: list[float], _began: list[float]) -> float | None:
        first[:] = first or [middle(row)]
        before.append(middle(row))
        return ratio(before[-1], max(before[0], first[0])) if len(before) > limits.window else None

    return judge


@figure(
    "largest of (level - best level before it) / |first level, or the median of three samples that is below it|, "
    "and of (level - 3 × 1.4826 × MAD of its samples) / first sample - 1, where that is above zero",
    running=level_by_level(_lost_so_far),
)
def lost(series: Series, limits: Any) -> FigureValue:
    """Return which share of the loss at first a level lies above the best before it, at most, and where.

    A run that leaves its first sample at once has no level that is as good, so that this counts, too.
    """
    began, found = series.value[0], levels(series, limits.median_of)
    step, level, row = next(found)
    start = best = best_then = highest = step, level
    over = _over_first(level, row, began), step, level
    for step, level, row in found:
        best = (step, level) if level < best[1] else best
        if level - best[1] > highest[1] - best_then[1]:
            highest, best_then = (step, level), best
        over = max(over, (_over_first(level, row, began), step, level), key=operator.itemgetter(0))
    rise, first = highest[1] - best_then[1], _first_level(series.value[:3], start[1])
    share = ratio(rise, abs(first)) if rise else 0.0
    if over[0] > share:
        share, highest, best_then, first = over[0], over[1:], (series.step[0], began), began
    more = {"step": highest[0], "level": highest[1], "best": best_then[1], "best_step": best_then[0], "first": first}
    return FigureValue(share, more)


@figure(
    "largest of level / the greater of the first level and the level `window` samples before it",
    each=level_by_level(_grown),
)
def growth(series: Series, limits: Any) -> FigureValue:
    """Return how many times a level is that of a window before it, or the first, whichever is greater, and where."""
    found = levels(series, limits.median_of)
    _, first, _ = start = next(found)
    before, later = itertools.tee((step, level) for step, level, _ in itertools.chain([start], found))
    pairs = zip(itertools.islice(later, limits.window, None), before, strict=False)
    times = ((ratio(one, max(was, first)), step, one, max(was, first)) for (step, one), (_, was) in pairs)
    most, step, level, was = max(times, key=operator.itemgetter(0))
    return FigureValue(most, {"step": step, "level": level, "before": was, "window": limits.window})
