"""gradient-growth: does the level of the gradient norm not grow many times over within a window?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.levels import growth
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.rule import OfLevels, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(OfLevels):
    """What a level is compared with."""

    window: Annotated[int, Doc("samples from the level that one is compared with", ge=1, le=10_000)] = 40


KIND = Rule(
    name="gradient-growth", column="grad_norm", figure=growth, code="grew", must=("at most",), bound=20.0, ge=0,
    doc="a level over the greater of the first and the one a window before it", options=Window, min_samples=60,
    own_levers={"the last ones up": more_than("median_of")}, version=2,
    checks=lambda limits: (
        [] if limits.min_samples > limits.median_of + limits.window else ["min_samples must exceed median_of + window"]
    ),
).kind()  # fmt: skip
