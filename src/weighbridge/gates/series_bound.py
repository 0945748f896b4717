"""series-bound: does every sample of a column stay within a bound, as it is or relative to a reference?"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.core import Doc
from weighbridge.figures.references import extreme
from weighbridge.gates.families.rule import Lever, Rule
from weighbridge.gates.families.run_columns import EVALUATED, FINITE, RISING


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a sample is compared with, and how many may lie beyond the bound."""

    relative_to: Annotated[
        str,
        Doc(
            "value, first, previous, baseline, ln_vocab or column:NAME",
            pattern=r"value|first|previous|baseline|ln_vocab|column:[^\n]+",
        ),
    ] = "value"
    violations: Annotated[int, Doc("samples that may lie beyond the bound", ge=0, le=10**9, tight="down")] = 0


def _beyond(*, at_the_end: bool) -> Lever:
    def move(_steps: array[int], values: array[float], amount: float, limits: Any) -> None:
        """Move one sample more than may lie beyond the bound, each with one beside it that stays."""
        up = 1 if limits.at_most is not None or limits.below is not None else -1
        from_the_end = at_the_end or len(values) < 2  # a window of one sample begins where it ends
        for turn in range(limits.violations + 1):
            values[-1 - 2 * turn if from_the_end else 1 + 2 * turn] += up * amount

    return move


KIND = Rule(
    name="series-bound", column="loss", figure=extreme, code="beyond", doc="each sample, or its share of the reference",
    must=("at most", "below", "at least", "above"), options=Options, relative=True, min_samples=2,
    own_levers={"at the end": _beyond(at_the_end=True), "at the beginning": _beyond(at_the_end=False)},
    guards=(EVALUATED, RISING, FINITE),
    reach=lambda limits: (0, limits.min_samples + 2 * limits.violations + 1),
).kind()  # fmt: skip
