"""series-bound: does every sample of a column stay within a bound, as it is or relative to a reference?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.references import extreme
from weighbridge.gates.families.levers import violations
from weighbridge.gates.families.relative import AS_GIVEN, RelativeTo
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RelativeTo):
    """What a sample is compared with, and how many may lie beyond the bound."""

    violations: Annotated[int, Doc("samples that may lie beyond the bound", ge=0, le=10**9, tight="down")] = 0


KIND = Rule(
    name="series-bound", column="loss", figure=extreme, code="beyond", doc="each sample, or its share of the reference",
    must=("at most", "below", "at least", "above"), options=Options, relative=AS_GIVEN, min_samples=2, version=2,
    own_levers={"at the end": violations(at_the_end=True), "at the beginning": violations(at_the_end=False)},
    guards=OF_EVALUATIONS,
    reach=lambda limits: (0, limits.min_samples + 2 * limits.violations + 1),
).kind()  # fmt: skip
