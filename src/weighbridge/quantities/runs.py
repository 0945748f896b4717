"""What is measured of the log of a run: its columns, its way through the corpus, and the device that it was on."""

import enum
import itertools
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import Form, Quantity, later, record, rows

Step: TypeAlias = int | float | None
ByDevice: TypeAlias = Mapping[str, int] | None
DUST = "distance of its least sample from its greatest, where they are one number but for that"
# What the recorder sees inside a model, with diagnostics=Diagnostics().
INSIDE = (
    *("activation_std_ratio", "activation_absmax", "activation_outlier", "activations_not_finite"),
    *("dead_neurons_share", "neuron_kurtosis_change", "least_head_entropy", "head_entropy", "head_entropy_std"),
    *("redundant_heads_share", "dead_heads_share", "head_content", "largest_logit", "embedding_cka"),
    *("spectral_norm", "slice_ppl", "logits_gain", "loss_float64", "class_tax", "gradient_error"),
)
ASKED_FOR = {"class_tax": "classes=…", "gradient_error": "gradients=True"}  # of them, by what Diagnostics is given
OF_LABELS = ("slice_ppl", "logits_gain", "loss_float64")  # of them, those of the model's own loss
ANNOUNCED = "steps that the end of the run tells of, null where it tells none"
WHOLE_PASSES = (
    "of corpus_position alone: each row has the tokens of its step, each but the first a wrap event at its step"
)
BY = "what tells where epochs begin: corpus_position, tokens, or sampled where none do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """How closely a column follows from another one."""

    kind: Annotated[str, Doc("product, quotient or linear")]
    partner: Annotated[str, Doc("the other column")]
    earlier: Annotated[bool, Doc("the other column is logged before this one")]
    over: Annotated[int, Doc("rows over which the relation was measured", unit="rows")]
    deviation: Annotated[
        float, Doc("(max - min) / (|max| + |min|) of the product or quotient; largest residual over the line's range")
    ]
    constant: Annotated[float, Doc("middle of the product or quotient, slope of the line")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """What is out of order in the steps, and where first."""

    steps: Annotated[int, Doc("different steps")]
    first_step: Annotated[Step, Doc("least step", unit="step")]
    last_step: Annotated[Step, Doc("greatest step", unit="step")]
    fractional: Annotated[int, Doc("steps that are no whole number", unit="rows")]
    repeated_steps: Annotated[int, Doc("steps that are logged more than once")]
    first_repeated_step: Annotated[Step, Doc("the least of them", unit="step")]
    backward_steps: Annotated[int, Doc("falls of the step that are no resumption", unit="rows")]
    first_backward_step: Annotated[Step, Doc("step of the first of them", unit="step")]
    largest_gap: Annotated[int | float, Doc("largest distance from one step to the next", unit="steps")]
    largest_gap_after_step: Annotated[Step, Doc("step after which it lies", unit="step")]
    resumptions: Annotated[int, Doc("other falls: behind the first step, and on to where the log had got before")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateAgreement:
    """How a logged rate agrees with the logged tokens and times."""

    rows: Annotated[int, Doc("rows that have tokens_per_sec, wall_ms and tokens", unit="rows")]
    over_tokens: Annotated[float, Doc("median of tokens_per_sec × wall_ms / 1000 / tokens over them")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A column that had one number over some samples in a row; distances are in units of its printed resolution there.

    Numbers count as one that lie within 3 millionths of each other; the unit is then no less than that.
    With few printed digits numbers repeat by chance, and all the more where they move by few units.
    """

    first_step: Annotated[Step, Doc("step of its first sample", unit="step")]
    last_step: Annotated[Step, Doc("step of its last sample", unit="step")]
    length: Annotated[int, Doc("equal samples in a row", unit="rows")]
    value: Annotated[float, Doc("the number")]
    jump: Annotated[float, Doc("distance from the sample before it, else to the one after it")]
    moves: Annotated[float, Doc("median distance between neighbours next to it, on its livelier side")]
    changes: Annotated[
        float, Doc("the same over neighbours that differ, its own ends among them; its jump where these are too few")
    ]
    dust: Annotated[float, Doc(DUST)] = later(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The number, not 0, that most samples of a column come near, in a row or not; near is as for a stretch."""

    value: Annotated[float, Doc("the least of them")]
    times: Annotated[int, Doc("samples that come near it", unit="rows")]
    changes: Annotated[float, Doc("median distance of the other samples that come after it, as of a stretch")]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickSteps:
    """The times below the widest gap in a column of times, where these hold three in a row, and those above 16 or half.

    On a shared machine steps are slower by any factor and no gap is left; a step that does no work leaves one.
    """

    first_step: Annotated[Step, Doc("step of the first of the longest run of quick ones", unit="step")]
    last_step: Annotated[Step, Doc("step of the last of them", unit="step")]
    length: Annotated[int, Doc("quick steps in that run", unit="steps")]
    below_ms: Annotated[float, Doc("the greatest time below the gap", unit="ms")]
    above_ms: Annotated[float, Doc("the least time above it", unit="ms")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepColumn:
    """Raw statistics of one numeric column; √n is of its finite numbers."""

    column: Annotated[str, Doc("standard name", typical="loss")]
    logged_as: Annotated[str, Doc("name in the log", typical="loss")]
    rows: Annotated[int, Doc("rows of the log", unit="rows", typical=120)]
    samples: Annotated[int, Doc("cells that hold a number", unit="rows", typical=120)]
    missing: Annotated[int, Doc("empty cells", unit="rows", typical=0)]
    unreadable: Annotated[int, Doc("cells that hold something else", unit="rows", typical=0)]
    nan: Annotated[int, Doc("samples that are NaN", unit="rows", typical=0)]
    infinite: Annotated[int, Doc("samples that are infinite", unit="rows", typical=0)]
    first_nan_step: Annotated[Step, Doc("step of the first NaN", unit="step")]
    first_non_finite_step: Annotated[Step, Doc("step of the first NaN or infinity", unit="step")]
    first_unreadable_step: Annotated[Step, Doc("step of the first unreadable cell", unit="step")]
    steps_missing: Annotated[int, Doc("steps of which no row holds a number", unit="steps", typical=0)]
    first_missing_step: Annotated[Step, Doc("the least of them", unit="step")]
    finite: Annotated[int, Doc("samples that are finite", unit="rows", typical=120)]
    distinct: Annotated[int, Doc("different finite numbers", typical=120)]
    min: Annotated[float | None, Doc("least finite number", typical=1.0)]
    max: Annotated[float | None, Doc("greatest finite number", typical=2.0)]
    relative_spread: Annotated[
        float, Doc("(max - min) / (|max| + |min|): 0 for a constant, 1 where the sign changes", typical=0.33)
    ]
    resolution: Annotated[float, Doc("unit of the last decimal that its numbers need, at most 1", typical=1e-6)]
    commonest: Annotated[int, Doc("samples that hold its most frequent number", unit="rows", typical=1)]
    negative: Annotated[int, Doc("samples below 0", unit="rows", typical=0)]
    zeros: Annotated[int, Doc("samples that are 0", unit="rows", typical=0)]
    first_not_positive_step: Annotated[Step, Doc("step of the first of both", unit="step")]
    stretches: Annotated[tuple[Stretch, ...], Doc("least likely runs of equal samples, at most 8", typical=())]
    quick: Annotated[QuickSteps | None, Doc("of times alone: steps far quicker than the others")]
    flops_per_s: Annotated[
        float | None, Doc("of wall_ms alone: 6 × parameters × tokens / its median, where all are known", unit="1/s")
    ]
    range_over_std: Annotated[float, Doc("(max - min) / population standard deviation", typical=5.1)]
    uniform_ks_root_n: Annotated[
        float, Doc("Kolmogorov–Smirnov distance to the uniform law on [min, max] × √n", typical=3.2)
    ]
    lag1_root_n: Annotated[float, Doc("|lag-1 autocorrelation| × √n", typical=1.1)]
    rank_correlation_root_n: Annotated[
        float, Doc("largest |rank correlation| × √n with another column, ties at their mean rank", typical=1.4)
    ]
    correlated_with: Annotated[str, Doc("that other column, empty where there is none", typical="wall_ms")]
    relations: Annotated[tuple[Relation, ...], Doc("how closely it follows from other columns", typical=())]
    order: Annotated[StepOrder | None, Doc("of the step column alone: what is out of order")]
    rate: Annotated[RateAgreement | None, Doc("of tokens_per_sec alone, where tokens and wall_ms are logged too")]
    interval: Annotated[float | None, Doc("median distance of the steps that hold a number", unit="steps", typical=1)]
    largest_hole: Annotated[
        int | float, Doc("most steps from one number to the next, or to an end of the log", unit="steps", typical=1)
    ]
    hole_after_step: Annotated[Step, Doc("step after which it lies", unit="step", typical=0)]
    logged_twice: Annotated[int, Doc("steps with several numbers, resumptions apart", unit="steps", typical=0)]
    first_logged_twice: Annotated[Step, Doc("the least of them", unit="step")]
    nan_filtered: Annotated[bool, Doc("the logger leaves out what is not finite", typical=False)]
    recurrence: Annotated[Recurrence | None, Doc("the number that it comes back to most often")] = later(None)
    whole_passes: Annotated[bool, Doc(WHOLE_PASSES, typical=False)] = later(False)
    begins_not_finite: Annotated[int, Doc("NaN and infinities before the first finite sample", unit="rows")] = later(0)
    ends_not_finite: Annotated[int, Doc("those behind the last; all where none is finite", unit="rows")] = later(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCourse:
    """One column as a picture shows it: neighbouring rows together, at most 800 times, numbers to six digits.

    No gate reads it. What is not finite is counted, as are exact zeros and cells without a number; an empty list of
    counts says that there is none in the whole column.
    """

    column: Annotated[str, Doc("standard name; of several ranks behind that of its rank", typical="loss")]
    rows_each: Annotated[int, Doc("rows that stand together, of the last ones perhaps fewer", unit="rows", typical=1)]
    rows: Annotated[int, Doc("rows of the log", unit="rows", typical=3)]
    step: Annotated[tuple[Step, ...], Doc("step of the first row of each", unit="step", typical=(0, 1, 2))]
    least: Annotated[tuple[float | None, ...], Doc("least finite number, null without one", typical=(3.0, 2.0, 1.0))]
    median: Annotated[tuple[float | None, ...], Doc("lower median; empty where rows stand alone", typical=())]
    greatest: Annotated[tuple[float | None, ...], Doc("greatest number; empty where rows stand alone", typical=())]
    missing: Annotated[tuple[int, ...], Doc("cells without a number", unit="rows", typical=())]
    nan: Annotated[tuple[int, ...], Doc("numbers that are not finite", unit="rows", typical=())]
    zeros: Annotated[tuple[int, ...], Doc("numbers that are exactly 0", unit="rows", typical=())]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualLosses:
    """A run of bit-equal losses, with what else stood still in it."""

    first_step: Annotated[int | None, Doc("step of its first row", unit="step")]
    last_step: Annotated[int | None, Doc("step of its last row", unit="step")]
    length: Annotated[int, Doc("losses in a row", unit="rows")]
    loss: Annotated[float, Doc("the loss")]
    grad_norm: Annotated[float | None, Doc("gradient norm of its first row, null where none is logged")]
    grad_norm_equal: Annotated[bool | None, Doc("the gradient norm stood still too")]
    last_row: Annotated[bool, Doc("it lasts to the end of the log")]
    jump: Annotated[float, Doc("distance from the loss before it, in units of the printed resolution", typical=1000.0)]
    changes: Annotated[float, Doc("median distance of neighbours that differ there, in the same", typical=1000.0)]
    dust: Annotated[float, Doc(DUST)] = later(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Where a column ends that tells how much of the corpus was seen."""

    column: Annotated[str, Doc("coverage or corpus_position")]
    full: Annotated[float | None, Doc("what it holds when all was seen, null where that is unknown")]
    last: Annotated[float | None, Doc("its last number")]
    max: Annotated[float | None, Doc("its greatest number")]
    still: Annotated[int, Doc("numbers at its end that are equal", unit="rows")]
    since_step: Annotated[int | None, Doc("step of the first of those", unit="step")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusProgress:
    """How a run went through its corpus."""

    corpus_tokens: Annotated[int | None, Doc("length of the corpus as reported", unit="tokens", typical=20480)]
    rows: Annotated[int, Doc("rows of the log", unit="rows", typical=60)]
    steps: Annotated[int, Doc("different steps", typical=60)]
    largest_gap: Annotated[int | float, Doc("largest distance from one step to the next", unit="steps", typical=1)]
    tokens: Annotated[float | None, Doc("tokens consumed", unit="tokens", typical=30720.0)]
    tokens_from: Annotated[str, Doc("what tells them: a column, a running total, or rate × time", typical="tokens")]
    tokens_rows: Annotated[int, Doc("rows that tell them", unit="rows", typical=60)]
    tokens_per_step: Annotated[int | None, Doc("tokens of one step", unit="tokens", typical=512)]
    tokens_expected: Annotated[int | None, Doc("steps × tokens of one step", unit="tokens", typical=30720)]
    equal_losses: Annotated[
        tuple[EqualLosses, ...], Doc("longest runs of two and more bit-equal losses, at most 8", typical=())
    ]
    losses: Annotated[int, Doc("losses that are finite", unit="rows", typical=60)]
    steps_without_loss: Annotated[int, Doc("steps of which no row holds a finite loss", unit="steps", typical=0)]
    first_without_loss: Annotated[Step, Doc("the least of them", unit="step")]
    speed_from: Annotated[str, Doc("the column that tells the speed: cpu_ms where it is whole", typical="wall_ms")]
    steps_without_time: Annotated[int, Doc("steps of which no row holds a time", unit="steps", typical=0)]
    first_without_time: Annotated[Step, Doc("the least of them", unit="step")]
    quick: Annotated[QuickSteps | None, Doc("steps far quicker than the others")]
    failures: Annotated[int, Doc("failures of the recorder that cost a column of these", unit="events", typical=0)]
    announced_steps: Annotated[int | None, Doc(ANNOUNCED, unit="steps", typical=60)]
    coverage: Annotated[tuple[Coverage, ...], Doc("where coverage and position end", typical=())]
    requested_steps: Annotated[int | None, Doc("steps that were asked for", unit="steps", typical=60)]
    taken_steps: Annotated[int | None, Doc("steps that were taken, null while it goes on", unit="steps", typical=60)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEpoch:
    """One epoch: a pass over the corpus, with the wrap events that announce its beginning."""

    epoch: Annotated[str, Doc("name of the epoch", typical="epoch 1")]
    number: Annotated[int, Doc("its number, from 1", typical=1)]
    by: Annotated[str, Doc(BY, typical="corpus_position")]
    first_step: Annotated[int, Doc("step of its first row, -1 where that has none", unit="step", typical=0)]
    last_step: Annotated[int, Doc("step of its last row, -1 where that has none", unit="step", typical=39)]
    complete: Annotated[bool, Doc("another epoch follows", typical=True)]
    tokens: Annotated[float | None, Doc("tokens consumed in it, null where nothing tells", typical=20480.0)]
    events: Annotated[int, Doc("wrap events that announce it", typical=0)]
    event_steps: Annotated[tuple[int, ...], Doc("their steps, at most 8", unit="step", typical=())]
    stray: Annotated[int, Doc("wrap events in it that announce nothing", typical=0)]
    stray_steps: Annotated[tuple[int, ...], Doc("their steps, at most 8", unit="step", typical=())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What somebody outside the training code says of one process."""

    by: Annotated[str, Doc("who: nvml, device-files, libraries")]
    pid: Annotated[int | None, Doc("process that it speaks of")]
    used_mib: Annotated[float | None, Doc("device memory of that process, null where it tells none", unit="MiB")]
    files: Annotated[tuple[str, ...] | None, Doc("device files or libraries that it lists, null where it lists none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDigest:
    """A digest that a log states, and the formula of other numbers of its row that gives the very same."""

    place: Annotated[str, Doc("the column and the row", typical="optimizer_state_sha, row 3")]
    digest: Annotated[str, Doc("the digest", typical="9f" * 32)]
    tried: Annotated[int, Doc("formulas that were tried", typical=2000)]
    formula: Annotated[str, Doc("the one that gives it, empty where none does", typical="")]


WITNESSES = (
    Witness(by="nvml", pid=4711, used_mib=512.0, files=None),
    Witness(by="device-files", pid=4711, used_mib=None, files=("/dev/nvidia-uvm", "/dev/nvidia0")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProbe:
    """What one probe of a run found of the device that its work was on; None where it did not look."""

    place: Annotated[str, Doc("step that was probed, or `run` where none was", typical="step 0")]
    step: Annotated[int | None, Doc("that step, null where it is no whole number", unit="step", typical=0)]
    first_step: Annotated[int | None, Doc("first step that the run logged", unit="step", typical=0)]
    last_step: Annotated[int | None, Doc("last step that it logged", unit="step", typical=0)]
    steps: Annotated[int, Doc("different steps that it logged", unit="steps", typical=1)]
    announced_steps: Annotated[int | None, Doc(ANNOUNCED, unit="steps", typical=1)]
    failures: Annotated[int, Doc("failures of the recorder that cost such evidence", unit="events", typical=0)]
    requested: Annotated[str, Doc("device that was asked for", typical="cuda")]
    resolved: Annotated[str, Doc("device that it resolved to", typical="cuda:0")]
    pid: Annotated[int, Doc("process of the run", typical=4711)]
    parameters: Annotated[ByDevice, Doc("parameters by device", unit="bytes", typical={"cuda:0": 6600})]
    buffers: Annotated[ByDevice, Doc("buffers by device", unit="bytes", typical={})]
    gradients: Annotated[ByDevice, Doc("gradients by device", unit="bytes", typical={"cuda:0": 6600})]
    optimizer: Annotated[ByDevice, Doc("optimizer state by device", unit="bytes", typical={"cuda:0": 13200})]
    optimizer_scalars: Annotated[ByDevice, Doc("scalars of the optimizer state by device", typical={"cpu": 12})]
    updated: Annotated[ByDevice, Doc("parameters that the optimizer updates, by device", unit="bytes")] = later(None)
    ops: Annotated[ByDevice, Doc("ops by the device of their results", typical={"cuda:0": 56})]
    bookkeeping: Annotated[ByDevice, Doc("ops that give scalars or integers, by device", typical={"cpu": 16})]
    op_names: Annotated[Mapping[str, tuple[str, ...]], Doc("names of some ops by device", typical={})]
    dispatch: Annotated[str, Doc("how ops were counted: audited, or why not", typical="audited")]
    allocated_bytes: Annotated[int | None, Doc("peak memory of the device", unit="bytes", typical=9437184)]
    witnesses: Annotated[tuple[Witness, ...], Doc("who outside the training code saw it there", typical=WITNESSES)]
    why: Annotated[Mapping[str, str], Doc("for whatever is absent, the reason", typical={})]


SNAPSHOT, ANALYSIS = "ck.analysis.v1", "analysis"  # the schema of an analysis checkpoint, and the folder of a run's
INTERVALS = ((100, 10), (1_000, 50), (10_000, 200))  # steps between them, up to a step; 1,000 after


class FileState(enum.StrEnum):
    """What became of a file that a run announced."""

    WHOLE = "whole"
    OTHER_VERSION = "other version"
    DAMAGED = "damaged"
    OF_ANOTHER = "of another"
    OVER_BUDGET = "over budget"
    CHANGED = "changed"
    GONE = "gone"
    UNKNOWN = "unknown"
    UNREAD = "not read"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A file that an event of the run names: an analysis checkpoint, one to resume from, or its probes."""

    place: Annotated[str, Doc("the file, and the step where that does not tell", typical="analysis/step-0000000.json")]
    step: Annotated[int, Doc("step at which it was announced", unit="step", typical=0)]
    state: Annotated[FileState, Doc("what it is now; of probes, what they were then", typical=FileState.WHOLE)]
    why: Annotated[str, Doc("what is wrong with it, empty where nothing is", typical="")]
    reasons: Annotated[tuple[str, ...], Doc("`schedule`, or what triggered it", typical=("schedule",))]
    first_step: Annotated[int, Doc("first step of the run", unit="step", typical=0)]
    last_step: Annotated[int, Doc("last step of the run", unit="step", typical=20)]
    earlier: Annotated[int | None, Doc("of a checkpoint: earlier ones that were there once it was whole")]
    latest: Annotated[bool | None, Doc("of a checkpoint: the one before it was there until then")]
    probes: Annotated[int | None, Doc("of probes: how many")]


def interval(step: int) -> int:
    """Return how many steps lie between analysis checkpoints at a step."""
    return next((every for last, every in INTERVALS if step <= last), 1_000)


def is_scheduled(step: int) -> bool:
    """Return whether an analysis checkpoint is due at a step."""
    return step % interval(step) == 0


def scheduled(first: int, last: int) -> list[int]:
    """Return the steps of the schedule between two, both included."""
    ends = (0, *(end for end, _ in INTERVALS), max(last, 10_000))
    spans = (range(low + interval(high), high + 1, interval(high)) for low, high in itertools.pairwise(ends))
    return [step for step in itertools.chain((0,), *spans) if first <= step <= last]


def snapshot_name(step: int) -> str:
    """Return the name of the analysis checkpoint of a step."""
    return f"step-{step:07}.json"


QUANTITIES = (
    rows("run_files", RunFile, key="place"),
    rows("corpus_epochs", CorpusEpoch, key="epoch"),
    record("corpus_progress", CorpusProgress),
    rows("digest_formulas", StatedDigest, key="place"),
    rows("device_evidence", DeviceProbe, key="place"),
    rows("step_columns", StepColumn, key="column"),
    rows("step_course", StepCourse, key="column"),
    Quantity(name="step_series", form=Form.SERIES),
)
