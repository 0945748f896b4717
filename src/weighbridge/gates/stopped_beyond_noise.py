"""stopped-beyond-noise: did training stop because the metric was worse, or because evaluations differ?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.waiting import worse
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How long the run waited."""

    patience: Annotated[int, Doc("evaluations without a new best after which it stops", ge=1, le=1000)] = 2


KIND = Rule(
    name="stopped-beyond-noise", column="val_loss", figure=worse, code="stopped-on-noise", must=("above",), bound=2.0,
    doc="how far the wait lies above the best", levers=("the last down",), options=Options, min_samples=6, version=2,
    guards=OF_EVALUATIONS,
).kind()  # fmt: skip
