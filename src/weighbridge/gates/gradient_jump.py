"""gradient-jump: is the gradient norm never many times the median of the norms before it?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.trailing import jump
from weighbridge.gates.families.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a norm is compared with."""

    window: Annotated[int, Doc("samples before a sample that it is compared with", ge=5, le=10_000)] = 30
    warmup_steps: Annotated[int, Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")] = 0
    or_first: Annotated[bool, Doc("compare with the median of the first window, where that is greater")] = False


KIND = Rule(
    name="gradient-jump", version=3, column="grad_norm", figure=jump, code="jumped", must=("at most",), bound=10.0,
    window=False, doc="a sample over the median of the window before it", levers=("the last up",), options=Options,
    min_samples=20, reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples),
).kind()  # fmt: skip
