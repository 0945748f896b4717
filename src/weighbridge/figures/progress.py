"""Figures of a run's way through its corpus."""

from weighbridge.figures.figure import FigureValue, figure
from weighbridge.quantities.runs import CorpusProgress


@figure("tokens consumed / tokens of the corpus", unit="epochs")
def epochs(progress: CorpusProgress, _limits: object) -> FigureValue:
    """Return how often the corpus was passed over."""
    tokens, corpus = progress.tokens, progress.corpus_tokens
    assert tokens
    assert corpus
    return FigureValue(tokens / corpus, {"tokens": tokens, "corpus_tokens": corpus})
