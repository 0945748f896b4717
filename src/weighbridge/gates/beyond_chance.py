"""beyond-chance: is the loss well below that of a model that knows nothing?"""

from weighbridge.core import dataclass
from weighbridge.figures.beginning import left
from weighbridge.gates.families.relative import WITH_VOCABULARY, ToVocabulary
from weighbridge.gates.families.rule import OfEnds, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends(ToVocabulary, OfEnds):
    """Which samples are compared."""


KIND = Rule(
    name="beyond-chance", column="loss", figure=left, code="not-learned", must=("at most",), bound=0.9, min_samples=20,
    doc="the share of ln V, or of a lower first median, that is left", levers=("all up",), options=Ends, version=2,
    relative=WITH_VOCABULARY,
).kind()  # fmt: skip
