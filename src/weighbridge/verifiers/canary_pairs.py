"""Lay one flipped bit over a pair of checkpoints, and say what a seeing instrument must now report.

The pair is cut down first, so that the trial costs little whatever the checkpoint's size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from weighbridge.comparison.casts import cast, castable, words
from weighbridge.model import Fields, Measurement, Unmeasured
from weighbridge.verifiers.verifier import Canary, NoCanary, Views, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, Tensor

STEPS = 1 << 18, 1 << 19  # elements and bytes that take more than one step of an instrument
BLOCK = 256  # elements: a multiple of every dtype's block

NOTHING = "no tensor of both sides has bytes or values that can be compared"


def damage(views: Views, measure: Callable[[Views], Measurement]) -> Canary | NoCanary:
    """Cut two tensors out of both sides and damage the last byte of the last one of the candidate."""
    names = _chosen(*views)
    if not names:
        return NoCanary(NOTHING)
    source, candidate = (view.cut(names, _enough(views[1].tensor(names[-1]))) for view in views)
    name = names[-1]
    before = rows_by_name(measure((source, candidate)))
    tensor: Tensor = candidate.tensor(name)
    last = bytes(candidate.read(name, tensor.nbytes - 1, tensor.nbytes))
    wanted = _last_expected(source, candidate, name)
    # Where the last byte is right, damage it; where it is wrong already, put it right: either moves the count by one.
    right = wanted == _last_unit(candidate, tensor)
    replacement = bytes([last[0] ^ 1]) if right else wanted
    damaged = candidate.overlaid(name, tensor.nbytes - len(replacement), replacement)
    step = 1 if right else -1

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        if not set(before) == set(after) == set(names):
            return False
        others = all(before[other] == after[other] for other in names if other != name)
        return others and _moved(before[name], after[name], step, tensor)

    return Canary(name="one flipped bit", place=name, views=(source, damaged), seen=seen)


def _chosen(source: CheckpointView, candidate: CheckpointView) -> tuple[str, ...]:
    """Choose a small comparable tensor, and before it in order another one; the largest that is cheap comes last."""
    names = sorted(name for name in source.tensors if _comparable(source, candidate, name))
    later = names[1:] or names
    if not later:
        return ()
    last = max(later, key=lambda name: min(source.tensor(name).elements, STEPS[0]))
    earlier = names[: names.index(last)]
    return (*sorted(earlier, key=lambda name: source.tensor(name).elements)[:1], last)


def _enough(tensor: Tensor) -> int:
    """Count the elements that take more than one step, of elements and of bytes."""
    per, size = tensor.unit
    return max(STEPS[0], STEPS[1] // size * per // BLOCK * BLOCK) + 2 * BLOCK


def _comparable(source: CheckpointView, candidate: CheckpointView, name: str) -> bool:
    old, new = source.tensors[name], candidate.tensors.get(name)
    if new is None or old.shape != new.shape or not new.elements:
        return False
    return old.dtype == new.dtype or castable(old.dtype, new.dtype)


def _last_expected(source: CheckpointView, candidate: CheckpointView, name: str) -> bytes:
    """Give the last bytes that the source's value has under the candidate's label."""
    old, new = source.tensor(name), candidate.tensor(name)
    stored = _last_unit(source, old)
    if old.dtype == new.dtype:
        return stored
    return cast(words(memoryview(stored), old.dtype), old.dtype, new.dtype).tobytes()


def _last_unit(view: CheckpointView, tensor: Tensor) -> bytes:
    return bytes(view.read(tensor.name, tensor.nbytes - tensor.unit[1], tensor.nbytes))


def _moved(before: Fields, after: Fields, step: int, tensor: Tensor) -> bool:
    """Tell whether one unit fewer (or, put right, one more) follows from the source, at the end of the tensor."""
    expected = "identical" if before["source_dtype"] == before["candidate_dtype"] else "value-cast"
    counts = [row["reproduced"] for row in (before, after)]
    assert isinstance(counts[0], dict)
    assert isinstance(counts[1], dict)
    if counts[1].get(expected) != counts[0][expected] - step * tensor.unit[0]:
        return False
    if step < 0 or before["first_difference"] is not None:
        return True
    if expected == "identical" and after["differing_bytes"] != 1:
        return False
    first = after["first_difference"]
    return isinstance(first, dict) and first["offset"] // tensor.unit[1] == tensor.nbytes // tensor.unit[1] - 1
