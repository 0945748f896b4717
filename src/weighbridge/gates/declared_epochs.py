"""declared-epochs: was the corpus passed over no more often than was declared?"""

from weighbridge.figures.progress import epochs
from weighbridge.gates.families.rule import RecordRule
from weighbridge.quantities.runs import CorpusProgress

KIND = RecordRule(
    name="declared-epochs", quantity="corpus_progress", record=CorpusProgress, place="tokens", figure=epochs,
    code="too-often", unknown="unknown-corpus", must=("at most",), ge=0, doc="the number of passes over the corpus",
    levers=("tokens up", "corpus_tokens down"),
).kind()  # fmt: skip
