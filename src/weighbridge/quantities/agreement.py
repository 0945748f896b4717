"""What is measured of several runs at once, two or the ranks of one; each is known by its place, from 0."""

from __future__ import annotations

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A step at which the runs are farther apart than at any before it."""

    step: Annotated[int, Doc("the step", unit="step", typical=0)]
    difference: Annotated[float, Doc("greatest less least number; infinite where one alone is NaN", typical=0.0)]
    least: Annotated[float, Doc("the least number", typical=0.0)]
    greatest: Annotated[float, Doc("the greatest, or NaN", typical=0.0)]
    least_in: Annotated[int, Doc("the run that has the least", typical=0)]
    greatest_in: Annotated[int, Doc("the run that has the greatest", typical=1)]
    tensor: Annotated[str, Doc("of rows of tensors: the tensor, at this step, that is farthest apart", typical="")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAgreement:
    """One column over the steps of all runs; of a step that was logged twice the last row counts."""

    column: Annotated[str, Doc("standard name; layers: and a field for what is logged of tensors", typical="loss")]
    runs: Annotated[int, Doc("runs that log it", typical=2)]
    whole: Annotated[bool, Doc("all of its numbers are whole", typical=False)]
    steps: Annotated[int, Doc("steps at which every run has a number", unit="steps", typical=60)]
    changes: Annotated[int, Doc("fewest changes from one step to the next, of all runs", unit="steps", typical=59)]
    one_sided: Annotated[int, Doc("steps at which some runs have a number and others none", unit="steps", typical=0)]
    first_one_sided: Annotated[int | None, Doc("the least of them", unit="step")]
    unequal: Annotated[int, Doc("steps at which not all runs have the same number", unit="steps", typical=0)]
    shared: Annotated[int, Doc("steps at which two runs have the same number", unit="steps", typical=60)]
    first_shared: Annotated[int | None, Doc("the least of them", unit="step")]
    parted: Annotated[
        tuple[Parting, ...],
        Doc("where they first differ, each step at which that has doubled, and the farthest", typical=()),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactAgreement:
    """One fact that run.json states, by every run."""

    fact: Annotated[str, Doc("its key, those of sections with their section", typical="seeds.torch")]
    values: Annotated[
        tuple[object, ...], Doc("what each run states, lists as JSON; null where it does not", typical=(0, 0))
    ]


QUANTITIES = (
    rows("column_agreement", ColumnAgreement, key="column"),
    rows("fact_agreement", FactAgreement, key="fact"),
)
