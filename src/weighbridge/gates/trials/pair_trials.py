"""How trials break pairs of tensors, by rules of their own: a weakened rule of a judge cannot weaken them too."""

import dataclasses
import math
from collections.abc import Callable, Container, Mapping
from typing import Any

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Change
from weighbridge.gates.families import block_types
from weighbridge.gates.families.block_types import BLOCK, BOUND, MIXTURES, NOT_NEAREST, REQUANTISED
from weighbridge.gates.families.policies import FLOATS, parse
from weighbridge.gates.families.tensor_pairs import ADAPTED, EXACT, EXPONENTIAL, UNREAD, Meant, two_sided
from weighbridge.quantities.tensors import TensorPair

NO_DTYPE = "another dtype"  # no contract can mean it
NARROWER: Mapping[str, tuple[str, ...]] = {  # dtypes that lose values, by the source's
    "F64": ("F32", "BF16", "F16", "F8_E4M3", "I8"),
    "F32": ("BF16", "F16", "F8_E4M3", "I8"),
    "BF16": ("F16", "F8_E4M3", "I8"),
    "F16": ("BF16", "F8_E4M3", "I8"),
    "I64": ("F32", "I8"),
    "I32": ("F32", "I8"),
    "I16": ("I8",),
}


def _another_matter(pair: TensorPair, _limits: Meant, code: str) -> bool:
    """Return whether a pair has one side, or figures of its own where this code stands on others."""
    by_codes = pair.packed or ADAPTED in pair.reproduced
    if not two_sided(pair) or (by_codes and code in ("not-compared", "content", "bound", "overflow")):
        return True
    return pair.rescaled and code == "content"


breaks = Breaks(need="pairs", row=TensorPair, blocked=UNREAD, why="no tensor is on both sides", spares=_another_matter)
_drops = Breaks(need="pairs", row=TensorPair, blocked=UNREAD, why="every tensor may be missing")
_adds = Breaks(need="pairs", row=TensorPair, why="every tensor may be extra")


def follows(pair: TensorPair, **changed: Any) -> TensorPair:
    """Return the pair with content that follows from the source in every way, so that only another clause objects."""
    plain = {"packed": "", "not_nearest": None, "error_in_steps": None, "no_rule": "", **changed}
    return dataclasses.replace(pair, reproduced=dict.fromkeys(EXACT, pair.elements), **plain)


def deeper(pair: TensorPair, _limits: object) -> dict[str, Any]:
    """Return a dimension more in the candidate."""
    return {"candidate_shape": (1, *pair.candidate_shape), "no_rule": ""}


def longer(pair: TensorPair, _limits: object) -> dict[str, Any] | None:
    """Return a last dimension that is longer by one."""
    *rest, last = pair.candidate_shape or (None,)
    return None if last is None else {"candidate_shape": (*rest, last + 1), "no_rule": ""}


def _rule_for(pair: TensorPair, dtype: str, limits: Meant) -> bool:
    """Return whether some line of `allow` is of this change of dtype, whatever tensors it names."""
    return any((pair.source_dtype, dtype) == (one.source, one.candidate) for one in limits.allow)


def _dropped(*, nonzero: bool = True, no_rule: str = "") -> Change:
    unproven = {"identical_to": None, "drop_rule": "", "left_out": "", "nonzero": nonzero, "no_rule": no_rule}
    alone = {"candidate_dtype": "", **unproven}
    return lambda pair, limits: alone if pair.source_dtype and not listed(pair.name, limits.allow_missing) else None


def _added(error: float | None = None) -> Change:
    alone = {"source_dtype": "", "generated_error": error, "identical_to": None, "left_out": "", "no_rule": ""}
    return lambda pair, limits: alone if pair.candidate_dtype and not listed(pair.name, limits.allow_extra) else None


def _emptied(pair: TensorPair, _limits: Meant) -> TensorPair:
    none = None if pair.not_nearest is None else 0
    empty = dataclasses.replace(pair, elements=0, reproduced=dict.fromkeys(pair.reproduced, 0), not_nearest=none)
    return empty if pair.packed else follows(empty)


def _left_out(pair: TensorPair, limits: Meant) -> TensorPair | None:
    meant = pair.source_dtype and listed(pair.name, limits.allow_missing)
    return dataclasses.replace(pair, candidate_dtype="") if meant else None


def _new(pair: TensorPair, limits: Meant) -> TensorPair | None:
    meant = pair.candidate_dtype and listed(pair.name, limits.allow_extra)
    return dataclasses.replace(pair, source_dtype="") if meant else None


NO_FIGURES: Mapping[str, Any] = dict.fromkeys(("relative_rmse", "max_error", "max_ulps", "lost_share"))
NOTHING: tuple[tuple[str, Change, str], ...] = (
    ("every tensor empty", _emptied, "there is no tensor"),
    ("only what may be missing", _left_out, "nothing may be missing"),
    ("only what may be extra", _new, "nothing may be extra"),
)


def of_policy(rounds: Callable[[TensorPair, str, str], bool]) -> tuple[Mutation[Any], ...]:
    """Return the mutations of a policy; `rounds` returns whether it means rounding a tensor to a dtype of itself."""

    def narrowed(dtype: str) -> Mutation[Any]:
        def change(pair: TensorPair, limits: Meant) -> TensorPair | None:
            meant = _rule_for(pair, dtype, limits) or rounds(pair, dtype, limits.policy)
            lossy = dtype in NARROWER.get(pair.source_dtype, ())
            return follows(pair, candidate_dtype=dtype) if lossy and not meant else None

        return breaks(f"narrowed to {dtype}", "dtype", change, f"no tensor is wider, or {dtype} is meant")

    def widened(pair: TensorPair, limits: Meant) -> TensorPair | None:
        meant = limits.policy != "same" or pair.source_dtype == "F64" or _rule_for(pair, "F64", limits)
        return None if meant else follows(pair, candidate_dtype="F64")

    def elsewhere(pair: TensorPair, limits: Meant) -> TensorPair | None:
        for rule in limits.allow:
            other = follows(pair, source_dtype=rule.source, candidate_dtype=rule.candidate)
            exact = limits.policy != "same" and rule.candidate not in NARROWER.get(rule.source, ())
            free = rule.source == rule.candidate or exact or rounds(other, rule.candidate, limits.policy)
            if not free and not limits.allows(other):
                return other
        return None

    return (
        breaks("another dtype", "dtype", lambda pair, _: follows(pair, candidate_dtype=NO_DTYPE)),
        *(narrowed(dtype) for dtype in ("F32", "BF16", "F16", "F8_E4M3", "I8")),
        breaks("widened", "dtype", widened, "the policy accepts a widening"),
        breaks("allowed for other tensors", "dtype", elsewhere, "nothing is allowed elsewhere"),
        breaks("a dimension more", "shape", deeper),
        breaks("one longer", "shape", longer, "no tensor of both sides has a dimension"),
        breaks("one element beyond the range", "overflow", lambda pair, _: follows(pair, overflowed=1)),
        breaks("not comparable", "not-compared", compared=False, reproduced={}, same_values=None, **NO_FIGURES),
        breaks("packed by an unknown method", "packed", packed="an unknown method", compared=False, not_nearest=None),
        _drops("dropped", "missing", _dropped()),
        _drops("dropped as zeros", "missing", _dropped(nonzero=False)),
        _drops("dropped where no rule speaks", "no-rule", _dropped(no_rule="an architecture")),
        _adds("added", "extra", _added()),
        _adds("computed otherwise", "extra", _added(math.nextafter(1e-6, 1))),
        *(breaks.only(name, "nothing-compared", change, why) for name, change, why in NOTHING),
    )


def _in_blocks(dtype: str) -> Mutation[Any]:
    def change(pair: TensorPair, limits: Meant) -> TensorPair | None:
        policy = parse(limits.policy)
        if dtype in (pair.source_dtype, policy.requant) or _rule_for(pair, dtype, limits):
            return None
        least, error = MIXTURES.get(policy.quantised, ""), block_types.TYPICAL_ERROR
        worse = error[dtype] > error.get(least, 0.0) and block_types.STANDS_IN.get(dtype) != least
        if policy.quantised and not worse:
            return None
        return follows(pair, candidate_dtype=dtype, relative_rmse=0.0, lost_share=0.0)

    return breaks(f"in blocks of {dtype}", "dtype", change, f"{dtype} is in the mixture that is meant")


def _rounds(pair: TensorPair, dtype: str, policy: str) -> bool:
    """Return whether a policy of conversions means rounding a tensor to a dtype of itself."""
    meant = parse(policy)
    if meant.blocks and dtype == "F16":
        row = pair.candidate_shape[-1] if pair.candidate_shape else 1
        halved = meant.blocks in block_types.TERNARY and pair.name in block_types.HALVED_WITH_TERNARY
        return row % BLOCK[MIXTURES[meant.blocks]] > 0 or halved or meant.rounded == dtype
    return dtype == meant.rounded


def _as_it_was(pair: TensorPair, limits: Meant) -> TensorPair | None:
    """Return a matrix in its source's dtype, where the policy makes another of it."""
    policy, dtype = parse(limits.policy), pair.source_dtype
    target = policy.blocks or policy.rounded
    spared = (
        policy.ceiling
        or _rule_for(pair, dtype, limits)
        or target in ("", dtype, *block_types.EXPERTS_ALONE, "MXFP4_MOE")
    )
    odd = policy.blocks and dtype == "F16" and pair.candidate_shape[-1:] != (256,)  # such rows may be halves
    matrix = len(pair.candidate_shape) > 1 and min(pair.candidate_shape) > 1
    if spared or odd or not matrix or pair.packed or dtype not in FLOATS or block_types.KEPT.fullmatch(pair.name):
        return None
    return follows(pair, candidate_dtype=dtype)


def _otherwise_stated(pair: TensorPair, limits: Meant) -> TensorPair | None:
    """Return a tensor of a file whose header states a type that no mixture has."""
    allowed = limits.allows(pair) or not parse(limits.policy).numbers
    return None if allowed or pair.packed else dataclasses.replace(pair, file_type=-1)


def _nothing_packed(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
    policy, rows = parse(limits.policy), rows_of(evidence, "pairs", TensorPair)
    codes = [pair for pair in rows if pair.packed or pair.candidate_dtype not in (*FLOATS, *BOUND)]
    plain = {one.name: follows(one, source_dtype="F32", candidate_dtype="F32") for one in codes if two_sided(one)}
    matrices = frozenset(name for name, one in plain.items() if len(one.candidate_shape) > 1)
    if policy.ceiling or not policy.packed or not matrices:
        return NOT_PACKED
    return Mutated(with_rows(evidence, "pairs", [plain.get(pair.name, pair) for pair in rows]), matrices)


# --- Content: exact, within the bound of a block type, or codes of a packer -------------------------------------------


def _unlike(pair: TensorPair, count: int, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return so many exact elements, and no figures but those that are known; a function is of the pair."""
    figures = {name: one(pair) if callable(one) else one for name, one in known.items()}
    other = {"same_values": False, "compared": True, "no_rule": ""}
    return {**NO_FIGURES, **other, **figures, "reproduced": dict.fromkeys(EXACT, count)}


def _is_bounded(pair: TensorPair, limits: Meant) -> bool:
    blocks = pair.candidate_dtype in BOUND and pair.candidate_dtype not in block_types.UNWEIGHTED
    return bool(parse(limits.policy).quantised) and blocks and pair.source_dtype != pair.candidate_dtype


def _exact_but(count: Callable[[int], int], **known: Any) -> Change:
    """Return the change under which so many elements are exact, and no bound excuses the others."""

    def change(pair: TensorPair, limits: Meant) -> dict[str, Any] | None:
        free = not pair.elements or _is_bounded(pair, limits)
        return None if free else _unlike(pair, count(pair.elements), known)

    return change


def _at_bounds_but(types: Container[str] = BOUND, **known: Any) -> Change:
    """Return the change to blocks of these types of which each figure is at its bound, but for those that are known."""

    def change(pair: TensorPair, limits: Meant) -> dict[str, Any] | None:
        if not pair.elements or not _is_bounded(pair, limits) or pair.candidate_dtype not in types:
            return None
        bounds = {"relative_rmse": BOUND[pair.candidate_dtype], "lost_share": block_types.LOST_SHARE, "not_nearest": 0}
        return _unlike(pair, 0, {**bounds, **known})

    return change


def _in_codes(
    count: Callable[[int], int | None], error: float, steps: float | None = None, *, meant: bool = True, **more: Any
) -> Change:
    """Return the change to a packed weight, meant or not: so many codes that are not the nearest, and these errors."""
    packed = {"packed": "fp8", "candidate_dtype": "F8_E4M3", "compared": True, "relative_rmse": error, **more}

    def change(pair: TensorPair, limits: Meant) -> dict[str, Any] | None:
        found = count(pair.elements)
        if parse(limits.policy).packed is not meant or found is None:
            return None
        return {**packed, "not_nearest": found, "error_in_steps": steps}

    return change


def _fitted(**changed: Any) -> Change:
    """Return the change to chosen codes, each figure of their scales at its bound but for those that are known."""
    bounds = {"groups": 64, "groups_off": 0, "group_spread": 1.5, "scale_factor": 1.05, "channels_unlike": 0}
    return _in_codes(lambda every: every or None, 0.0, 0.75, rescaled=False, **(bounds | changed))


NO_ERROR = {"relative_rmse": 0.0, "lost_share": 0.0}
NOT_PACKED, NOT_EXACT = "no packed weight is meant", "only errors are asked for"
NOT_BOUNDED, NOT_CODED = "no block is bounded", "no block's codes are compared"
NOT_MERGED = "no adapter was meant to be merged"


def _merged(elements: int, **changed: Any) -> Change:
    def change(pair: TensorPair, _limits: Meant) -> dict[str, Any] | None:
        merged = pair.reproduced.get("adapter-merged")
        return {"reproduced": {**pair.reproduced, "adapter-merged": merged - elements}, **changed} if merged else None

    return change


def _scaled(count: Callable[[int], int], off: float | None) -> Change:
    return _in_codes(count, 0.1, 0.29, rescaled=True, channels_off=off)


ONE_CODE_MORE = _at_bounds_but(
    NOT_NEAREST, not_nearest=lambda pair: math.floor(NOT_NEAREST[pair.candidate_dtype] * pair.elements) + 1
)
SCALED_OTHERWISE = _scaled(lambda every: math.floor(0.1 * every) + 1, 0.0)
APART = {"max_ulps": lambda pair: 1 + (pair.transform == EXPONENTIAL)}
ONE_CHANGED = _exact_but(lambda every: every - 1, **NO_ERROR, **APART)
ERROR_BEYOND = _at_bounds_but(relative_rmse=lambda pair: math.nextafter(BOUND[pair.candidate_dtype], math.inf))
UNLOADABLE = _in_codes(lambda _: 0, 0.0, compared=False, unloadable="there is no scale")
FAR = _in_codes(lambda every: every or None, 0.1, math.nextafter(0.75, 1), rescaled=False)

# Figures stand here as numbers of their own: those of the judge may be wrong.
OF_CONVERSIONS: tuple[Mutation[Any], ...] = (
    *of_policy(_rounds),
    breaks("one code that is not the nearest", "codes", _in_codes(lambda _: 1, 0.0), NOT_PACKED),
    breaks("codes that are too coarse", "codes", _in_codes(lambda _: 0, math.nextafter(0.5, 1)), NOT_PACKED),
    breaks("codes that are too far", "distance", FAR, NOT_PACKED),
    breaks("scales that are too large", "factor", _fitted(scale_factor=math.nextafter(1.05, 2)), NOT_PACKED),
    breaks("scales that are too small", "factor", _fitted(scale_factor=1 / 1.0500001), NOT_PACKED),
    breaks("no factor of scales known", "factor", _fitted(scale_factor=None), NOT_PACKED),
    breaks("one group's scale off", "groups", _fitted(groups_off=1), NOT_PACKED),
    breaks("scales of other groups", "groups", _fitted(group_spread=math.nextafter(1.5, 2)), NOT_PACKED),
    breaks("no spread of groups known", "groups", _fitted(group_spread=None), NOT_PACKED),
    breaks("one output channel of another", "outputs", _fitted(channels_unlike=1), NOT_PACKED),
    breaks("scales that nobody looked at", "not-compared", _fitted(groups=None), NOT_PACKED),
    breaks("rescaled", "rescaled", _scaled(lambda _: 0, None), NOT_PACKED),
    breaks("channels off", "channels", _scaled(lambda _: 0, math.nextafter(0.05, 1)), NOT_PACKED),
    breaks("scaled codes that are not the nearest", "codes", SCALED_OTHERWISE, NOT_PACKED),
    breaks("without its scales", "unloadable", UNLOADABLE, NOT_PACKED),
    breaks("left as it was", "unmade", _as_it_was, "no matrix is meant to become another dtype"),
    Mutation("nothing packed", "unmade", _nothing_packed),
    breaks("another file type", "file-type", _otherwise_stated, "no file type is meant"),
    breaks("packed unasked", "packing", _in_codes(lambda _: 0, 0.0, meant=False), "packed weights are meant"),
    *(_in_blocks(dtype) for dtype in (*REQUANTISED, "Q5_K", "Q3_K", "IQ1_S")),
    breaks("one element changed", "content", ONE_CHANGED, NOT_EXACT),
    breaks("more elements than there are", "content", _exact_but(lambda every: every + 1, **NO_ERROR), NOT_EXACT),
    breaks("no distance known", "content", _exact_but(lambda every: every - 1, **NO_ERROR), NOT_EXACT),
    breaks("in another order", "content", _exact_but(lambda _: 0, same_values=True), NOT_EXACT),
    breaks("one element that no merge gives", "adapter", _merged(1), NOT_MERGED),
    breaks("half of the adapter's update", "adapter", _merged(0, adapter_share=0.5), NOT_MERGED),
    breaks("the error beyond its bound", "bound", ERROR_BEYOND, NOT_BOUNDED),
    breaks("a block lost", "bound", _at_bounds_but(lost_share=math.nextafter(1e-9, math.inf)), NOT_BOUNDED),
    breaks("an error that is not finite", "bound", _at_bounds_but(relative_rmse=None), NOT_BOUNDED),
    breaks("a share that is not finite", "bound", _at_bounds_but(lost_share=None), NOT_BOUNDED),
    breaks("a code more than may not be the nearest", "codes", ONE_CODE_MORE, NOT_CODED),
    breaks("no codes known", "codes", _at_bounds_but(NOT_NEAREST, not_nearest=None), NOT_CODED),
)
