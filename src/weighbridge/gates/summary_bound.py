"""summary-bound: does the last, lowest, highest, mean or median sample of a column stay within a bound?"""

from dataclasses import dataclass
from typing import Annotated

from weighbridge.core import Doc
from weighbridge.figures.references import SUMMARIES, summary
from weighbridge.gates.families.levers import beyond_the_bound
from weighbridge.gates.families.relative import AS_GIVEN, RelativeTo
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(RelativeTo):
    """What of the samples is compared, and with what."""

    statistic: Annotated[str, Doc("what of the samples, and of their reference", choices=tuple(SUMMARIES))] = "last"


KIND = Rule(
    name="summary-bound", column="loss", figure=summary, code="beyond", doc="the statistic, or its share of the same",
    must=("at most", "below", "at least", "above"), options=Options, relative=AS_GIVEN, min_samples=2, version=2,
    own_levers={"beyond the bound": beyond_the_bound}, guards=OF_EVALUATIONS,
).kind()  # fmt: skip
