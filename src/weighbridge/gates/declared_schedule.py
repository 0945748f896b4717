"""declared-schedule: does the learning rate follow the schedule that was declared?"""

import enum
from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.schedule import off_schedule
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import FINITE, RISING, genuine


class Schedule(enum.StrEnum):
    """How a learning rate goes on after warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The schedule: a linear warm-up from 0 to the peak, and then down, or on."""

    schedule: Annotated[Schedule, Doc("how it falls after warm-up")]
    peak: Annotated[float, Doc("learning rate after warm-up", gt=0, le=1e6)]
    total_steps: Annotated[int, Doc("step at which it has come down", ge=1, le=10**12)]
    warmup_steps: Annotated[int, Doc("steps of warm-up", ge=0, le=10**12)] = 0
    last: Annotated[float, Doc("learning rate that it comes down to", ge=0, le=1e6)] = 0.0
    ahead: Annotated[
        int, Doc("steps that the schedule is ahead of the log; a skipped update sets it back", ge=-(10**6), le=10**6)
    ] = 0


KIND = Rule(
    name="declared-schedule", column="lr", figure=off_schedule, code="off-schedule", must=("at most",), bound=1e-6,
    ge=0, doc="the share of the peak by which a sample is off", levers=("the last up", "the first down"),
    options=Options, min_samples=2, guards=(genuine(), RISING, FINITE),
    checks=lambda limits: [] if limits.total_steps > limits.warmup_steps else ["total_steps must exceed warmup_steps"],
).kind()  # fmt: skip
