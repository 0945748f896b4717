"""Try every hypothesis on a tensor that is not as it was meant to be, and count what each gives. Names no winner."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from weighbridge.comparison import value_errors
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.alternatives import alternatives
from weighbridge.comparison.bytewise import LookAlikes
from weighbridge.comparison.casts import cast, castable, decode, find_exact_cast, shorten, two_step_casts
from weighbridge.formats.word_types import INTEGERS, numpy_dtype
from weighbridge.mapping.mapping_plan import Plan
from weighbridge.views.checkpoint import Tensor

if TYPE_CHECKING:
    from weighbridge.comparison.value_errors import Hypothesis


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


MAX_PARTS = 1 << 12
MAX_TRIES = 64
PROBE = 512  # bytes that another tensor is tried on first
STACKED = "_exps."
FUSED = {"attn_qkv": 3, "gate_up": 2}  # equal pieces, by a word of either side's name


def attributed(aligned: AlignedTensor, plan: Plan, source: LookAlikes) -> tuple[Mapping[str, int], str | None]:
    """Count the elements that each hypothesis reproduces, and name the source tensor that took this one's place."""
    # What was done element by element is counted; any other making is named only where it gives every element.
    new, pairing = aligned.new, aligned.pairing
    counts: dict[str, int] = {}
    if pairing.shape == new.shape and numpy_dtype(aligned.dtype) is not None:
        old = dataclasses.replace(new, dtype=aligned.dtype)
        counts |= value_errors.reproduced(aligned, elementwise(old, new))
    counts |= dict.fromkeys(_explaining(aligned, plan), new.elements)
    other = source.of(aligned.candidate, new.name) or _elsewhere(aligned, plan)
    if other is not None and other not in {part.source for part in pairing.parts}:
        counts["other-tensor"] = new.elements
        return counts, other
    return counts, None


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
        cut = dataclasses.replace(aligned, candidate=aligned.candidate.of_rows({new.name: pairing.shape[0]}))
        if cut.new.shape == pairing.shape and value_errors.explains(cut, aligned.exact_cast):
            yield "padded-vocabulary"
    for name, other in _made_otherwise(aligned, plan):
        exact_cast = other.exact_cast
        if exact_cast is not None and value_errors.explains(other, exact_cast):
            yield name
    if pairing.shape == new.shape:
        yield from _exchanged(aligned)


def _elsewhere(aligned: AlignedTensor, plan: Plan) -> str | None:
    """Find the source tensor of another pairing that gives all of this tensor, through any change of dtype."""
    meant, tries = aligned.pairing, 0
    size = aligned.new.unit[1]
    head = bytes(aligned.candidate.read(aligned.new.name, 0, PROBE // size * size))
    for other in plan.pairings.values():
        if other.shape != meant.shape or other.candidate == meant.candidate or tries == MAX_TRIES:
            continue
        tries += 1
        there = dataclasses.replace(aligned, pairing=dataclasses.replace(other, candidate=meant.candidate))
        exact_cast = there.exact_cast
        if exact_cast is None:
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


def _made_otherwise(aligned: AlignedTensor, plan: Plan) -> Iterator[tuple[str, AlignedTensor]]:
    for name, made in alternatives(plan, aligned.pairing):
        if made.shape == aligned.new.shape:
            yield name, dataclasses.replace(aligned, pairing=made)


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
    """Digest each so many bytes of several stretches."""
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
