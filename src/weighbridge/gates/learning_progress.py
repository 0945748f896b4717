"""learning-progress: did the loss fall by a share of what it was at first?"""

from weighbridge.figures.whole import drop
from weighbridge.gates.families.rule import OfEnds, Rule

KIND = Rule(
    name="learning-progress", column="loss", figure=drop, code="no-progress", must=("at least",), bound=0.05, le=1,
    version=2,
    doc="the share by which the last median lies below the first", levers=("all up",), options=OfEnds, min_samples=20,
).kind()  # fmt: skip
