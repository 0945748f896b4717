"""Figures of single samples against a reference: a first value, the one before, another column or run, a schedule."""

from __future__ import annotations

import bisect
import heapq
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weighbridge.core import Fields, Series
from weighbridge.figures.figure import FigureValue, Push, figure, middle, most_of


def references(relative_to: str, series: Series, others: Series | None) -> Sequence[float]:
    """Return what each sample is compared with; the first one has none before it."""
    match relative_to:
        case "value":
            return [1.0] * len(series.value)
        case "first":
            return [series.value[0]] * len(series.value)
        case "previous":
            return series.value[:-1]
    assert others is not None
    return others.value


def judged(series: Series, limits: Any) -> int:
    """Return how many samples are judged besides as many as may violate the bound, each with one beside it."""
    spared: int = 2 * limits.violations + (limits.relative_to in ("first", "previous"))
    return max(len(series.value) - spared, 0)


def _worst_so_far(limits: Any) -> Push:
    sign, worst = 1 if limits.at_most is not None or limits.below is not None else -1, list[float]()

    def push(_step: int, value: float, reference: float = 1.0) -> float | None:
        bisect.insort(worst, sign * (value / reference))
        del worst[: -limits.violations - 1]
        return sign * worst[0] if len(worst) > limits.violations else None

    return push


@figure(
    "the worst sample, `violations` worse ones apart, as it is, or over its reference",
    samples=judged,
    running=_worst_so_far,
)
def extreme(series: Series, *more: Any) -> FigureValue:
    """Return the worst sample that is left when as many as may violate the bound are taken away, and where it is."""
    *others, limits = more
    high = limits.at_most is not None or limits.below is not None
    compared = references(limits.relative_to, series, next(iter(others), None))
    kept = slice(len(series.value) - len(compared), None)
    rows = zip(series.value[kept], series.step[kept], compared, strict=True)
    worst = heapq.nlargest if high else heapq.nsmallest
    found = worst(limits.violations + 1, ((value / reference, step, reference) for value, step, reference in rows))
    value, step, reference = found[limits.violations]
    return FigureValue(value, {"step": step, "reference": reference, "relative_to": limits.relative_to})


SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": operator.itemgetter(-1),
    "lowest": min,
    "highest": max,
    "mean": lambda values: math.fsum(values) / len(values),
    "median": lambda values: middle(sorted(values)),
}


@figure("the last, lowest, highest, mean or median sample, as it is, or over that of its reference")
def summary(series: Series, *more: Any) -> FigureValue:
    """Return what the limits ask of a series, as it is or over the same of its reference."""
    *others, limits = more
    of = SUMMARIES[limits.statistic]
    value = of(series.value)
    reference = of(references(limits.relative_to, series, next(iter(others), None)))
    said = {"statistic": str(limits.statistic), "relative_to": limits.relative_to}
    return FigureValue(value / reference, {"value": value, "reference": reference, **said})


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
