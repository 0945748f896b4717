"""diverging: does the level of a loss stay near the best that it came to?"""

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core import Doc
from weighbridge.figures.levels import lost
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a level is."""

    median_of: Annotated[int, Doc("samples in a row whose median is a level", ge=1, le=10_000)] = 10


KIND = Rule(
    name="diverging", column="loss", figure=lost, code="diverged", must=("at most",), bound=0.25, ge=0, min_samples=20,
    doc="the share of the first level that a level lies above the best before it", options=Options,
    own_levers={"the last ones up": more_than("median_of")},
    checks=lambda limits: [] if limits.min_samples > limits.median_of else ["min_samples must exceed median_of"],
).kind()  # fmt: skip
