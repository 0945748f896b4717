"""Figures of an evaluation beside the training loss."""

from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, figure, middle, ratio


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
