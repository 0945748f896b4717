"""What is known of a run or a checkpoint as a whole, one row a fact; and of the machine that weighs."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Whether a CUDA device works for this process."""

    cuda: Annotated[bool, Doc("a product computed on a device was right", typical=True)]
    devices: Annotated[int, Doc("CUDA devices that torch sees", typical=1)]
    why: Annotated[str, Doc("why no device works, empty where one does", typical="")]
    hidden: Annotated[bool, Doc("the environment hides every device", typical=False)]


QUANTITIES = (rows("facts", Fact), record("host", Host))

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
