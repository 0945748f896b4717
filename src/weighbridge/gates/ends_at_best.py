"""ends-at-best: does a metric end near the best that it came to?"""

from weighbridge.figures.whole import rise
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS

KIND = Rule(
    name="ends-at-best", column="val_loss", figure=rise, code="rose", must=("at most",), bound=0.05, min_samples=3,
    doc="how far the last sample lies above the lowest", levers=("the last up",), guards=OF_EVALUATIONS, version=3,
).kind()  # fmt: skip
