"""What is measured of two forward passes over the same inputs."""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import later, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A matrix of the candidate that the reference computes with, and how far it lies from the reference's own."""

    name: Annotated[str, Doc("its name in the reference")]
    all: Annotated[float, Doc("over all elements", unit="relative L2")]
    row: Annotated[float, Doc("over its worst row", unit="relative L2")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How the weights of two stacks compare, each rounded to the candidate's dtype."""

    reference_digest: Annotated[str, Doc("digest of the reference's weights, empty where it names none")]
    candidate_digest: Annotated[str, Doc("digest of the candidate's weights, empty where it names none")]
    of: Annotated[int, Doc("names on either side")]
    on_both_sides: Annotated[int, Doc("names on both sides; the others cannot be compared")]
    differing: Annotated[tuple[str, ...], Doc("names on both sides whose bytes differ")]
    taken: Annotated[tuple[Taken, ...], Doc("matrices that the reference takes")] = later(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the last point, the logits, differs from the trusted run's; None where it is none over a vocabulary."""

    point: Annotated[str, Doc("the point that was taken for the logits")]
    kl_mean: Annotated[float | None, Doc("mean over tokens of KL(trusted run ‖ candidate)", unit="nats")]
    kl_max: Annotated[float | None, Doc("the largest of them", unit="nats")]
    flips: Annotated[int, Doc("tokens whose most likely next token is another")]
    of: Annotated[int, Doc("tokens compared")]
    widest_flip: Annotated[
        float | None, Doc("the largest lead, in the trusted run, of a most likely token that changed", unit="logits")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRun:
    """What is the same at every point of one comparison."""

    dtype: Annotated[str, Doc("what the candidate computes in")]
    u: Annotated[float, Doc("unit roundoff of that dtype")]
    stack: Annotated[str, Doc("what the candidate is")]
    device: Annotated[str, Doc("where the candidate's values lay; where it was asked to compute, if it cannot tell")]
    weights: Annotated[Weights, Doc("how both sides' weights compare")]
    sequences: Annotated[int, Doc("different sequences")]
    tokens: Annotated[int, Doc("tokens of each sequence")]
    distinct_tokens: Annotated[int, Doc("fewest different tokens of a sequence")]
    inputs_digest: Annotated[str, Doc("digest of the token sequences")]
    audited_ops: Annotated[int, Doc("operations of the float64 pass that were audited")]
    lower_ops: Annotated[int, Doc("of them, those that were computed below float64")]
    first_lower_op: Annotated[str, Doc("the first of those, empty where there is none")]
    constants: Annotated[int, Doc("computed floating constants of the reference")]
    rebuilt_constants: Annotated[int, Doc("of them, made again in float64")]
    rounded_constants: Annotated[int, Doc("of them, those that only a lower precision than float32 could have made")]
    first_rounded_constant: Annotated[str, Doc("the first of those and what it was rounded to, empty where none")]
    repeated: Annotated[bool, Doc("whether the candidate was run twice; a trace may stand for one run")]
    outcome: Annotated[Outcome, Doc("how the logits differ from the trusted run's")]
    decoded: Annotated[int, Doc("tokens at the end of each sequence that were computed one by one")] = later(0)
    head: Annotated[int, Doc("channels of an attention head; 0 where no configuration says it")] = later(0)
    products: Annotated[str, Doc("what it says its products take, if anything")] = later("")
    products_like: Annotated[str, Doc("what they look like at an odd point")] = later("")
    products_at: Annotated[str, Doc("that point, empty where there is none")] = later("")
    products_left: Annotated[float, Doc("left over there", unit="relative L2")] = later(0.0)
    reached: Annotated[tuple[str, ...], Doc("what inputs reach, or it has not")] = later(())
    not_reached: Annotated[tuple[str, ...], Doc("what they do not reach")] = later(())
    partial: Annotated[bool, Doc("whether points of it may have no value")] = later(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalError:
    """How far values lie from what float64 makes of the values captured before them.

    Over the elements that are finite on both sides; None where the truth is all zeros or nothing was captured.
    """

    all: Annotated[float | None, Doc("over all elements", unit="relative L2")]
    token: Annotated[float | None, Doc("over the channels of the worst token", unit="relative L2")]
    channel: Annotated[float | None, Doc("over the tokens of the worst channel", unit="relative L2")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What relates the captured values to those made there, with the least left over."""

    name: Annotated[str, Doc("such as `bias`; clauses/relations.yaml has all; empty where none was found")]
    to: Annotated[str, Doc("the weight, point or factor that it is known by; empty where there is none")]
    left: Annotated[float | None, Doc("what it leaves over", unit="relative L2")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which of the places along one dimension stand out."""

    first: Annotated[int, Doc("the first of them")]
    last: Annotated[int, Doc("the last of them")]
    every: Annotated[int, Doc("distance of the runs that they form; 0 where they are one run, or of no order")]
    wide: Annotated[int, Doc("places of a run; 0 where they are of no order")]
    count: Annotated[int, Doc("how many they are")]
    of: Annotated[int, Doc("places in all")]
    share: Annotated[float, Doc("share of the squared relative errors that lies in them")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where in a tensor an error lies."""

    sequences: Annotated[Span, Doc("sequences with a token that stands out")]
    tokens: Annotated[Span, Doc("tokens that stand out in one of them")]
    channels: Annotated[Span, Doc("channels that stand out")]


EXTENT = "where its error stands out from a trusted run's worst token and channel; null where none was looked for"
OPERATIONS = "ATen's names of the operations that made it of what it was made from, where it is odd"
OTHERWISE = "the same where odd values that odd ones were made from go on as made; null where no point is so"
END_TO_END = "distance from a pass in which nothing is replaced, first sequence"
ROUGH = (
    "the larger error of two runs: by the roughest kernels that are right, and of the trusted run from the candidate's "
    "own values, where a rounding may tip a choice; null where no point asked for it"
)
NO_WEIGHTS = Weights(reference_digest="", candidate_digest="", of=39, on_both_sides=39, differing=())
NO_OUTCOME = Outcome(point="logits", kl_mean=1e-12, kl_max=1e-11, flips=0, of=96, widest_flip=None)
NO_RELATION = Relation(name="", to="", left=None)
SMALL = LocalError(all=1e-7, token=3e-7, channel=3e-7)
NOT_TRIED = LocalError(all=None, token=None, channel=None)
TYPICAL_RUN = ForwardRun(
    dtype="float32", u=2.0**-24, stack="torch", device="cpu", weights=NO_WEIGHTS, sequences=4, tokens=24,
    distinct_tokens=20, inputs_digest="00", audited_ops=533, lower_ops=0, first_lower_op="", constants=0,
    rebuilt_constants=0, rounded_constants=0, first_rounded_constant="", repeated=True, outcome=NO_OUTCOME,
    reached=("window", "rope-limit", "expert", "cache", "padding"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardError:
    """How far a candidate lies from float64 truth at one capture point, and how far a trusted run in its dtype does."""

    point: Annotated[str, Doc("id of the capture point", typical="logits")]
    order: Annotated[int, Doc("place in the order of computing", typical=0)]
    run: Annotated[ForwardRun, Doc("what is the same at every point", typical=TYPICAL_RUN)]
    reference_shape: Annotated[
        tuple[int, ...] | None, Doc("shape in the reference, null where it was not captured", typical=(4, 24, 64))
    ]
    candidate_shape: Annotated[
        tuple[int, ...] | None, Doc("shape in the candidate, null where it was not captured", typical=(4, 24, 64))
    ]
    made_from: Annotated[
        tuple[str, ...], Doc("the points that its values are made from, each as the candidate has it", typical=())
    ]
    held_as: Annotated[str, Doc("dtype that the candidate stores it in", typical="float32")]
    trusted_held_as: Annotated[str, Doc("dtype that the trusted run stores it in", typical="float32")]
    elements: Annotated[int, Doc("elements that are finite on both sides", typical=6144)]
    truth_norm: Annotated[float | None, Doc("L2 norm of the truth", typical=80.0)]
    candidate_error: Annotated[float | None, Doc("L2 distance of the candidate from the truth", typical=1e-5)]
    candidate: Annotated[LocalError, Doc("the candidate's error", typical=SMALL)]
    candidate_otherwise: Annotated[LocalError, Doc(OTHERWISE, typical=NOT_TRIED)]
    trusted: Annotated[LocalError, Doc("the error of a trusted run in the candidate's dtype", typical=SMALL)]
    rough: Annotated[LocalError, Doc(ROUGH, typical=NOT_TRIED)]
    worst_token: Annotated[str, Doc("where the candidate's worst token is", typical="sequence 0, token 0")]
    worst_channel: Annotated[int, Doc("the candidate's worst channel", typical=0)]
    candidate_end_to_end: Annotated[float | None, Doc(END_TO_END, unit="relative L2", typical=5e-7)]
    trusted_end_to_end: Annotated[float | None, Doc("the same of the trusted run", unit="relative L2", typical=5e-7)]
    equal_share: Annotated[float | None, Doc("share of the elements whose bits are the trusted run's", typical=0.5)]
    noise: Annotated[
        float | None, Doc("distance of the candidate's second run from its first", unit="relative L2", typical=0.0)
    ]
    relation: Annotated[Relation, Doc("what relates its values to those made there", typical=NO_RELATION)]
    nonfinite_candidate: Annotated[
        int, Doc("elements that are NaN in the candidate, or finite or infinite otherwise than the truth", typical=0)
    ]
    nonfinite_reference: Annotated[
        int, Doc("the same of the trusted run, and elements of the truth that are NaN", typical=0)
    ]
    extent: Annotated[Extent | None, Doc(EXTENT)] = later(None)
    operations: Annotated[tuple[str, ...], Doc(OPERATIONS)] = later(())


QUANTITIES = (rows("forward_errors", ForwardError, key="point"),)
