"""Canaries of what compares two checkpoints: another last unit, or other codes where every tensor is packed."""

from collections.abc import Callable
from typing import Any, TypeAlias

from weighbridge.comparison import bytewise
from weighbridge.comparison.adapters import update_of
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import BLOCKS, values
from weighbridge.core import Fields, Measurement, Unmeasured, np
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.mapping.mapping_plan import Pairing
from weighbridge.packing.unpacked_view import both_unpacked, packed_parts, stored_as
from weighbridge.packing.unpacking import Blocks
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.verifier import Canary, NoCanary, Views, rows_by_name, two_of
from weighbridge.views.checkpoint import CheckpointView, Tensor

Measured: TypeAlias = Callable[[Views, Fields], Any]
NOTHING = "no tensor of both sides has bytes or values that can be compared"
MOST_DAMAGED, FLIPPED = 1 << 16, 0xCC  # bytes, and bits of each: of codes of two bits and more, of no sign alone
ENOUGH = 1 << 14  # elements; a tensor is never read in less than four steps, so that the damage lies beyond the first
NAN = b"\x00\x00\xc0\x7f"  # of F32, in which computed tables are stored


def canary_of_values(views: Views, options: Fields, measured: Measured) -> Canary | NoCanary:
    """Cut both sides to two tensors, and damage the candidate's last unit, and the last value of a computed table."""
    source, candidate = both_unpacked(views)
    plan = planned(source, candidate, options)
    comparable = sorted(name for name, one in plan.pairings.items() if _comparable(source, candidate, one))
    names = two_of(comparable, lambda name: min(candidate.tensor(name).elements, ENOUGH))
    if not names:
        return canary_of_codes(views, options, measured)
    name = names[-1]
    parts = [plan.pairings[one].parts[0].source for one in names]
    source, candidate = views
    cut = source.cut(parts, ENOUGH), candidate.cut((*names, *list(plan.generated)[-1:]), ENOUGH)
    before = rows_by_name(measured(cut, options))
    tables = [one for one, row in before.items() if row.generated_error is not None]
    tensor: Tensor = cut[1].tensor(name)
    at = tensor.nbytes - tensor.unit[1]
    last = bytes(cut[1].read(name, at, tensor.nbytes))
    source, candidate = both_unpacked(cut)
    aligned = AlignedTensor(source, candidate, plan.pairings[name])
    predicted = None  # the last unit of the source's values in the candidate's dtype, where a cast is exact
    if aligned.exact_cast is not None:
        *_, (_, stored, _) = aligned.steps()
        predicted = bytes(aligned.exact_cast.predict(stored).tobytes()[-aligned.new.unit[1] :])
    # Where the last unit is right, damage it; where it is wrong already, put it right: either moves the figures.
    step = 1 if predicted in (last, None) else -1
    other = _other(last, tensor) if step > 0 else predicted
    if other is None:
        return NoCanary(NOTHING)
    damaged = cut[1].overlaid(name, at, other)
    for one in tables:
        damaged = damaged.overlaid(one, cut[1].tensor(one).nbytes - len(NAN), NAN)

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        others = all(before[place] == after[place] for place in before if place not in (name, *tables))
        unlike = all(after[one].generated_error is None for one in tables)
        alike = before.keys() == after.keys() >= {*names} and others
        return alike and unlike and _moved(before[name], after[name], step, tensor)

    return Canary(name="one damaged unit", place=name, views=(cut[0], damaged), seen=seen)


def _comparable(source: CheckpointView, candidate: CheckpointView, pairing: Pairing) -> bool:
    blocks = all(isinstance(weight.rule, Blocks) for weight in packed_parts(source, candidate, pairing))
    if not blocks or update_of(source, pairing) is not None:
        return False
    aligned, new = AlignedTensor(source, candidate, pairing), candidate.tensor(pairing.candidate)
    if not pairing.plain or pairing.shape != new.shape or not new.elements:
        return False
    stored = bytes(candidate.read(new.name, new.nbytes - new.unit[1], new.nbytes))
    other = source.tensor(pairing.parts[0].source).dtype not in BLOCKS and _other(stored, new) is not None
    return aligned.exact_cast is not None or other


def _other(last: bytes, tensor: Tensor) -> bytes | None:
    """Return another unit: one bit flipped, or for blocks one that reads as other values, if there is one."""
    was = values(np.frombuffer(last, np.uint8), tensor.dtype) if tensor.dtype in BLOCKS else None
    if was is None:
        return last[:-1] + bytes([last[-1] ^ 1])
    for unit in (bytes(len(last)), b"\x3c" * len(last), b"\x11" * len(last)):
        found = values(np.frombuffer(unit, np.uint8), tensor.dtype)
        if found is not None and np.isfinite(found).all() and not np.array_equal(was, found):
            return unit
    return None


def _moved(before: TensorPair, after: TensorPair, step: int, tensor: Tensor) -> bool:
    """Return whether one unit fewer (or, put right, one more) is as predicted, or else whether the error is another."""
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


def canary_of_codes(views: Views, options: Fields, measured: Measured) -> Canary | NoCanary:
    """Keep the two smallest weights that are packed on some side, and damage the end of the last one's codes."""
    source, candidate = both_unpacked(views)
    made = planned(source, candidate, options).pairings
    packed = {name: packed_parts(source, candidate, one) for name, one in made.items()}
    ruled = (name for name, parts in packed.items() if parts and all(one.rule for one in parts))
    fits = (name for name in ruled if candidate.tensor(name).shape == made[name].shape)  # of others no value is read
    names = sorted(fits, key=lambda name: candidate.tensor(name).nbytes)[:2]
    if not names or not candidate.tensor(names[-1]).nbytes:
        return NoCanary(NOTHING)
    old = (one for name in names for part in made[name].parts for one in stored_as(source, part.source))
    new = (one for name in names for one in stored_as(candidate, name))
    cut = views[0].cut(old), views[1].cut(new)
    before, last = rows_by_name(measured(cut, options)), names[-1]

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        return before.keys() == after.keys() and [one for one in before if before[one] != after[one]] == [last]

    for name in stored_as(candidate, last)[:2]:  # its scales where the last codes stand for no value
        tensor = cut[1].tensor(name)
        at = max(tensor.nbytes - MOST_DAMAGED, tensor.nbytes * 63 // 64)
        flipped = bytes(byte ^ FLIPPED for byte in cut[1].read(name, at, tensor.nbytes))
        damaged = cut[0], cut[1].overlaid(name, at, flipped)
        if not bytewise.same(*((both_unpacked(pair)[1], last) for pair in (cut, damaged))):
            return Canary(name="damaged codes", place=last, views=damaged, seen=seen)
    return NoCanary(NOTHING)
