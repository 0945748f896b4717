"""Lay one NaN, one infinity and a run of zeros over a tensor, twice where there is another of its size.

The checkpoint is cut down first, so that the trial costs little whatever its size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weighbridge.model import Measurement, Unmeasured
from weighbridge.verifiers.base import Canary, NoCanary, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, Tensor

ZEROS = 3  # units at the end
BODY = 3  # units before them that are unlike the rest: an infinity, a NaN, and one more
NOTHING = "no tensor has room for the damage"


def damage(
    view: CheckpointView, elements: int, exponent: Mapping[str, int], measure: Callable[[CheckpointView], Measurement]
) -> Canary | NoCanary:
    """Overlay the last of two tensors, and the one before it, too, where both are then the same size."""
    names = _chosen(view, elements)
    if not names:
        return NoCanary(NOTHING)
    cut = view.cut(names, elements)
    last = cut.tensor(names[-1])
    twin = names[0] if len(names) > 1 and _alike(cut.tensor(names[0]), last) else None
    pattern = _pattern(last, exponent.get(last.dtype))
    damaged = cut.overlaid(last.name, 0, pattern)
    if twin is not None:
        damaged = damaged.overlaid(twin, 0, pattern)
    special = 1 if last.dtype in exponent else None
    expected = {
        "all_zero": False,
        "constant": False,
        "zero_tail_bytes": ZEROS * last.unit[1],
        "repeats": twin,
        **({"nan": special, "infinite": special} if special else {}),
    }
    before, after = rows_by_name(measure(cut)), rows_by_name(measure(damaged))

    def seen(found: Measurement | Unmeasured) -> bool:
        told = rows_by_name(found)
        return told.get(last.name) == {**before[last.name], **expected} and told == after

    return Canary(name="one NaN, one infinity, zeros at the end", place=last.name, views=(damaged,), seen=seen)


def _chosen(view: CheckpointView, elements: int) -> tuple[str, ...]:
    """Choose the largest tensor that is cheap, and before it in order another, of its size where there is one."""
    names = [name for name in view.names() if _units(view.tensor(name)) > ZEROS + BODY]
    later = names[1:] or names
    if not later:
        return ()
    last = max(reversed(later), key=lambda name: min(view.tensor(name).elements, elements))
    cut = view.cut(names, elements)
    earlier = names[: names.index(last)]
    smallest = sorted(
        earlier, key=lambda name: (not _alike(cut.tensor(name), cut.tensor(last)), cut.tensor(name).nbytes)
    )
    return (*smallest[:1], last)


def _units(tensor: Tensor) -> int:
    return tensor.nbytes // tensor.unit[1]


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.dtype, one.nbytes) == (other.dtype, other.nbytes)


def _pattern(tensor: Tensor, exponent: int | None) -> bytes:
    """Write a body of like units, an infinity and a NaN where the dtype has them, a unit unlike both, and zeros."""
    size, units = tensor.unit[1], _units(tensor)
    like, unlike = b"\1" * size, b"\2" * size
    special = [unlike, unlike]
    if exponent is not None:
        special = [exponent.to_bytes(size, "little"), (exponent | 1).to_bytes(size, "little")]
    return like * (units - ZEROS - BODY) + b"".join(special) + unlike + bytes(ZEROS * size)
