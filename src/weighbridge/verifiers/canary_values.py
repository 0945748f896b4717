"""Lay one damaged unit over a pair of checkpoints in their mapping, and say what a seeing instrument must now report.

The pair is cut down first, so that the trial costs little whatever the checkpoint's size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.block_values import BLOCKS
from weighbridge.comparison.exact_casts import find_exact_cast, values
from weighbridge.comparison.mapping_plan import Plan
from weighbridge.model import Fields, Measurement, Unmeasured
from weighbridge.verifiers.verifier import Canary, NoCanary, Views, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, Tensor

ENOUGH = 1 << 14  # elements; a tensor is never read in less than four steps, so that the damage lies beyond the first

NOTHING = "no tensor of both sides has bytes or values that can be compared"


def damage(views: Views, plan: Plan, measure: Callable[[Views], Measurement]) -> Canary | NoCanary:
    """Cut two tensors out of both sides and damage the last unit of the last one of the candidate."""
    source, candidate = views
    names = _chosen(source, candidate, plan)
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


def _chosen(source: CheckpointView, candidate: CheckpointView, plan: Plan) -> tuple[str, ...]:
    """Choose a comparable tensor, and before it in order another one; the largest that is cheap comes last."""
    names = sorted(name for name in plan.pairings if _comparable(AlignedTensor(source, candidate, plan.pairings[name])))
    later = names[1:] or names
    if not later:
        return ()
    last = max(later, key=lambda name: (min(candidate.tensor(name).elements, ENOUGH), name))
    earlier = names[: names.index(last)]
    return (*sorted(earlier, key=lambda name: candidate.tensor(name).elements)[:1], last)


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

    read = [values(np.frombuffer(unit, np.uint8), tensor.dtype) for unit in (last, *_units(len(last)))]
    if read[0] is None:
        return last[:-1] + bytes([last[-1] ^ 1])
    changed = (unit for unit, found in zip(_units(len(last)), read[1:], strict=True) if not _alike(read[0], found))
    return next(changed, None)


def _units(size: int) -> tuple[bytes, ...]:
    return bytes(size), b"\x3c" * size, b"\x11" * size


def _alike(one: object, other: object) -> bool:
    import numpy as np

    return bool(np.array_equal(np.asarray(one), np.asarray(other)) or not np.isfinite(np.asarray(other)).all())


def _moved(before: Fields, after: Fields, step: int, tensor: Tensor) -> bool:
    """Tell whether one unit fewer (or, put right, one more) is as predicted, or else whether the error is another."""
    counts = [row["reproduced"] for row in (before, after)]
    assert isinstance(counts[0], dict)
    assert isinstance(counts[1], dict)
    exact_cast = next((name for name in ("identical", "value-cast", "requantised") if name in counts[0]), None)
    if exact_cast is None:
        return before["relative_rmse"] != after["relative_rmse"]
    if counts[1].get(exact_cast) != counts[0][exact_cast] - step * tensor.unit[0]:
        return False
    if step < 0 or before["first_difference"] is not None:
        return True
    first = after["first_difference"]
    return isinstance(first, dict) and first["offset"] // tensor.unit[1] == tensor.nbytes // tensor.unit[1] - 1
