"""Figures of evaluations beside what went before them, and of waiting: for a better one, or for a row."""

import itertools
import operator
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, Push, deviations, figure, middle, ratio


@figure("the lesser rise of the last evaluations' median since the best before them: by itself, or over the loss")
def parting(series: Series, loss: Series, limits: Any) -> FigureValue:
    """Return by which share an evaluation rose since its best, and no more than it rose beside the training loss."""
    count = limits.median_of
    best = min(series.value[:-count])
    at = list(series.value).index(best)
    then, since = (middle(sorted(part)) for part in (loss.value[max(at + 1 - count, 0) : at + 1], loss.value[-count:]))
    now = middle(sorted(series.value[-count:]))
    rise = max(min(now - best, now * then / since - best), 0.0)
    more = {"best": best, "best_step": series.step[at], "now": now, "loss_then": then, "loss_now": since}
    return FigureValue(ratio(rise, abs(best)) if rise else 0.0, more)


@figure("(best of the wait - best before it) / (1.4826 / √2 × MAD of the differences before it)", unit="deviations")
def worse(series: Series, limits: Any) -> FigureValue:
    """Return how many deviations of the noise the wait's best lies above the best before it."""
    before, wait = series.value[: -limits.patience], series.value[-limits.patience :]
    moves = sorted(after - now for now, after in itertools.pairwise(before))
    noise = deviations(2**-0.5, moves)  # of differences, as the deviation of one value
    found = min(wait) - min(before)
    return FigureValue(ratio(found, noise), {"best": min(before), "worse": found, "noise": noise})


@figure("samples after the lowest", unit="evaluations")
def waited(series: Series, _limits: Any) -> FigureValue:
    """Return how many samples came after the lowest."""
    best = list(series.value).index(min(series.value))
    return FigureValue(len(series.value) - 1 - best, {"best": series.value[best], "at": series.step[best]})


def _since_the_last(_limits: Any) -> Push:
    last: list[float] = []

    def push(_step: int, value: float) -> float | None:
        since = value - last[0] if last else None
        last[:] = [value]
        return since

    return push


@figure("largest of (sample - the one before it)", unit="s", each=_since_the_last,
        samples=lambda series, _limits: len(series.value[1:]))  # fmt: skip
def silence(series: Series, _limits: Any) -> FigureValue:
    """Return the longest time between two samples of a clock, and the step of the later one."""
    pairs = zip(itertools.pairwise(series.value), series.step[1:], strict=True)
    waits = ((after - before, step) for (before, after), step in pairs)
    longest, step = max(waits, key=operator.itemgetter(0), default=(0.0, None))
    return FigureValue(longest, {"step": step})
