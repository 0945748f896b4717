"""loss-spike: does a logged column stay near what it was just before, step by step?

A spike also lies above the median before it by a share of that: else a column that hardly moves would spike at every
rounding. A rise of three units of the last decimal that is printed is rounding, too. Only what rises is a spike.
"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.trailing import spikes
from weighbridge.gates.families.levers import more_than, out_of_noise
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What counts as a spike."""

    k: Annotated[float, Doc("robust standard deviations above the median before it", gt=0, le=1000, tight="down")] = 8.0
    min_rise: Annotated[float, Doc("share of that median that it must rise by, too", ge=0, le=10, tight="down")] = 0.05
    window: Annotated[int, Doc("samples before a sample that it is compared with", ge=5, le=10_000)] = 50
    warmup_steps: Annotated[int, Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")] = 100
    or_first: Annotated[bool, Doc("the share is of the first window's median, where that is greater")] = False


KIND = Rule(
    name="loss-spike", version=5, column="loss", figure=spikes, code="spikes", must=("at most",), bound=0, ge=0,
    le=10**9, doc="the number of spikes", options=Options, window=False,
    own_levers={"at the end": more_than("at_most_spikes"), "out of noise": out_of_noise("at_most_spikes")},
    reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples),
).kind()  # fmt: skip
