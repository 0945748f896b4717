"""new-kind: does a metric end near the lowest that it came to?

A whole rule, to be replaced: a figure of `weighbridge.figures`, and the bound on it.
"""

from weighbridge.figures.whole import rise
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import EVALUATED, FINITE, RISING

KIND = Rule(
    name="new-kind",
    column="val_loss",
    figure=rise,
    code="too-high",
    must=("at most",),
    bound=0.05,
    doc="how far the last sample lies above the lowest",
    levers=("the last up",),
    guards=(EVALUATED, RISING, FINITE),
    min_samples=3,
).kind()
