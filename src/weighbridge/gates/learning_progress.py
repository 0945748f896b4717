"""learning-progress: did the loss fall by a share of what it was at first?"""

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core import Doc
from weighbridge.figures.whole import drop
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which samples are compared."""

    samples_each: Annotated[int, Doc("samples at each end whose medians are compared", ge=1, le=10_000)] = 5


KIND = Rule(
    name="learning-progress", column="loss", figure=drop, code="no-progress", must=("at least",), bound=0.05, le=1,
    doc="the share by which the last median lies below the first", levers=("all up",), options=Options, min_samples=20,
).kind()  # fmt: skip
