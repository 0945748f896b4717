"""validation-parting: does an evaluation not rise while the training loss falls?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.parting import parting
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.relative import WITH_LOSS, ToLoss
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ToLoss):
    """What is compared with the best."""

    median_of: Annotated[int, Doc("evaluations at the end whose median is compared", ge=1, le=1000)] = 3


KIND = Rule(
    name="validation-parting", version=3, column="val_loss", figure=parting, code="parted", must=("at most",),
    bound=0.1, ge=0, doc="the share of its best by which an evaluation rose", options=Options, relative=WITH_LOSS,
    min_samples=5, own_levers={"the last ones up": more_than("median_of")}, guards=OF_EVALUATIONS,
    checks=lambda limits: [] if limits.min_samples > limits.median_of + 1 else ["min_samples must be median_of + 2"],
).kind()  # fmt: skip
