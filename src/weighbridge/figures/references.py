"""Figures of the worst sample, or of several in a row: as it is, or against a reference."""

import bisect
import heapq
import itertools
import math
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weighbridge.core import Fields, Series
from weighbridge.figures.figure import FigureValue, Push, figure, middle

FALL = 10  # rows in a row in which a rate falls, or it is set down in steps


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
    each=lambda _limits: lambda _step, value, reference=1.0: value / reference,
)
def extreme(series: Series, *more: Any) -> FigureValue:
    """Return the worst sample that is left when as many as may violate the bound are taken away, and where it is."""
    *others, limits = more
    high = limits.at_most is not None or limits.below is not None
    compared = references(limits.relative_to, series, next(iter(others), None))
    kept = slice(len(series.value) - len(compared), None)
    rows = zip(series.value[kept], series.step[kept], compared, strict=True)
    worst = heapq.nlargest if high else heapq.nsmallest
    found = worst(limits.violations + 1, ((value / of, step, of, value) for value, step, of in rows))
    share, step, reference, value = found[limits.violations]
    return FigureValue(share, {"step": step, "value": value, **_compared(share, reference, limits)})


def _compared(share: float, reference: float, limits: Any) -> Fields:
    """Return what a sample was compared with, and how to say that; a bound on the sample itself says nothing."""
    name = str(limits.relative_to).removeprefix("column:")
    said = "ln V of its vocabulary" if name == "ln_vocab" else f"its {name}"
    times = "" if name == "value" else f" times {said}"
    over = times and f", {share:.6g}{times} ({reference:.6g})"
    return {"relative_to": limits.relative_to, "reference": reference, "times": times, "over": over}


SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": operator.itemgetter(-1),
    "lowest": min,
    "highest": max,
    "mean": lambda values: math.fsum(values) / len(values),
    "median": lambda values: middle(sorted(values)),
}


@figure("the last, lowest, highest, mean or median sample, as it is, or over that of its reference")
def summary(series: Series, *given: Any) -> FigureValue:
    """Return what the limits ask of a series, as it is or over the same of its reference."""
    *others, limits = given
    of = SUMMARIES[limits.statistic]
    value = of(series.value)
    reference = of(references(limits.relative_to, series, next(iter(others), None)))
    more = _compared(value / reference, reference, limits)
    return FigureValue(value / reference, {"statistic": str(limits.statistic), "value": value, **more})


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
    each=lambda limits: lambda step, value: abs(value - declared(step, limits)) / limits.peak,
)
def off_schedule(series: Series, limits: Any) -> FigureValue:
    """Return by which share of the peak a learning rate is off its schedule, at most, and where."""
    rows = ((step, value, declared(step, limits)) for step, value in zip(series.step, series.value, strict=True))
    found = ((abs(value - meant) / limits.peak, step, value, meant) for step, value, meant in rows)
    worst, step, value, meant = max(found, key=operator.itemgetter(0))
    more: Fields = {"step": step, "value": value, "meant": meant, "schedule": str(limits.schedule)}
    return FigureValue(worst, more)


@figure("rows since the rate is as at the end / rows, where it fell in each of the ten rows before; else 0")
def spent(series: Series, _limits: Any) -> FigureValue:
    """Return for which share of the rows a rate lies at the end of its fall, and since when; of steps down, 0."""
    values = series.value
    stays = len(list(itertools.takewhile(values[-1].__eq__, reversed(values))))
    fall = values[: len(values) - stays + 1][-FALL - 1 :]
    fell = len(fall) > FALL and all(before > after for before, after in itertools.pairwise(fall))
    found = stays if fell else 0
    return FigureValue(found / len(values), {"step": series.step[-found], "rate": values[-1], "stays": found})


def lasting(series: Series, limits: Any, each: Callable[..., float], most: Callable[..., Any]) -> FigureValue:
    """Return what `most` says of what `each` says of so many samples in a row, and the step of the last of them."""
    count = limits.in_a_row
    rows = ((each(series.value[at - count : at]), series.step[at - 1]) for at in range(count, len(series.value) + 1))
    value, step = most(rows, key=operator.itemgetter(0))
    return FigureValue(value, {"step": step, "in_a_row": count})


def row_by_row(each: Callable[..., float]) -> Callable[[Any], Push]:
    """Return what each so many samples in a row come to, as they end."""

    def begin(limits: Any) -> Push:
        row = deque[float](maxlen=limits.in_a_row)

        def of(_step: int, value: float) -> float | None:
            row.append(value)
            return each(row) if len(row) == limits.in_a_row else None

        return of

    return begin


@figure("largest number that `in_a_row` samples in a row all reach", each=row_by_row(min))
def reached(series: Series, limits: Any) -> FigureValue:
    """Return the largest number that so many samples in a row reach, and where."""
    return lasting(series, limits, min, max)


@figure("least number that `in_a_row` samples in a row all come down to", each=row_by_row(max), most=min)
def sunk(series: Series, limits: Any) -> FigureValue:
    """Return the least number that so many samples in a row come down to, and where."""
    return lasting(series, limits, max, min)


@figure(
    "largest |sample / its reference - 1|",
    each=lambda _limits: lambda _step, value, reference=1.0: abs(value / reference - 1),
)
def off(series: Series, *more: Any) -> FigureValue:
    """Return by which share a sample is off its reference, or 1, at most, and where."""
    compared = more[0].value if more[1:] else [1.0] * len(series.value)
    rows = zip(series.value, compared, series.step, strict=True)
    found = ((abs(value / reference - 1), value, reference, step) for value, reference, step in rows)
    worst, value, reference, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "reference": reference})


@figure("largest |sample - declared|", each=lambda limits: lambda _step, value: abs(value - limits.declared))
def undeclared(series: Series, limits: Any) -> FigureValue:
    """Return by how much a sample is off the number that was declared, at most, and where."""
    found = ((abs(value - limits.declared), value, step) for value, step in zip(series.value, series.step, strict=True))
    worst, value, step = max(found, key=operator.itemgetter(0))
    return FigureValue(worst, {"step": step, "value": value, "declared": limits.declared})
