"""share-within: does a share of the samples of a column lie between two numbers?"""

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core import Doc
from weighbridge.figures.whole import within
from weighbridge.gates.families.levers import lift
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Between which numbers samples lie."""

    least: Annotated[float | None, Doc("the least that a sample may be", ge=-1e308, le=1e308)] = None
    most: Annotated[float | None, Doc("the most that a sample may be", ge=-1e308, le=1e308)] = None


KIND = Rule(
    name="share-within", column="gpu_util_pct", figure=within, code="too-few-within", must=("at least",), ge=1e-9, le=1,
    doc="the share of the samples between both", options=Options, min_samples=20, version=2,
    own_levers={"all out": lambda *moved: lift(None, None, -1 if moved[-1].most is None else 1)(*moved)},
    checks=lambda limits: [] if (limits.least, limits.most) != (None, None) else ["give least or most"],
).kind()  # fmt: skip
