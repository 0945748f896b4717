"""Figures of the evaluations that a run waited for a better one."""

import itertools
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, figure, middle, ratio

DEVIATION = 1.4826 / 2**0.5  # of differences, as the deviation of one value


@figure("(best of the wait - best before it) / (1.4826 / √2 × MAD of the differences before it)", unit="deviations")
def worse(series: Series, limits: Any) -> FigureValue:
    """Return how many deviations of the noise the wait's best lies above the best before it."""
    before, wait = series.value[: -limits.patience], series.value[-limits.patience :]
    moves = [after - now for now, after in itertools.pairwise(before)]
    usual = middle(sorted(moves))
    noise = DEVIATION * middle(sorted(abs(move - usual) for move in moves))
    found = min(wait) - min(before)
    return FigureValue(ratio(found, noise), {"best": min(before), "worse": found, "noise": noise})


@figure("samples after the lowest", unit="evaluations")
def waited(series: Series, _limits: Any) -> FigureValue:
    """Return how many samples came after the lowest."""
    best = list(series.value).index(min(series.value))
    return FigureValue(len(series.value) - 1 - best, {"best": series.value[best], "at": series.step[best]})
