"""The canary of checkpoints in which every tensor is packed: other codes at the end of a weight, or other scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weighbridge.comparison import bytewise
from weighbridge.core import Fields, Measurement, Unmeasured
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.packing.unpacked_view import both_unpacked, packed_parts, stored_as
from weighbridge.verifiers.verifier import Canary, NoCanary, Views, rows_by_name

NOTHING = "no tensor of both sides has bytes or values that can be compared"
MOST_DAMAGED, FLIPPED = 1 << 16, 0xCC  # bytes, and bits of each: of codes of two bits and more, of no sign alone


def canary_of_codes(views: Views, options: Fields, measured: Callable[[Views, Fields], Any]) -> Canary | NoCanary:
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
