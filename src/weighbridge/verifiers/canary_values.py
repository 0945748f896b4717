"""Lay one damaged unit over a pair of checkpoints in their mapping, and say what a seeing instrument must now report.

The pair is cut down first, so that the trial costs little whatever the checkpoint's size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.block_values import BLOCKS
from weighbridge.comparison.exact_casts import find_exact_cast, values
from weighbridge.comparison.mapping_plan import Plan
from weighbridge.model import Measurement, Unmeasured
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.verifier import Canary, NoCanary, Views, rows_by_name, two_of
from weighbridge.views.checkpoint import Tensor

ENOUGH = 1 << 14  # elements; a tensor is never read in less than four steps, so that the damage lies beyond the first

NOTHING = "no tensor of both sides has bytes or values that can be compared"


def damage(views: Views, plan: Plan, measure: Callable[[Views], Measurement]) -> Canary | NoCanary:
    """Cut two tensors out of both sides and damage the last unit of the last one of the candidate."""
    source, candidate = views
    comparable = sorted(
        name for name in plan.pairings if _comparable(AlignedTensor(source, candidate, plan.pairings[name]))
    )
    names = two_of(comparable, lambda name: min(candidate.tensor(name).elements, ENOUGH))
    if not names:
        return NoCanary(NOTHING)
    name = names[-1]
    parts = [plan.pairings[one].parts[0].source for one in names]
    cut = source.cut(parts, ENOUGH), candidate.cut(names, ENOUGH)
    before = rows_by_name(measure(cut))
    tensor: Tensor = cut[1].tensor(name)
    at = tensor.nbytes - tensor.unit[1]
    last = bytes(cut[1].read(name, at, tensor.nbytes))
    predicted = _predicted(AlignedTensor(*cut, plan.pairings[name]))
    # Where the last unit is right, damage it; where it is wrong already, put it right: either moves what is told.
    right = predicted in (last, None)
    other = _other(last, tensor) if right else predicted
    if other is None:
        return NoCanary(NOTHING)
    step = 1 if right else -1
    damaged = cut[1].overlaid(name, at, other)

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        if not set(before) == set(after) == set(names):
            return False
        others = all(before[place] == after[place] for place in names if place != name)
        return others and _moved(before[name], after[name], step, tensor)

    return Canary(name="one damaged unit", place=name, views=(cut[0], damaged), seen=seen)


def _comparable(aligned: AlignedTensor) -> bool:
    new = aligned.new
    if not aligned.pairing.plain or aligned.pairing.shape != new.shape or not new.elements:
        return False
    if find_exact_cast(aligned.dtype, new.dtype, computed=False) is not None:
        return True
    stored = bytes(aligned.candidate.read(new.name, new.nbytes - new.unit[1], new.nbytes))
    return (
        aligned.source.tensor(aligned.pairing.parts[0].source).dtype not in BLOCKS and _other(stored, new) is not None
    )


def _predicted(aligned: AlignedTensor) -> bytes | None:
    """Give the last unit that the source's values have in the candidate's dtype, or None where only errors are told."""
    exact_cast = find_exact_cast(aligned.dtype, aligned.new.dtype, computed=False)
    if exact_cast is None:
        return None
    *_, (_, stored, _) = aligned.steps()
    return bytes(exact_cast.predict(stored).tobytes()[-aligned.new.unit[1] :])


def _other(last: bytes, tensor: Tensor) -> bytes | None:
    """Give another unit: one bit flipped, or for blocks one that reads as other values, if there is one."""
    if tensor.dtype not in BLOCKS:
        return last[:-1] + bytes([last[-1] ^ 1])
    import numpy as np

    was = values(np.frombuffer(last, np.uint8), tensor.dtype)
    if was is None:
        return last[:-1] + bytes([last[-1] ^ 1])
    for unit in (bytes(len(last)), b"\x3c" * len(last), b"\x11" * len(last)):
        found = values(np.frombuffer(unit, np.uint8), tensor.dtype)
        if found is not None and np.isfinite(found).all() and not np.array_equal(was, found):
            return unit
    return None


def _moved(before: TensorPair, after: TensorPair, step: int, tensor: Tensor) -> bool:
    """Tell whether one unit fewer (or, put right, one more) is as predicted, or else whether the error is another."""
    exact_cast = next((name for name in ("identical", "value-cast", "requantised") if name in before.reproduced), None)
    if exact_cast is None:
        return before.relative_rmse != after.relative_rmse
    if after.reproduced.get(exact_cast) != before.reproduced[exact_cast] - step * tensor.unit[0]:
        return False
    if exact_cast == "identical" and before.differing_bytes == after.differing_bytes:
        return False
    if step < 0 or before.first_difference is not None:
        return True
    first = after.first_difference
    return first is not None and first.offset // tensor.unit[1] == tensor.nbytes // tensor.unit[1] - 1
