"""Figures of a run's way through its corpus."""

from typing import Any

from weighbridge.figures.figure import FigureValue, figure
from weighbridge.quantities.runs import CorpusProgress


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
