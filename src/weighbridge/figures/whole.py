"""Figures of a whole series, its ends, extremes and spread, and of a whole run: how it went through its corpus.

And what is left of what a model loses at first.
"""

import bisect
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weighbridge.core import Series
from weighbridge.figures.figure import FigureValue, figure, middle, most_of, ratio
from weighbridge.figures.references import SUMMARIES
from weighbridge.quantities.runs import CorpusProgress

DUST = 1e-5  # of a clip limit, by which a clipped norm falls short of it


@figure("last sample")
def latest(series: Series, _limits: Any) -> FigureValue:
    """Return the last sample, and where it is."""
    return FigureValue(series.value[-1], {"step": series.step[-1]})


@figure("last sample - lowest sample")
def rise(series: Series, _limits: Any) -> FigureValue:
    """Return how far the last sample lies above the lowest."""
    best = min(series.value)
    return FigureValue(series.value[-1] - best, {"best": best, "at": series.step[series.value.index(best)]})


def ends(series: Series, limits: Any) -> tuple[float, float]:
    """Return the medians of the first and of the last `samples_each` samples."""
    count = limits.samples_each
    return middle(sorted(series.value[:count])), middle(sorted(series.value[-count:]))


@figure("(median of the first ones - median of the last ones) / |median of the first ones|")
def drop(series: Series, limits: Any) -> FigureValue:
    """Return by which share the median of the last samples lies below that of the first."""
    before, after = ends(series, limits)
    share = (before - after) / abs(before) if before else -math.inf
    return FigureValue(share, {"before": before, "after": after})


@figure(
    "|first sample / its reference - 1|",
    samples=lambda series, _limits: len(series.value[:1]),
    running=most_of(lambda _limits: lambda _step, value, reference: abs(value / reference - 1), lambda first, _: first),
)
def first_off(series: Series, known: Series, _limits: Any) -> FigureValue:
    """Return by which share the first sample is off its reference."""
    value, reference = series.value[0], known.value[0]
    return FigureValue(abs(value / reference - 1), {"step": series.step[0], "value": value, "reference": reference})


@figure("median of the last samples / the lesser of their reference and the median of the first ones")
def left(series: Series, known: Series, limits: Any) -> FigureValue:
    """Return what is left of the loss at first, which counts for no more than its reference."""
    before, after = ends(series, limits)
    low, more = min(before, known.value[0]), {"before": before, "after": after, "reference": known.value[0]}
    return FigureValue(after / low if low > 0 else math.inf, more)


@figure("population standard deviation / |mean|")
def spread(series: Series, _limits: Any) -> FigureValue:
    """Return the standard deviation over the mean."""
    mean = math.fsum(series.value) / len(series.value)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in series.value) / len(series.value))
    return FigureValue(ratio(deviation, abs(mean)), {"mean": mean})


@figure("samples of `clip` and more / samples")
def clipped(series: Series, limits: Any) -> FigureValue:
    """Return the share of the norms that were clipped, but for the dust that clipping leaves."""
    count = sum(value >= limits.clip * (1 - DUST) for value in series.value)
    return FigureValue(count / len(series.value), {"clipped": count, "clip": limits.clip})


@figure("samples from `least` to `most` / samples")
def within(series: Series, limits: Any) -> FigureValue:
    """Return the share of the samples that lie between two numbers, both included."""
    both = {"least": limits.least, "most": limits.most}
    given = {name: end for name, end in both.items() if end is not None}
    least, most = given.get("least", -math.inf), given.get("most", math.inf)
    count = sum(least <= value <= most for value in series.value)
    return FigureValue(count / len(series.value), {"count": count, **given})


STATISTICS: Mapping[str, Callable[[Sequence[float]], float]]
STATISTICS = {"median": SUMMARIES["median"], "mean": SUMMARIES["mean"], "max": max}


def between(series: Series, steps: tuple[float, float]) -> Series:
    """Return the samples of a window of steps, both ends included."""
    first, last = steps
    if all(map(operator.le, series.step, itertools.islice(series.step, 1, None))):  # far quicker, for a long log
        part = slice(bisect.bisect_left(series.step, first), bisect.bisect_right(series.step, last))
        return Series(series.step[part], series.value[part])
    kept = [at for at, step in enumerate(series.step) if first <= step <= last]
    return Series([series.step[at] for at in kept], [series.value[at] for at in kept])


def in_window(series: Series, limits: Any) -> Series:
    """Return the samples of the steps that the limits name; one of each step, where they say which."""
    window = between(series, limits.steps)
    if limits.repeated is None:
        return window
    pairs = list(zip(window.step, window.value, strict=True))
    rows = dict(pairs if limits.repeated == "last" else reversed(pairs))
    return Series(tuple(rows), tuple(rows.values()))


@figure(
    "median (mean of the two middle ones), mean or largest",
    unit="ms",
    samples=lambda series, limits: len(in_window(series, limits).value),
)
def statistic(series: Series, limits: Any) -> FigureValue:
    """Return the statistic of a window that the limits name, the slowest step in it, and the slowest outside it."""
    window = in_window(series, limits)
    slowest, step = max(zip(window.value, window.step, strict=True), key=operator.itemgetter(0))
    outer = (
        (time, step)
        for time, step in zip(series.value, series.step, strict=True)
        if not limits.steps[0] <= step <= limits.steps[1] and math.isfinite(time)
    )
    outside, outside_step = max(outer, key=operator.itemgetter(0), default=(None, None))
    return FigureValue(
        STATISTICS[limits.statistic](window.value),
        {
            "statistic": str(limits.statistic), "steps": list(limits.steps), "slowest_ms": slowest,
            "slowest_step": step, "outside": len(series.step) - len(window.step), "outside_slowest_ms": outside,
            "outside_slowest_step": outside_step,
        },
    )  # fmt: skip


@figure("tokens consumed / tokens of the corpus", unit="epochs")
def epochs(progress: CorpusProgress, _limits: object) -> FigureValue:
    """Return how often the corpus was passed over."""
    tokens, corpus = progress.tokens, progress.corpus_tokens
    assert tokens
    assert corpus
    return FigureValue(tokens / corpus, {"tokens": tokens, "corpus_tokens": corpus})


@figure("tokens consumed / parameters", unit="tokens", source="compute-optimal training: 20, Hoffmann et al. 2022")
def tokens_per_parameter(progress: CorpusProgress, limits: Any) -> FigureValue:
    """Return how many tokens were seen for each parameter."""
    tokens = progress.tokens
    assert tokens
    return FigureValue(tokens / limits.parameters, {"tokens": tokens, "parameters": limits.parameters})


@figure("|steps taken - steps asked for|", unit="steps")
def steps_off(progress: CorpusProgress, _limits: object) -> FigureValue:
    """Return by how many steps a run missed what it was asked for."""
    taken, asked = progress.taken_steps, progress.requested_steps
    assert taken
    assert asked
    return FigureValue(abs(taken - asked), {"taken": taken, "asked": asked})
