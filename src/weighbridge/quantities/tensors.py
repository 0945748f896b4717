"""What is measured of tensors: of a checkpoint, of one and the one that it was made of, and over the steps of a run."""

import enum
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import later, rows

Norms: TypeAlias = tuple[float | None, ...]
Figures: TypeAlias = Mapping[str, float | None]
STATISTICS = ("mean", "std", "min", "max", "absmax", "rms", "zero_share")  # of a tensor's finite elements


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMoments:
    """Mean, spread and extremes of one tensor, over its finite elements; None where the dtype has no single values."""

    name: Annotated[str, Doc("name of the tensor", typical="model.norm.weight")]
    dtype: Annotated[str, Doc("stored dtype", typical="F32")]
    shape: Annotated[tuple[int, ...], Doc("dimensions", typical=(8, 4))]
    elements: Annotated[int, Doc("number of elements", typical=32)]
    finite: Annotated[int | None, Doc("elements that are finite: those of which the statistics are", typical=32)]
    mean: Annotated[float | None, Doc("arithmetic mean", typical=0.0)]
    std: Annotated[float | None, Doc("standard deviation, divided by the number of elements", typical=0.02)]
    min: Annotated[float | None, Doc("least element", typical=-0.06)]
    max: Annotated[float | None, Doc("largest element", typical=0.06)]
    absmax: Annotated[float | None, Doc("largest magnitude", typical=0.06)]
    rms: Annotated[float | None, Doc("root mean square", typical=0.02)]
    zero_share: Annotated[float | None, Doc("share of elements that are zero", typical=0.0)]


OWN_KEYS = ", whose keys differ: "  # how codes of both sides are named that each reads by its own keys
PADDED = "of a padded vocabulary"  # how a mapping ends that leaves aside the rows that were added
EXCESS = "bits that an element costs beyond its entropy under the nearest law of weights, by reading"
NAME = "the candidate's name, or the source's where the candidate has no such tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentChanges:
    """How far mean, spread and extremes of one tensor are from the source's, as shares of the source's own.

    None for a tensor of one side alone, one of another shape and one whose values cannot be read.
    """

    name: Annotated[str, Doc(NAME, typical="blk.0.attn_q.weight")]
    source_dtype: Annotated[str, Doc("dtype of the source; empty where it has no such tensor", typical="BF16")]
    candidate_dtype: Annotated[str, Doc("dtype of the candidate; empty where it has no such tensor", typical="Q4_0")]
    elements: Annotated[int, Doc("number of elements", typical=32)]
    source: Annotated[Figures, Doc("the statistics of the source's finite values", typical={"std": 0.02})]
    candidate: Annotated[Figures, Doc("the statistics of the candidate's finite values", typical={"std": 0.02})]
    mean: Annotated[float | None, Doc("relative change of the arithmetic mean", typical=0.0)]
    std: Annotated[float | None, Doc("relative change of the standard deviation", typical=0.01)]
    min: Annotated[float | None, Doc("relative change of the least element", typical=0.01)]
    max: Annotated[float | None, Doc("relative change of the largest element", typical=0.01)]
    absmax: Annotated[float | None, Doc("relative change of the largest magnitude", typical=0.01)]
    rms: Annotated[float | None, Doc("relative change of the root mean square", typical=0.01)]
    zero_share: Annotated[float | None, Doc("relative change of the share of zeros", typical=0.0)]
    finite: Annotated[float | None, Doc("relative change of the number of finite elements", typical=0.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BitReading:
    """What the sampled words look like in one order of their bytes, by the 16 bits that hold sign and exponent."""

    negative: Annotated[int, Doc("words with the sign set", typical=128)]
    symbols: Annotated[int, Doc("different values of the eight bits after the sign", typical=64)]
    excess: Annotated[Mapping[str, float], Doc(EXCESS, unit="bits", typical={"BF16": 0.05, "F16": 3.0})]


LIKE_WEIGHTS = BitReading(negative=128, symbols=64, excess={"BF16": 0.05, "F16": 3.0})
UNLIKE_WEIGHTS = BitReading(negative=128, symbols=128, excess={"BF16": 4.0, "F16": 4.0})


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBits:
    """What the bits of one tensor look like, whatever its label says; None where its dtype has no use for it."""

    name: Annotated[str, Doc("name of the tensor", typical="blk.0.attn_q.weight")]
    dtype: Annotated[str, Doc("stored dtype", typical="BF16")]
    elements: Annotated[int, Doc("number of elements, or of the weights that packed codes stand for", typical=256)]
    zeros: Annotated[int | None, Doc("words that are zero but for their sign", typical=0)]
    or_word: Annotated[str | None, Doc("all bits that occur in some word, in hexadecimal", typical="0xffff")]
    trailing_zero_bits: Annotated[
        int | None, Doc("last bits of the mantissa that no word uses; None where all are zero", unit="bits", typical=0)
    ]
    mantissa_bits: Annotated[int | None, Doc("bits of the mantissa", unit="bits", typical=7)]
    sampled: Annotated[int, Doc("words of the sample, evenly spaced, the last among them", typical=256)]
    nonzero: Annotated[int, Doc("words of the sample that are not zero: those that the rest is of", typical=256)]
    as_stored: Annotated[BitReading | None, Doc("the words as they are stored", typical=LIKE_WEIGHTS)]
    byte_swapped: Annotated[
        BitReading | None, Doc("the words with their bytes in the other order", typical=UNLIKE_WEIGHTS)
    ]
    half_divergence: Annotated[
        float | None, Doc("Jensen-Shannon divergence of upper and lower halves of words", unit="bits", typical=0.9)
    ]
    half_entropy: Annotated[float | None, Doc("entropy of both halves together", unit="bits", typical=6.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHealth:
    """What is odd about the values of one tensor, whatever it is meant to hold."""

    name: Annotated[str, Doc("name of the tensor", typical="model.norm.weight")]
    name_flaws: Annotated[tuple[str, ...], Doc("what the name holds that breaks tools", typical=())]
    dtype: Annotated[str, Doc("stored dtype", typical="F16")]
    shape: Annotated[tuple[int, ...], Doc("dimensions", typical=(8, 4))]
    elements: Annotated[int, Doc("number of elements", typical=32)]
    bytes: Annotated[int, Doc("size", unit="bytes", typical=64)]
    row_bytes: Annotated[int, Doc("size of one row of the last dimension", unit="bytes", typical=8)]
    nan: Annotated[int | None, Doc("elements that are NaN; None where nobody decodes the dtype", typical=0)]
    infinite: Annotated[int | None, Doc("elements that are infinite; None where nobody decodes the dtype", typical=0)]
    all_zero: Annotated[bool, Doc("whether every byte is zero", typical=False)]
    constant: Annotated[bool, Doc("whether all words are one", typical=False)]
    zero_tail_bytes: Annotated[int, Doc("run of zeros at the end, whole words", unit="bytes", typical=0)]
    repeats: Annotated[str | None, Doc("the earlier tensor with the very same dtype and bytes")]
    zero_tail_columns: Annotated[int, Doc("columns at the end of a matrix that are zero in every row")] = later(0)
    zero_rows: Annotated[int, Doc("rows of a matrix that are all zero")] = later(0)
    beyond_f16: Annotated[int, Doc("finite elements of 65536 and more, which F16 cannot hold")] = later(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first element of a tensor that is not what its source gives."""

    offset: Annotated[int, Doc("offset in the tensor", unit="bytes", typical=10)]
    file_offset: Annotated[int, Doc("offset in the candidate's file", unit="bytes", typical=162)]
    index: Annotated[int, Doc("the element, counted row by row", typical=5)]
    source_hex: Annotated[str, Doc("the source's word", typical="0x3f80")]
    candidate_hex: Annotated[str, Doc("the candidate's word", typical="0x3f81")]
    expected_hex: Annotated[str, Doc("the word that the source gives under the candidate's dtype", typical="0x3f80")]
    source_value: Annotated[str, Doc("the source's value; empty where it has none of its own", typical="1.0")]
    candidate_value: Annotated[str, Doc("the candidate's value", typical="1.0078125")]
    ulps: Annotated[int | None, Doc("distance in units of the last place", typical=1)]


OTHERS = (
    "codes that are not the nearest to the source's values under the file's own scales; None without a rule, "
    "where every element is exact, or where the type cannot tell"
)
IN_STEPS = (
    "root mean square distance of codes from the source's values, in steps of their scales, where a packer may "
    "choose others than the nearest; None elsewhere"
)
OFF = (
    "by how much a factor of its channels is off the one that undoes it, beyond what the codes' steps leave; "
    "None where none is scaled, or nothing like it was found"
)
GROUPS = "groups of codes that share a scale and hold something, where a packer may choose codes; None elsewhere"
GROUPS_OFF = (
    "groups whose scale is surely not that of their values: by its sign, or by eight standard errors and a step"
)
SPREAD = "how far least squares of a group's codes are beyond their values, or the reverse: the median group's"
FACTOR = "by what factor the median group's scale is too large for its values"
UNLIKE = "output channels of codes that have surely less than half of the others' correlation with their values"
ALL_SIX = {"identical": 6, "value-cast": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPair:
    """One tensor of a candidate beside what the mapping says that it was made of, or a tensor of one side alone."""

    name: Annotated[str, Doc(NAME, typical="blk.0.attn_q.weight")]
    sources: Annotated[tuple[str, ...], Doc("the source's tensors that it is made of", typical=("a",))]
    transform: Annotated[str, Doc("what was done to the source's values besides a change of dtype", typical="")]
    source_dtype: Annotated[str, Doc("dtype of the source; empty where it has no such tensor", typical="BF16")]
    candidate_dtype: Annotated[str, Doc("dtype of the candidate; empty where it has no such tensor", typical="BF16")]
    source_shape: Annotated[tuple[int, ...], Doc("dimensions that the source gives", typical=(2, 3))]
    candidate_shape: Annotated[tuple[int, ...], Doc("dimensions of the candidate", typical=(2, 3))]
    elements: Annotated[int, Doc("number of elements", typical=6)]
    nonzero: Annotated[bool, Doc("whether any byte is not zero", typical=True)]
    source_bytes: Annotated[int, Doc("size of the source's tensors", unit="bytes", typical=12)]
    candidate_bytes: Annotated[int, Doc("size of the candidate's tensor", unit="bytes", typical=12)]
    identical_to: Annotated[
        str | None, Doc("the embedding whose bytes a tensor of one side repeats, or the key that has its value")
    ]
    drop_rule: Annotated[str, Doc("why the converter leaves a source tensor out", typical="")]
    adapter_share: Annotated[
        float | None, Doc("times that an adapter's update is in the candidate's tensor, by least squares")
    ] = None
    left_out: Annotated[
        str, Doc("what a tensor is part of that the other side was not meant to hold, as training state", typical="")
    ] = ""
    generated_error: Annotated[float | None, Doc("largest relative error of a table that the configuration gives")]
    compared: Annotated[bool, Doc("whether its content could be compared", typical=True)]
    differing_bytes: Annotated[
        int | None,
        Doc("bytes not the source's own; None where sizes differ, or a cast explains all", unit="bytes", typical=0),
    ]
    reproduced: Annotated[
        Mapping[str, int], Doc("elements that each hypothesis about its making gives, bit for bit", typical=ALL_SIX)
    ]
    overflowed: Annotated[
        int | None,
        Doc("finite elements of the source that its cast makes infinite or NaN; None where none was tried", typical=0),
    ]
    first_difference: Annotated[
        FirstDifference | None, Doc("the first element that the plainest hypothesis does not give")
    ]
    relative_rmse: Annotated[
        float | None, Doc("root of the squared errors over that of the squared values; None where exact")
    ]
    max_error: Annotated[float | None, Doc("largest absolute error")]
    max_ulps: Annotated[int | None, Doc("largest distance in units of the last place")]
    lost_share: Annotated[float | None, Doc("share of the squared values in blocks that are not like theirs")]
    same_values: Annotated[bool | None, Doc("whether it holds the same values in another order")]
    other: Annotated[str | None, Doc("the source's tensor that took this one's place")]
    errors_otherwise: Annotated[Figures, Doc("relative_rmse of blocks against other makings of the tensor", typical={})]
    packed: Annotated[str, Doc("how a weight is packed on either side; empty where it is not", typical="")] = ""
    not_nearest: Annotated[int | None, Doc(OTHERS)] = None
    error_in_steps: Annotated[float | None, Doc(IN_STEPS, unit="steps")] = None
    rescaled: Annotated[
        bool, Doc("whether its packer scales channels, and undoes it in other tensors that then change, too")
    ] = False
    channels_off: Annotated[float | None, Doc(OFF)] = None
    no_rule: Annotated[str, Doc("what no rule speaks of, where none does; empty where one does", typical="")] = ""
    file_type: Annotated[
        int | None, Doc("number of the mixture that the candidate's header states; None where it states none")
    ] = later(None)
    groups: Annotated[int | None, Doc(GROUPS)] = later(None)
    groups_off: Annotated[int | None, Doc(GROUPS_OFF)] = later(None)
    group_spread: Annotated[float | None, Doc(SPREAD, unit="standard errors")] = later(None)
    scale_factor: Annotated[float | None, Doc(FACTOR)] = later(None)
    channels_unlike: Annotated[int | None, Doc(UNLIKE)] = later(None)
    unloadable: Annotated[str, Doc("why no loader unpacks the candidate's weight, whatever its values")] = later("")


class Role(enum.StrEnum):
    """What a tensor is for, as its name tells: shapes, and whether keys are rotated, are not logged."""

    MATRIX = "matrix"
    NORM = "norm"
    EMBEDDING = "embedding"
    HEAD = "head"
    BIAS = "bias"
    KEY_BIAS = "key bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCourse:
    """One trained tensor over the steps at which it was looked at; null where a norm was not logged.

    Numbers are rounded to six digits.
    """

    tensor: Annotated[str, Doc("name", typical="h.0.w")]
    layer: Annotated[str, Doc("the numbered layer that its name is of, empty where it is of none", typical="h.0")]
    role: Annotated[Role, Doc("what it is for, by its name", typical="matrix")]
    last_step: Annotated[int, Doc("last step of the run, or of the window", unit="step", typical=3)]
    step: Annotated[tuple[int, ...], Doc("steps, rising", unit="step", typical=(0, 1, 2, 3))]
    lr: Annotated[Norms, Doc("learning rate of the step", typical=(0.001, 0.001, 0.001, 0.001))]
    grad: Annotated[Norms, Doc("2-norm of its gradient as it arrived", typical=(1.0, 1.1, 1.2, 1.3))]
    grad_used: Annotated[Norms, Doc("2-norm of its gradient as the update used it", typical=(1.0, 1.1, 1.2, 1.3))]
    weight: Annotated[Norms, Doc("2-norm of the tensor after the update", typical=(10.0, 10.1, 10.2, 10.3))]
    update: Annotated[Norms, Doc("2-norm of what the update changed", typical=(0.01, 0.011, 0.012, 0.013))]


QUANTITIES = (
    rows("layer_course", TensorCourse, key="tensor"),
    rows("moment_changes", MomentChanges),
    rows("tensor_bits", TensorBits),
    rows("tensor_health", TensorHealth),
    rows("tensor_moments", TensorMoments),
    rows("tensor_values", TensorPair),
)
