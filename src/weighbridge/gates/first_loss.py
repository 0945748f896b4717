"""first-loss: does a fresh start lose what a model loses that knows nothing?"""

from weighbridge.figures.beginning import first_off
from weighbridge.gates.families.relative import WITH_VOCABULARY, ToVocabulary
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS

KIND = Rule(
    name="first-loss", column="loss", figure=first_off, code="off", must=("at most",), bound=0.1, ge=0, min_samples=1,
    doc="the share by which the first sample is off ln V", levers=("the first up", "the first down"), looked_at=(0, 1),
    options=ToVocabulary, relative=WITH_VOCABULARY, guards=OF_EVALUATIONS, version=2,
).kind()  # fmt: skip
