"""Figures of a learning rate beside the schedule that was declared."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from weighbridge.core import Fields, Series
from weighbridge.figures.figure import FigureValue, figure, most_of

SINE = [(-1) ** term / math.factorial(2 * term + 1) for term in range(12)]  # exact to a double up to π/2


def cosine(progress: float) -> float:
    """Return (1 + cos πp) / 2, as (1 - sin π(p - 1/2)) / 2: the same on every machine."""
    angle = math.pi * (progress - 0.5)
    return 0.5 - 0.5 * math.fsum(factor * angle ** (2 * term + 1) for term, factor in enumerate(SINE))


LEFT: Mapping[str, Callable[[float], float]] = {  # of the peak, so far on the way down
    "constant": lambda _progress: 1.0,
    "linear": lambda progress: 1.0 - progress,
    "cosine": cosine,
}


def declared(step: int, limits: Any) -> float:
    """Return the learning rate of a step as it was declared."""
    at = step + limits.ahead
    if at < limits.warmup_steps:
        return float(limits.peak * at / limits.warmup_steps)
    progress = min((at - limits.warmup_steps) / (limits.total_steps - limits.warmup_steps), 1.0)
    return float(limits.last + (limits.peak - limits.last) * LEFT[limits.schedule](progress))


@figure(
    "largest |sample - declared| / peak",
    running=most_of(lambda limits: lambda step, value: abs(value - declared(step, limits)) / limits.peak),
)
def off_schedule(series: Series, limits: Any) -> FigureValue:
    """Return by which share of the peak a learning rate is off its schedule, at most, and where."""
    rows = ((step, value, declared(step, limits)) for step, value in zip(series.step, series.value, strict=True))
    found = ((abs(value - meant) / limits.peak, step, value, meant) for step, value, meant in rows)
    worst, step, value, meant = max(found, key=operator.itemgetter(0))
    more: Fields = {"step": step, "value": value, "meant": meant, "schedule": str(limits.schedule)}
    return FigureValue(worst, more)
