"""token-budget: were as many tokens seen as so many parameters need?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.progress import tokens_per_parameter
from weighbridge.gates.families.rule import RecordRule
from weighbridge.quantities.runs import CorpusProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How large the model is."""

    parameters: Annotated[int, Doc("parameters; `where: {parameters: …}` holds them to the run", ge=1, le=10**15)]


KIND = RecordRule(
    name="token-budget", quantity="corpus_progress", record=CorpusProgress, place="tokens", figure=tokens_per_parameter,
    code="too-few", unknown="unknown-tokens", must=("at least",), bound=20.0, ge=0.01, levers=("tokens down",),
    doc="the number of tokens for each parameter", options=Options,
).kind()  # fmt: skip
