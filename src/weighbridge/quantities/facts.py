"""What is known of a run or a checkpoint as a whole, of several runs at once, and of the machine that weighs.

Of several runs, two or the ranks of one, each is known by its place, from 0.
"""

from typing import Annotated

from weighbridge.core import Basis, Doc, dataclass
from weighbridge.quantities.base import record, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One fact with its basis and with what contradicts it; a fact that was not found has no row."""

    name: Annotated[str, Doc("name of the fact", typical="tokens_per_step")]
    value: Annotated[object, Doc("what was found, any JSON; null where sources contradict each other", typical=512)]
    basis: Annotated[Basis, Doc("how the value came about", typical=Basis.MEASURED)]
    contradicted_by: Annotated[tuple[str, ...], Doc("what other sources say that cannot be true as well", typical=())]


def fact_of(name: str, value: object, basis: Basis, contradicted_by: tuple[str, ...] = ()) -> Fact:
    """Return a fact, which is seldom contradicted."""
    return Fact(name=name, value=value, basis=basis, contradicted_by=contradicted_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Whether a CUDA device works for this process."""

    cuda: Annotated[bool, Doc("a product computed on a device was right", typical=True)]
    devices: Annotated[int, Doc("CUDA devices that torch sees", typical=1)]
    why: Annotated[str, Doc("why no device works, empty where one does", typical="")]
    hidden: Annotated[bool, Doc("the environment hides every device", typical=False)]


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
    rows("facts", Fact),
    rows("column_agreement", ColumnAgreement, key="column"),
    rows("fact_agreement", FactAgreement, key="fact"),
    record("host", Host),
)

# Facts of a run that hold a gate back unless its `where:` accepts them by name.
ENDED = "ended"
ENDS = ("ended", "early", "raised", "killed", "going", "unknown")  # what that fact may be
COUNTED = ("steps", "last_step")  # a contract that says how far an unfinished log reaches knows what it judges
AS_LOGGED = "as_logged"  # a gate that names it promises something of the rows that there are, wherever the run ended
HAS = "has:"  # before the name of a column or of what a run states: whether it has that
RECORDER_FAILED, ALL = "recorder_failed", "all"  # the columns that failures of the recorder make unreliable
OF_COLUMNS = ("no_header",)  # what the reader noted, and which gates stand on it: of every column,
OF_STEPS = ("steps_are_row_numbers",)  # of what stands at a step,
OF_WHOLE = ("torn_last_line", "torn_last_event", "torn_last_record_at")  # and of the whole run
# What a run is looked through for, whatever a gate asks; of all else that it states, what a gate names.
OF_EVERY_RUN = frozenset((
    *("seq_len", "batch_size", "corpus_tokens", "vocab", "parameters", "requested_device", "resolved_device", "pid"),
    *("host", "commit", "rows", "requested_steps", ENDED, "ended_by", "tokens_per_step", *COUNTED, RECORDER_FAILED),
    *(*OF_COLUMNS, *OF_STEPS, *OF_WHOLE, "mapped_by_place", "unterminated", "banner_lines", "rows_at"),
    *("steps_are", "predictions_left_out", "rows_not_by_that", "attempts", "attempts_ended"),
    *("changed_between_attempts", "first_step"),
))  # fmt: skip
ACCEPTED = (ENDED, *COUNTED, AS_LOGGED, RECORDER_FAILED, *OF_COLUMNS, *OF_STEPS, *OF_WHOLE)
