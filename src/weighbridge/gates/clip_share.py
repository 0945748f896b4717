"""clip-share: are no more than a share of the steps clipped?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.whole import clipped
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a norm is clipped to."""

    clip: Annotated[float, Doc("norm from which gradients are clipped", gt=0, le=1e30)]


KIND = Rule(
    name="clip-share", column="grad_norm", figure=clipped, code="clipped", must=("at most",), bound=0.5, ge=0, le=1,
    doc="the share of the norms at the limit and beyond", levers=("all up",), options=Options, version=2,
).kind()  # fmt: skip
