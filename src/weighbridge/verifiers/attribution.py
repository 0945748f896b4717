"""Try every hypothesis on a tensor that is not as it was meant to be, and count what each gives. Names no winner."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from weighbridge.mapping.alternatives import alternatives
from weighbridge.mapping.plan import Pairing, Plan
from weighbridge.verifiers import hypotheses, value_errors
from weighbridge.verifiers.casts import numpy_dtype
from weighbridge.verifiers.laid_out import Laid
from weighbridge.verifiers.lanes import lanes, roundabouts

if TYPE_CHECKING:
    from weighbridge.verifiers.casts import Words

MAX_PARTS = 1 << 12
MAX_TRIES = 64
PROBE = 512  # bytes that another tensor is tried on first
STACKED = "_exps."
FUSED = {"attn_qkv": 3, "gate_up": 2}  # equal pieces, by a word of either side's name


def attributed(laid: Laid, plan: Plan, namesakes: hypotheses.Namesakes) -> tuple[Mapping[str, int], str | None]:
    """Count the elements that each hypothesis reproduces, and name the source tensor that took this one's place.

    What was done element by element is counted; any other making is told only where it gives every element.
    """
    new, pairing = laid.new, laid.pairing
    counts: dict[str, int] = {}
    if pairing.shape == new.shape and numpy_dtype(laid.dtype) is not None:
        old = dataclasses.replace(new, dtype=laid.dtype)
        counts |= value_errors.reproduced(laid, hypotheses.elementwise(old, new))
    counts |= dict.fromkeys(_explaining(laid, plan), new.elements)
    other = namesakes.of(laid.candidate, new.name) or _elsewhere(laid, plan)
    if other is not None and other not in {part.source for part in pairing.parts}:
        counts["other-tensor"] = new.elements
        return counts, other
    return counts, None


def _explaining(laid: Laid, plan: Plan) -> Iterator[str]:
    """Name the makings that give every element; each ends at the first element that it does not give."""
    pairing, new = laid.pairing, laid.new
    if pairing.shape == new.shape and numpy_dtype(laid.dtype) is not None:
        yield from (lane.name for lane in roundabouts(laid.dtype, new.dtype) if value_errors.explains(laid, lane))
        if new.dtype in value_errors.PRECISION and value_errors.scaled(laid):
            yield "scaled"
    back = lanes(new.dtype, laid.dtype, computed=False) if laid.dtype else None
    plain = pairing.plain and pairing.shape == new.shape
    if back is not None and laid.dtype != new.dtype and plain and value_errors.explains_back(laid, back):
        yield "swapped"
    yield from _otherwise(laid, plan)
    if pairing.shape == new.shape:
        yield from _exchanged(laid)


def _elsewhere(laid: Laid, plan: Plan) -> str | None:
    """Find the source tensor of another pairing that gives all of this tensor, through any change of dtype."""
    import numpy as np

    meant, tries = laid.pairing, 0
    head = np.frombuffer(laid.candidate.read(laid.new.name, 0, PROBE // laid.new.unit[1] * laid.new.unit[1]), np.uint8)
    for other in plan.pairings.values():
        if other.shape != meant.shape or other.candidate == meant.candidate or tries == MAX_TRIES:
            continue
        tries += 1
        there = dataclasses.replace(laid, pairing=dataclasses.replace(other, candidate=meant.candidate))
        lane = lanes(there.dtype, laid.new.dtype, computed=bool(other.arithmetic)) if there.dtype else None
        if lane is None:
            continue
        first = lane.predict(next(iter(there.predicted()))).tobytes()[: len(head)]
        if first == head.tobytes() and value_errors.explains(there, lane):
            return other.parts[0].source
    return None


def _otherwise(laid: Laid, plan: Plan) -> Iterator[str]:
    """Name the other makings of the tensor that give it, by the exact way between the dtypes."""
    for name, made in alternatives(plan, laid.pairing).items():
        other = dataclasses.replace(laid, pairing=made)
        lane = lanes(other.dtype, laid.new.dtype, computed=bool(made.arithmetic)) if other.dtype else None
        if lane is not None and made.shape == laid.new.shape and value_errors.explains(other, lane):
            yield name


def errors_otherwise(laid: Laid, plan: Plan) -> dict[str, float | None]:
    """Measure the relative RMSE of blocks against other makings of the tensor, where no exact way leads to blocks."""
    found: dict[str, float | None] = {}
    for name, made in alternatives(plan, laid.pairing).items():
        other = dataclasses.replace(laid, pairing=made)
        if other.dtype and made.shape == laid.new.shape:
            found[name] = value_errors.errors(other, None, None).get("relative_rmse")
    return found


def _exchanged(laid: Laid) -> Iterator[str]:
    """Name what was done where equal pieces hold what some other piece was meant to hold, each taken once."""
    name, pieces = _pieces(laid.pairing)
    lane = lanes(laid.dtype, laid.new.dtype, computed=bool(laid.pairing.arithmetic)) if laid.dtype else None
    per, size = laid.new.unit
    if lane is None or not 1 < pieces <= MAX_PARTS or laid.new.elements % (pieces * per):
        return
    each = laid.new.elements // pieces // per * size
    meant = _digests((lane.predict(stored) for stored in laid.predicted()), each)
    there = [_read(laid, at * each, (at + 1) * each) for at in range(pieces)]
    if meant != there and sorted(meant) == sorted(there):
        yield name


def _pieces(pairing: Pairing) -> tuple[str, int]:
    """Tell how many equal pieces a tensor is fused or stacked of, and what it is called when they are exchanged."""
    if STACKED in pairing.candidate:
        return "experts-swapped", pairing.shape[0] if pairing.shape else 0
    of_name = (pieces for word, pieces in FUSED.items() if word in pairing.candidate or word in pairing.parts[0].source)
    return "parts-swapped", next(of_name, len(pairing.parts))


def _digests(predicted: Iterable[Words], each: int) -> list[bytes]:
    """Digest each so many bytes of what is predicted."""
    found, digest, left = [], hashlib.sha256(), each
    for words in predicted:
        data = memoryview(words.tobytes())
        while data:
            digest.update(data[:left])
            left, data = left - min(left, len(data)), data[left:]
            if not left:
                found.append(digest.digest())
                digest, left = hashlib.sha256(), each
    return found


def _read(laid: Laid, start: int, stop: int) -> bytes:
    digest = hashlib.sha256()
    for at in range(start, stop, 8 << 20):
        digest.update(laid.candidate.read(laid.new.name, at, min(at + (8 << 20), stop)))
        laid.candidate.forget(laid.new.name)
    return digest.digest()
