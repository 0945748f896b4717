"""Try every hypothesis on a tensor that is not as it was meant to be, and count what each gives. Names no winner."""

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping

from weighbridge.comparison import value_errors
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.bytewise import LookAlikes
from weighbridge.comparison.casts import cast, castable, decode, find_exact_cast, shorten, two_step_casts
from weighbridge.comparison.value_errors import Hypothesis
from weighbridge.core import SubjectError, replace
from weighbridge.formats.tensor import INTEGERS, numpy_dtype
from weighbridge.mapping.mapping_plan import Pairing, Part, Plan, rope_order
from weighbridge.model_config.model_keys import field_keys
from weighbridge.views.checkpoint import CheckpointView, Tensor, config_beside

MAX_PARTS = 1 << 12
MAX_TRIES = 64
PROBE = 512  # bytes that another tensor is tried on first
STACKED = "_exps."
FUSED = {"attn_qkv": 3, "gate_up": 2}  # equal pieces, by a word of either side's name
HEADED = re.compile(r".*(attn_q|attn_k|q_proj|k_proj|wq|wk)\.(weight|bias)")
NORM = re.compile(r".*norm\d?\.weight")
HEAD_COUNTS = (".attention.head_count", ".attention.head_count_kv")  # of a GGUF header
LAYER = re.compile(r"(.*?\.)(\d+)(\..*)")
SWAPPED = ("ffn_gate", "ffn_up"), ("ffn_up", "ffn_gate"), ("gate_proj", "up_proj"), ("up_proj", "gate_proj")


def elementwise(source: Tensor, candidate: Tensor) -> dict[str, Hypothesis]:
    """List what may have been done element by element between these two dtypes."""
    old, new = source.dtype, candidate.dtype
    here, there = numpy_dtype(old), numpy_dtype(new)
    if here is None or there is None:
        return {}
    found: dict[str, Hypothesis] = {}
    # Values of sixteen bits, rounded to them where they were wider, whose bits were taken for the other dtype.
    for name, right, wrong in (("bf16-bits-as-f16", "BF16", "F16"), ("f16-bits-as-bf16", "F16", "BF16")):
        if old not in INTEGERS and castable(old, right) and castable(wrong, new):
            found[name] = lambda stored, right=right, wrong=wrong: cast(cast(stored, old, right), wrong, new)  # type: ignore[misc]
    if here.itemsize == there.itemsize and old != new:
        found["relabelled"] = lambda stored: stored
    # The bytes of what the candidate was meant to hold, or of the source's words where nothing else can be.
    if there.itemsize > 1 and castable(old, new):
        found["byte-swapped"] = lambda stored: cast(stored, old, new).byteswap()
    elif 1 < here.itemsize == there.itemsize:
        found["byte-swapped"] = lambda stored: stored.byteswap()
    return found | _rounded(old, new)


def _rounded(old: str, new: str) -> dict[str, Hypothesis]:
    """List roundings: towards zero, and on the way through a narrower type."""
    if old in INTEGERS or new in INTEGERS or new == "F8_E8M0" or not castable(old, new):
        return {}
    found: dict[str, Hypothesis] = {}
    if old != new:
        found["truncated"] = lambda stored: shorten(decode(stored, old), new)
    for name, narrow in (("through-f16", "F16"), ("through-bf16", "BF16")):
        if narrow not in (old, new) and castable(old, narrow):
            found[name] = lambda stored, narrow=narrow: cast(cast(stored, old, narrow), narrow, new)  # type: ignore[misc]
    if "through-bf16" in found:
        found["truncated-through-bf16"] = lambda stored: cast(shorten(decode(stored, old), "BF16"), "BF16", new)
    return found


def attributed(aligned: AlignedTensor, plan: Plan, source: LookAlikes) -> tuple[Mapping[str, int], str | None]:
    """Count the elements that each hypothesis reproduces, and name the source tensor that took this one's place."""
    # What was done element by element is counted; any other making is named only where it gives every element.
    new, pairing = aligned.new, aligned.pairing
    counts: dict[str, int] = {}
    if pairing.shape == new.shape and numpy_dtype(aligned.dtype) is not None:
        counts |= value_errors.reproduced(aligned, elementwise(replace(new, dtype=aligned.dtype), new))
    counts |= dict.fromkeys(_explaining(aligned, plan), new.elements)
    other = source.of(aligned.candidate, new.name) or _elsewhere(aligned, plan)
    if other is None or other in {part.source for part in pairing.parts}:
        return counts, None
    return counts | {"other-tensor": new.elements}, other


def _explaining(aligned: AlignedTensor, plan: Plan) -> Iterator[str]:
    """Yield the makings that give every element; each ends at the first element that it does not give."""
    pairing, new = aligned.pairing, aligned.new
    if pairing.shape == new.shape and numpy_dtype(aligned.dtype) is not None:
        ways = two_step_casts(aligned.dtype, new.dtype)
        yield from (way.name for way in ways if value_errors.explains(aligned, way))
        if new.dtype in value_errors.PRECISION and value_errors.scaled(aligned):
            yield "scaled"
    back = find_exact_cast(new.dtype, aligned.dtype, computed=False) if aligned.dtype else None
    plain = pairing.plain and pairing.shape == new.shape
    if back is not None and aligned.dtype != new.dtype and plain and value_errors.explains_back(aligned, back):
        yield "swapped"
    matrix = pairing.plain and len(new.shape) == 2 and pairing.shape[1:] == new.shape[1:]
    if matrix and pairing.shape[:1] < new.shape[:1] and aligned.exact_cast is not None:
        cut = replace(aligned, candidate=aligned.candidate.of_rows({new.name: pairing.shape[0]}))
        if cut.new.shape == pairing.shape and value_errors.explains(cut, aligned.exact_cast):
            yield "padded-vocabulary"
    for name, other in _made_otherwise(aligned, plan):
        if (exact_cast := other.exact_cast) is not None and value_errors.explains(other, exact_cast):
            yield name
    if pairing.shape == new.shape:
        yield from _exchanged(aligned)


def _elsewhere(aligned: AlignedTensor, plan: Plan) -> str | None:
    """Find the source tensor of another pairing that gives all of this tensor, through any change of dtype."""
    meant, size = aligned.pairing, aligned.new.unit[1]
    head = bytes(aligned.candidate.read(aligned.new.name, 0, PROBE // size * size))
    others = (one for one in plan.pairings.values() if one.shape == meant.shape and one.candidate != meant.candidate)
    for other in itertools.islice(others, MAX_TRIES):
        there = replace(aligned, pairing=replace(other, candidate=meant.candidate))
        if (exact_cast := there.exact_cast) is None:
            continue
        first = exact_cast.predict(next(iter(there.predicted()))).tobytes()[: len(head)]
        if first == head and value_errors.explains(there, exact_cast):
            return other.parts[0].source
    return None


def errors_otherwise(aligned: AlignedTensor, plan: Plan) -> dict[str, float | None]:
    """Measure the relative RMSE of blocks against other makings of the tensor, where no exact way leads to blocks."""
    found: dict[str, float | None] = {}
    for name, other in _made_otherwise(aligned, plan):
        error = value_errors.errors(other, None).get("relative_rmse") if other.dtype else None
        found[name] = min((one for one in (found.get(name), error) if one is not None), default=None)
    return found


def _exchanged(aligned: AlignedTensor) -> Iterator[str]:
    """Yield what was done where equal pieces hold what some other piece was meant to hold, each taken once."""
    pairing, exact_cast = aligned.pairing, aligned.exact_cast
    named = (pieces for word, pieces in FUSED.items() if word in pairing.candidate or word in pairing.parts[0].source)
    name, pieces = "parts-swapped", next(named, len(pairing.parts))
    if STACKED in pairing.candidate:
        name, pieces = "experts-swapped", pairing.shape[0] if pairing.shape else 0
    per, size = aligned.new.unit
    if exact_cast is None or not 1 < pieces <= MAX_PARTS or aligned.new.elements % (pieces * per):
        return
    each = aligned.new.elements // pieces // per * size
    meant = _digests((memoryview(exact_cast.predict(stored).tobytes()) for stored in aligned.predicted()), each)
    there = _digests(aligned.candidate.chunks(aligned.new.name, 8 << 20), each)
    if meant != there and sorted(meant) == sorted(there):
        yield name


def _digests(stretches: Iterable[memoryview], each: int) -> list[bytes]:
    found, digest, left = [], hashlib.sha256(), each
    for stretch in stretches:
        data = stretch
        while data:
            digest.update(data[:left])
            left, data = left - min(left, len(data)), data[left:]
            if not left:
                found.append(digest.digest())
                digest, left = hashlib.sha256(), each
    return found


def _made_otherwise(aligned: AlignedTensor, plan: Plan) -> Iterator[tuple[str, AlignedTensor]]:
    """Yield other makings of one tensor by mechanism, the likeliest first; several may bear one name."""
    meant = aligned.pairing
    for name, made in (*_ordered(plan, meant), *_computed(meant), *_turned(meant), *_matched(plan, meant)):
        if made != meant and made.shape == aligned.new.shape:
            yield name, replace(aligned, pairing=made)


def _ordered(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    if part.order or (len(meant.parts) > 1 and len({one.source for one in meant.parts}) == 1):
        yield "permutation-missing", replace(meant, parts=(replace(part, view=(), take=None, order=()),))
    if not HEADED.fullmatch(meant.candidate) or len(meant.parts) != 1 or not meant.shape:
        return
    rows = meant.shape[0]
    for heads in dict.fromkeys(heads for heads in plan.heads if heads and rows % (2 * heads) == 0):
        order = rope_order(part.source, heads, rows)
        other = replace(part, view=order.view, order=order.order)
        if part.plain:
            yield "permuted-unasked", replace(meant, parts=(other,))
            yield "permutation-inverse", replace(meant, parts=(_inverse(other),))
        elif part.order and other.view != part.view:
            yield "wrong-head-count", replace(meant, parts=(other,))
    if part.order and len(part.view) == 3 and part.view[1] == 2:
        yield "permutation-twice", replace(meant, parts=(replace(part, times=2),))
        yield "permutation-inverse", replace(meant, parts=(_inverse(part),))


def _inverse(part: Part) -> Part:
    """Put the halves of each head one after the other again."""
    return replace(part, view=(part.view[0], part.view[2], 2))


def _computed(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    if meant.arithmetic == "+1":
        yield "plus-one-missing", replace(meant, arithmetic="")
        yield "plus-one-twice", replace(meant, arithmetic="+2")
    elif meant.arithmetic == "-exp":
        yield "minus-exp-missing", replace(meant, arithmetic="")
    elif NORM.fullmatch(meant.candidate):
        yield "plus-one-unasked", replace(meant, arithmetic="+1")


def _turned(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    whole = not part.view or math.prod(part.view) == meant.shape[0]  # so many rows of the source are put in order
    if len(meant.parts) == 1 and len(meant.shape) == 2 and not part.take and whole:
        turned = replace(part, transposed=not part.transposed)
        yield "transposed", replace(meant, parts=(turned,), shape=meant.shape[::-1])


def _matched(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    """Yield what another tensor of the candidate was meant to be: gate for up, or the neighbour layer's."""
    if (found := LAYER.fullmatch(meant.candidate)) is None:
        return
    before, number, behind = found.groups()
    swapped = (behind.replace(old, new) for old, new in SWAPPED if f".{old}" in behind)
    others = [("gate-and-up-swapped", f"{before}{number}{one}") for one in swapped]
    others += [(f"layer-{way}", f"{before}{int(number) + by}{behind}") for way, by in (("before", -1), ("after", 1))]
    for name, candidate in others:
        other = plan.pairings.get(candidate)
        if other is not None and other.shape == meant.shape:
            yield name, replace(other, candidate=meant.candidate)


def head_counts(view: CheckpointView) -> tuple[int, ...]:
    """Return the head counts that a side states, of queries and of keys, in any layer."""
    try:
        config = config_beside(view) or {}
    except SubjectError:  # reported where configurations are compared; only a mechanism's name hangs on it here
        config = {}
    counts = ("head_count", "head_count_kv") if config else ()
    stated = [config.get(key) for count in counts for key in field_keys()[count].config]
    stated += [value for key, value in view.metadata.items() if key.endswith(HEAD_COUNTS)]
    each = (one for value in stated for one in (value if isinstance(value, (list, tuple)) else (value,)))
    return tuple(dict.fromkeys(one for one in each if isinstance(one, int) and one > 0))
