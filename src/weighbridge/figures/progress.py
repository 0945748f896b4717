"""Figures of a run's way through its corpus."""

from weighbridge.figures.figure import Found, figure
from weighbridge.quantities.runs import CorpusProgress


@figure("tokens consumed / tokens of the corpus", unit="epochs")
def epochs(progress: CorpusProgress, _limits: object) -> Found:
    """Return how often the corpus was passed over."""
    return Found(
        (progress.tokens or 0) / (progress.corpus_tokens or 1),
        {"tokens": progress.tokens, "corpus_tokens": progress.corpus_tokens},
    )
