"""row-gaps: does a row follow the one before it in time? While a run goes on, the wait for the next row counts, too."""

from weighbridge.figures.waiting import silence
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import FINITE, RISING, genuine

KIND = Rule(
    name="row-gaps", column="monotonic_s", figure=silence, code="silent", must=("at most",), gt=0, ge=None, le=10**7,
    doc="the seconds from a row to the next", levers=("the last up",), min_samples=1,
    guards=(genuine(), RISING, FINITE),
).kind()  # fmt: skip
