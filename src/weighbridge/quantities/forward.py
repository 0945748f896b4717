"""What is measured of two forward passes over the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.limits import Doc
from weighbridge.quantities.base import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How the weights of two stacks compare, each rounded to the candidate's dtype."""

    reference_digest: Annotated[str, Doc("digest of the reference's weights, empty where it names none")]
    candidate_digest: Annotated[str, Doc("digest of the candidate's weights, empty where it names none")]
    of: Annotated[int, Doc("names on either side")]
    on_both_sides: Annotated[int, Doc("names on both sides; the others cannot be compared")]
    differing: Annotated[int, Doc("names on both sides whose bytes differ")]
    first_differing: Annotated[str, Doc("the first of them, empty where there is none")]


NO_WEIGHTS = Weights(reference_digest="", candidate_digest="", of=0, on_both_sides=0, differing=0, first_differing="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardError:
    """How far a candidate lies from float64 truth at one capture point; the first fields are the same at every point.

    Errors are over the elements that are finite on both sides; None where one could not be computed.
    """

    point: Annotated[str, Doc("id of the capture point", typical="logits")]
    order: Annotated[int, Doc("place in the order of computing", typical=0)]
    dtype: Annotated[str, Doc("what the candidate computes in", typical="float32")]
    u: Annotated[float, Doc("unit roundoff of that dtype", typical=2.0**-24)]
    weights: Annotated[Weights, Doc("how both sides' weights compare", typical=NO_WEIGHTS)]
    sequences: Annotated[int, Doc("different sequences", typical=4)]
    tokens: Annotated[int, Doc("tokens of each sequence", typical=24)]
    distinct_tokens: Annotated[int, Doc("fewest different tokens of a sequence", typical=20)]
    inputs_digest: Annotated[str, Doc("digest of the token sequences", typical="00")]
    audited_ops: Annotated[int, Doc("operations of the truth that were audited", typical=533)]
    lower_ops: Annotated[int, Doc("of them, those that touched a lower float than float64", typical=0)]
    first_lower_op: Annotated[str, Doc("the first of those, empty where there is none", typical="")]
    rounded_constants: Annotated[int, Doc("computed constants that were rounded before", typical=0)]
    first_rounded_constant: Annotated[str, Doc("the first of those, empty where there is none", typical="")]
    reference_shape: Annotated[
        tuple[int, ...] | None, Doc("shape in the reference, null where it was not captured", typical=(4, 24, 64))
    ]
    candidate_shape: Annotated[
        tuple[int, ...] | None, Doc("shape in the candidate, null where it was not captured", typical=(4, 24, 64))
    ]
    device: Annotated[str, Doc("where the candidate computed it", typical="cpu")]
    held_as: Annotated[str, Doc("dtype that the candidate holds it in", typical="float32")]
    elements: Annotated[int, Doc("elements that are finite on both sides", typical=6144)]
    truth_norm: Annotated[float | None, Doc("L2 norm of the truth", typical=80.0)]
    candidate_error: Annotated[float | None, Doc("L2 distance of the candidate from the truth", typical=1e-5)]
    rl2_candidate: Annotated[float | None, Doc("that, relative to the truth", unit="relative L2", typical=1.5e-7)]
    rl2_reference: Annotated[
        float | None, Doc("the same of a trusted run in the candidate's dtype", unit="relative L2", typical=1e-7)
    ]
    nonfinite_candidate: Annotated[
        int, Doc("elements that are finite, NaN or infinite in the candidate and otherwise in the truth", typical=0)
    ]
    nonfinite_reference: Annotated[
        int, Doc("the same of the trusted run, and elements of the truth that are NaN", typical=0)
    ]


QUANTITIES = (rows("forward_errors", ForwardError, key="point"),)
