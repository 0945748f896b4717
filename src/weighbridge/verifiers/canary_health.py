"""Lay one NaN, one infinity and a run of zeros over a tensor, twice where there is another of its size.

The checkpoint is cut down first, so that the trial costs little whatever its size. Decides nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weighbridge.comparison.block_scales import DECODED
from weighbridge.model import Measurement, Unmeasured
from weighbridge.verifiers.verifier import Canary, NoCanary, rows_by_name, two_of
from weighbridge.views.checkpoint import CheckpointView, Tensor

ZEROS = 3  # units at the end
BODY = 3  # units before them that are unlike the rest: an infinity, a NaN, and one more
NOTHING = "no tensor has room for the damage"


@dataclass(frozen=True, slots=True)
class Special:
    """A unit that is infinite and one that is NaN, and how many elements of both units together are either."""

    infinity: bytes
    nan: bytes
    counts: tuple[int, int]  # NaN, infinite


def special(tensor: Tensor, exponent: Mapping[str, int]) -> Special | None:
    """Give the special units of a dtype, or None where it has none, or they are not decoded."""
    elements, size = tensor.unit
    if tensor.dtype in exponent:
        word = exponent[tensor.dtype]
        return Special(word.to_bytes(size, "little"), (word | 1).to_bytes(size, "little"), (1, 1))
    full = b"\xff" * size  # a scale that is NaN, or the largest one
    if tensor.dtype == "MXFP4":
        return Special(full, full, (0, 2 * elements))
    if tensor.dtype in DECODED and tensor.dtype != "NVFP4":
        return Special(full, full, (2 * elements, 0))
    return None


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
    units = special(last, exponent)
    pattern = _pattern(last, units)
    damaged = cut.overlaid(last.name, 0, pattern)
    if twin is not None:
        damaged = damaged.overlaid(twin, 0, pattern)
    expected: dict[str, Any] = {
        "all_zero": False,
        "constant": False,
        "zero_tail_bytes": ZEROS * last.unit[1],
        "repeats": twin,
        **({"nan": units.counts[0], "infinite": units.counts[1]} if units else {}),
    }
    after = rows_by_name(measure(damaged))
    wanted = dataclasses.replace(rows_by_name(measure(cut))[last.name], **expected)

    def seen(found: Measurement | Unmeasured) -> bool:
        told = rows_by_name(found)
        return told.get(last.name) == wanted and told == after

    return Canary(name="one NaN, one infinity, zeros at the end", place=last.name, views=(damaged,), seen=seen)


def _chosen(view: CheckpointView, elements: int) -> tuple[str, ...]:
    """Choose the largest tensor that is cheap, and before it in order another, of its size where there is one."""
    names = [name for name in view.names() if _units(view.tensor(name)) > ZEROS + BODY]
    cut = view.cut(names, elements)
    kept = two_of(names, lambda name: cut.tensor(name).elements)
    earlier = names[: names.index(kept[-1])] if kept else []
    alike = next((name for name in earlier if _alike(cut.tensor(name), cut.tensor(kept[-1]))), None)
    return kept if alike is None else (alike, kept[-1])


def _units(tensor: Tensor) -> int:
    return tensor.nbytes // tensor.unit[1]


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one.dtype, one.nbytes) == (other.dtype, other.nbytes)


def _pattern(tensor: Tensor, units: Special | None) -> bytes:
    """Write a body of like units, an infinity and a NaN where the dtype has them, a unit unlike both, and zeros."""
    size, count = tensor.unit[1], _units(tensor)
    like, unlike = b"\1" * size, b"\2" * size
    odd = (units.infinity, units.nan) if units else (unlike, unlike)
    return like * (count - ZEROS - BODY) + b"".join(odd) + unlike + bytes(ZEROS * size)
