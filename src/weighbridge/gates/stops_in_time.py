"""stops-in-time: did training end no more evaluations after its best than it may wait?"""

from weighbridge.figures.waiting import waited
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS

KIND = Rule(
    name="stops-in-time", column="val_loss", figure=waited, code="went-on", must=("at most",), bound=2, ge=1, le=10**6,
    doc="the number of evaluations after the best", own_levers={"the last ones up": more_than("at_most_evaluations")},
    min_samples=4, guards=OF_EVALUATIONS, version=2,
    checks=lambda limits: (
        [] if limits.min_samples > limits.at_most_evaluations + 1 else ["min_samples must exceed the patience by two"]
    ),
).kind()  # fmt: skip
