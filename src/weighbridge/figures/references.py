"""Figures of single samples against a reference: a first value, the one before, another column, another run, ln V."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from weighbridge.core.model import Series
from weighbridge.figures.figure import Found, figure


def ratio(value: float, reference: float) -> float:
    """Return a value as a share of its reference; infinite where that is zero."""
    return value / reference if reference else math.copysign(math.inf, value) if value else 1.0


def against(relative_to: str, series: Series, others: Series | None) -> Iterator[tuple[float, int, float]]:
    """Yield each sample as it is compared, with its step and its reference."""
    if relative_to == "value":
        yield from ((value, step, 1.0) for step, value in zip(series.step, series.value, strict=True))
        return
    if relative_to == "previous":
        pairs = itertools.pairwise(series.value)
        yield from (
            (ratio(now, before), step, before) for step, (before, now) in zip(series.step[1:], pairs, strict=True)
        )
        return
    references: Iterator[float]
    if relative_to == "first":
        references = itertools.repeat(series.value[0], len(series.value))
    elif others is None:  # of a run that does not log its vocabulary, nothing is compared
        return
    else:
        references = iter(others.value)
    for step, value, reference in zip(series.step, series.value, references, strict=True):
        yield ratio(value, reference), step, reference


def judged(series: Series, limits: Any) -> int:
    """Return how many samples are judged besides as many as may violate the bound, each with one beside it."""
    spared: int = 2 * limits.violations + (limits.relative_to in ("first", "previous"))
    return max(len(series.value) - spared, 0)


@figure("the worst sample, `violations` worse ones apart, as it is, or over its reference", samples=judged)
def extreme(series: Series, *more: Any) -> Found:
    """Return the worst sample that is left when as many as may violate the bound are taken away, and where it is."""
    *others, limits = more
    high = limits.at_most is not None or limits.below is not None
    found = sorted(against(limits.relative_to, series, next(iter(others), None)), reverse=high)
    value, step, reference = found[limits.violations]
    return Found(value, {"step": step, "reference": reference, "relative_to": limits.relative_to})
