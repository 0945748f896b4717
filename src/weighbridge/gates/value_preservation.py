"""value-preservation: is every tensor what the policy says that it was meant to become, exactly where that is known?

Every tensor falls into one class of an ordered lattice, from counts that were measured; the policy says which class
each tensor must reach under its dtypes. A tensor of a format's own fallback (rows that are not whole blocks, heads
that repeat the embedding) is accepted as the format declares it, and only with proof.
"""

import collections
import enum
import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, rows_of
from weighbridge.core import Doc, Fields, Verdict, dataclass
from weighbridge.gates.families import block_types, tensor_pairs
from weighbridge.gates.families.block_types import BLOCK, BOUND, MIXTURES, NOT_NEAREST, TYPICAL_ERROR
from weighbridge.gates.families.policies import FORM, PATTERN, Policy, parse, spelled
from weighbridge.gates.families.tensor_pairs import EXACT, Meant, is_exact, two_sided
from weighbridge.gates.trials.pair_trials import OF_CONVERSIONS
from weighbridge.quantities.tensors import OWN_KEYS, TensorPair


class Class(enum.StrEnum):
    """What one tensor is to its source, the best first; the last four have one side only."""

    BYTES_EQUAL = "BYTES_EQUAL"
    VALUE_EQUAL = "VALUE_EQUAL"
    ROUNDED_EXACT = "ROUNDED_EXACT"
    REQUANT_EXACT = "REQUANT_EXACT"
    NEAREST_CODES = "NEAREST_CODES"
    MERGED = "MERGED"
    WITHIN_BOUND = "WITHIN_BOUND"
    LAYOUT_ONLY = "LAYOUT_ONLY"
    DIFFERENT = "DIFFERENT"
    MISSING = "MISSING"
    EXTRA = "EXTRA"
    DROPPED = "DROPPED"
    GENERATED = "GENERATED"
    LEFT_OUT = "LEFT_OUT"


RANK: Mapping[Class, int] = {found: rank for rank, found in enumerate(Class)}
STEPS = 0.75  # root mean square distance of codes that GPTQ chose: 0.36 to 0.52; rounding to nearest makes 0.29
NOT_NEAREST_RESCALED = 0.1  # of codes, under fitted factors of channels: 0.021 of AWQ's at most, 0.29 of damaged ones
CHANNELS_OFF = 0.05  # of a factor, beyond five standard errors, which leave nothing in what AWQ makes
MERGED_SHARE = 0.5  # of an update; what rounding moves is not along it, so that a share is far nearer to what it is
# Of scales of codes that a packer chose, in files that are right: 2,200 draws of 2, 3, 4 and 8 bits, groups of 16 to
# whole rows, normal, Laplace, Student's t of three degrees, rows and columns of other size, dead ones; GPTQ with strong
# correlations, rounded, clipped, in any order. No factor was beyond 1.028 (512 elements of two bits), no median group
# beyond 0.28 standard errors.
FACTOR = 0.05  # by which all scales may be off: 5 % is beyond what two bits round, and 10 % is seen in four
SPREAD = 1.0  # standard errors of the median group; scales of other groups make 2.5 to 11 in four bits
OF_FEW = 4.0, 6.0  # more for a median of few groups, and for a factor of few elements: both have standard errors
COARSEST = 0.5  # relative RMSE: codes of two bits err by 0.35 of normally distributed values, and less where they fit
COARSEST_CHOSEN = 0.85  # the same, of codes that GPTQ chose
CODES = ("I8", "U8", "I32", "U32", "F8_E4M3", "F8_E5M2")  # in which packers store matrices
ROUNDED_FIRST = {"requantised-through-f16", "requantised-through-bf16"}  # quantised from a file that was rounded before
FITS = ("factor", "groups", "outputs")
FAILS = (
    *("content", "bound", "overflow", "packing", "codes", "distance", *FITS),
    *("channels", "adapter", "unmade", "file-type", "unloadable"),
)
FIGURES = (
    *("transform", "source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "elements"),
    *("first_difference", "relative_rmse", "lost_share", "max_error", "max_ulps", "error_in_steps", "channels_off"),
    *("packed", "groups", "groups_off", "group_spread", "scale_factor", "channels_unlike", "unloadable"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Meant):
    """What the candidate was meant to be."""

    policy: Annotated[str, Doc(f"what was meant: {FORM}", pattern=PATTERN, spelled=spelled, form=FORM, tight="")]


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare every tensor's class with the one that the policy needs."""
    pairs = rows_of(evidence, "pairs", TensorPair)
    classes = collections.Counter(map(class_of, pairs))
    summary: Fields = {
        "elements": sum(pair.elements for pair in pairs),
        "classes": [f"{classes[found]} {found}" for found in Class if classes[found]],
    }
    policy = parse(limits.policy)
    unpacked = policy.packed and not policy.ceiling and not any(map(_is_packed, pairs))
    coded = [(pair, code_of(pair, limits) or _unmade(pair, policy, limits, unpacked=unpacked)) for pair in pairs]
    verdict = tensor_pairs.verdict_of(coded, partial(_figures, policy), summary)
    return tensor_pairs.with_files(verdict, evidence, limits)


def _is_packed(pair: TensorPair) -> bool:
    """Return whether the candidate holds codes: those of a weight, or as they are stored on both sides."""
    codes = len(pair.candidate_shape) > 1 and (pair.candidate_dtype or pair.source_dtype) in CODES
    return codes or OWN_KEYS in pair.packed or (pair.not_nearest is not None and pair.candidate_dtype not in BOUND)


def _unmade(pair: TensorPair, policy: Policy, limits: Limits, *, unpacked: bool) -> str:
    """Return how a tensor whose content is right is not what the policy makes, or nothing."""
    if not two_sided(pair) or limits.allows(pair):
        return ""
    if (unpacked and len(pair.candidate_shape) > 1) or (not _is_packed(pair) and policy.lacking(pair)):
        return "unmade"  # says more than a header that is right about such a file
    return "file-type" if policy.numbers and pair.file_type not in (None, *policy.numbers) else ""


def code_of(pair: TensorPair, limits: Limits) -> str:
    """Return what is wrong with a tensor under the policy as a ceiling, or nothing."""
    found = class_of(pair)
    if found in (Class.DROPPED, Class.GENERATED, Class.LEFT_OUT):
        return ""
    if found is Class.MISSING:
        return "" if listed(pair.name, limits.allow_missing) else "missing"
    if found is Class.EXTRA:
        return "" if listed(pair.name, limits.allow_extra) else "extra"
    if pair.source_shape != pair.candidate_shape:
        return "shape"
    code = _packed_code(pair, limits, found) if pair.packed else _content_code(pair, limits, found)
    return _channels_code(pair) if pair.rescaled and code == "content" else code


def _channels_code(pair: TensorPair) -> str:  # where all else is as it may be
    if pair.channels_off is None:
        return "rescaled"
    return "channels" if pair.channels_off > CHANNELS_OFF else ""


def _packed_code(pair: TensorPair, limits: Limits, found: Class | None) -> str:
    if not pair.compared:
        return "unloadable" if pair.unloadable else "packed"
    policy = parse(limits.policy)
    if policy.same and tensor_pairs.KEYS not in pair.reproduced:
        return "packing"
    if pair.candidate_dtype in BOUND:
        return _content_code(pair, limits, found)
    if pair.not_nearest is None:  # the source is packed, so its values have no dtype that could be kept
        exact = _makings(pair) & {"identical", "value-cast"}
        return ("overflow" if pair.overflowed else "") if exact else "content"
    if not policy.packed:
        return "packing"
    if found in (Class.NEAREST_CODES, Class.WITHIN_BOUND):
        return _channels_code(pair) if pair.rescaled else ""
    if _near(pair):
        return _fit_code(pair)
    return "codes" if pair.error_in_steps is None or pair.rescaled else "distance"


def _packed_class(pair: TensorPair) -> Class:
    """Return the class of codes: all the nearest, or chosen within their bound; none so coarse that little is left."""
    error = pair.relative_rmse
    if error is not None and error <= COARSEST and pair.not_nearest == 0:
        return Class.NEAREST_CODES
    return Class.WITHIN_BOUND if _near(pair) and not _fit_code(pair) else Class.DIFFERENT


def _near(pair: TensorPair) -> bool:
    """Return whether codes that a packer chose are as near to their values as it leaves them."""
    error, steps = pair.relative_rmse, pair.error_in_steps
    near = steps is not None and steps <= STEPS and error is not None and error <= COARSEST_CHOSEN
    if pair.rescaled:  # and rounded to the nearest, but for what fitting its factors leaves
        near = near and pair.not_nearest is not None and pair.not_nearest <= _may_differ(pair)
    return near


def _fit_code(pair: TensorPair) -> str:
    """Return how scales or output channels of codes that a packer chose are not their values', or nothing."""
    if pair.groups is None:  # nobody looked
        return "not-compared"
    factor, spread = pair.scale_factor or math.inf, pair.group_spread
    if pair.groups and max(factor, 1 / factor) > 1 + _factor_may(pair):
        return "factor"
    if pair.groups and (pair.groups_off or spread is None or spread > _spread_may(pair)):
        return "groups"
    return "outputs" if pair.channels_unlike else ""


def _factor_may(pair: TensorPair) -> float:
    error = 0.0 if pair.relative_rmse is None else pair.relative_rmse
    return FACTOR + OF_FEW[1] * error / math.sqrt(pair.elements or 1)


def _spread_may(pair: TensorPair) -> float:
    return SPREAD + OF_FEW[0] / math.sqrt(pair.groups or 1)


def _content_code(pair: TensorPair, limits: Limits, found: Class | None) -> str:
    wanted = needed(pair, limits)
    if wanted is None:
        return "dtype"
    if found is None:
        return "not-compared"
    if tensor_pairs.ADAPTED in pair.reproduced:
        return "" if found is Class.MERGED else "adapter"
    if RANK[found] <= RANK[wanted]:
        return "overflow" if pair.overflowed else ""
    if wanted is not Class.WITHIN_BOUND:
        return "content"
    return "codes" if _errs_within(pair) else "bound"


def class_of(pair: TensorPair) -> Class | None:
    """Return the class of one tensor, from what was measured; None where nothing could be compared."""
    if not tensor_pairs.two_sided(pair):
        if pair.left_out:
            return Class.LEFT_OUT
        if not pair.candidate_dtype:
            return Class.DROPPED if tensor_pairs.may_go(pair) else Class.MISSING
        return Class.GENERATED if tensor_pairs.may_come(pair) else Class.EXTRA
    if pair.source_shape != pair.candidate_shape or pair.unloadable:
        return Class.DIFFERENT
    made, dtype = _makings(pair), pair.candidate_dtype
    if pair.not_nearest is not None and dtype not in BOUND:
        return _packed_class(pair)
    if "identical" in made and not pair.packed:
        return Class.BYTES_EQUAL
    cast = "value-cast" in made or tensor_pairs.is_exponential(pair)
    nearly_nearest = pair.not_nearest is not None and pair.not_nearest <= _may_differ(pair)
    within = _errs_within(pair) and (dtype not in NOT_NEAREST or nearly_nearest)
    share = pair.adapter_share
    undone = pair.rescaled and pair.compared and not _channels_code(pair)
    holds = {
        Class.VALUE_EQUAL: (cast and is_exact(pair)) or (dtype in BOUND and pair.max_error == 0),
        Class.ROUNDED_EXACT: cast,
        Class.REQUANT_EXACT: "requantised" in made,
        Class.NEAREST_CODES: within and dtype in NOT_NEAREST and dtype not in block_types.SIGNED,
        Class.MERGED: tensor_pairs.ADAPTED in made and share is not None and abs(share - 1) < MERGED_SHARE,
        Class.WITHIN_BOUND: within or made & ROUNDED_FIRST or undone,
        Class.LAYOUT_ONLY: pair.same_values,
        Class.DIFFERENT: pair.compared,
    }
    return next((found for found, is_so in holds.items() if is_so), None)


def _errs_within(pair: TensorPair) -> bool:
    """Return whether blocks err by no more than is typical of their type; nothing else has such a bound."""
    error, lost = pair.relative_rmse, pair.lost_share
    near = error is not None and error <= BOUND.get(pair.candidate_dtype, -1.0)
    return near and lost is not None and lost <= block_types.LOST_SHARE


def _may_differ(pair: TensorPair) -> int:
    share = NOT_NEAREST_RESCALED if pair.rescaled else NOT_NEAREST.get(pair.candidate_dtype, 0.0)
    return int(share * pair.elements)


def _makings(pair: TensorPair) -> set[str]:
    """Return the hypotheses that give every element of a tensor, bit for bit."""
    return {name for name, count in pair.reproduced.items() if count == pair.elements}


def needed(pair: TensorPair, limits: Limits) -> Class | None:
    """Return the class that a tensor of these dtypes must reach under the policy, or None where it accepts none."""
    policy, dtype = parse(limits.policy), pair.candidate_dtype
    if pair.source_dtype == dtype or (not policy.same and is_exact(pair)):
        return Class.VALUE_EQUAL
    row = pair.candidate_shape[-1] if pair.candidate_shape else 1
    beside_ternary = policy.blocks in block_types.TERNARY and pair.name in block_types.HALVED_WITH_TERNARY
    # A format stores as F16 beside blocks what has rows that are not whole blocks, or is a head.
    halved = policy.blocks and dtype == "F16" and (beside_ternary or row % BLOCK[MIXTURES[policy.blocks]] != 0)
    if limits.allows(pair) or dtype == policy.rounded or halved:
        return Class.ROUNDED_EXACT
    if dtype == policy.requant:
        return Class.REQUANT_EXACT
    least, error = MIXTURES.get(policy.quantised, dtype), TYPICAL_ERROR.get(dtype, math.inf)
    if policy.quantised and (error <= TYPICAL_ERROR[least] or block_types.STANDS_IN.get(dtype) == least):
        exact = dtype in block_types.UNWEIGHTED and not _makings(pair) & ROUNDED_FIRST
        return Class.REQUANT_EXACT if exact else Class.WITHIN_BOUND
    return None


def _figures(policy: Policy, pair: TensorPair, code: str, together: str) -> Fields:
    found, columns = class_of(pair), tensor_pairs.columns_of(pair, FIGURES)
    if code == "unmade":  # its content is right, so no mechanism speaks of it; nor of the header
        return {**columns, "made": policy.lacking(pair) or "codes and scales of some weight", "class": str(found)}
    if code == "file-type":
        return {**columns, "file_type": pair.file_type, "made": policy.numbers[0], "class": str(found)}
    # What explains all offenders of one change of dtype says most; where nothing does, each has its own.
    name = tensor_pairs.mechanism([pair]) if together == tensor_pairs.UNEXPLAINED else together
    elements = tensor_pairs.explained(pair, name) or 0
    blocks = pair.packed or pair.candidate_dtype in BOUND
    as_blocks = found in (Class.NEAREST_CODES, Class.WITHIN_BOUND)
    if code == "dtype" and blocks and name == tensor_pairs.UNEXPLAINED and as_blocks:
        name, elements = tensor_pairs.QUANTISED, pair.elements
    return {
        **columns,
        **tensor_pairs.explanation(pair, code, name, elements),
        "class": None if found is None else str(found),
        "bound": BOUND.get(pair.candidate_dtype, COARSEST),
        "may_differ": _may_differ(pair),
        "steps": STEPS,
        "channels_may": CHANNELS_OFF,
        "spread_may": _spread_may(pair),
        "factor_may": _factor_may(pair),
        "channels": pair.candidate_shape[0] if pair.candidate_shape else 0,
        "differing": pair.elements - max(pair.reproduced.get(exact, 0) for exact in EXACT),
    }


BLOCKED = ("rescaled",)
KIND = tensor_pairs.kind_of_pairs(
    "value-preservation", version=11, limits=Limits, judge=judge, fails=FAILS, blocked=BLOCKED,
    mutations=OF_CONVERSIONS, optional_roles=("adapter",),
)  # fmt: skip
