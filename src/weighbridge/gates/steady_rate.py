"""steady-rate: does a rate stay near its mean, from step to step?"""

from weighbridge.figures.whole import spread
from weighbridge.gates.families.rule import Rule

KIND = Rule(
    name="steady-rate", column="tokens_per_sec", figure=spread, code="unsteady", must=("at most",), bound=0.2, ge=0,
    version=2,
    doc="the standard deviation over the mean", levers=("the last up", "the first up", "a zigzag"), min_samples=20,
).kind()  # fmt: skip
