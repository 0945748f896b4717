"""diverging: does the level of a loss stay near the best that it came to?"""

from weighbridge.figures.levels import lost
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.rule import OfLevels, Rule

KIND = Rule(
    name="diverging", version=3, column="loss", figure=lost, code="diverged", must=("at most",), bound=0.25, ge=0,
    min_samples=20, doc="the share of the loss at first by which a level lies above the best before it",
    options=OfLevels,
    own_levers={"the last ones up": more_than("median_of")},
    checks=lambda limits: [] if limits.min_samples > limits.median_of else ["min_samples must exceed median_of"],
).kind()  # fmt: skip
