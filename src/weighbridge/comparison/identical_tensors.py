"""Find tensors that hold the same bytes under the same dtype, without comparing all with all."""

from __future__ import annotations

from weighbridge.comparison.bytewise import PIECE, Stored, equal
from weighbridge.views.checkpoint import CheckpointView

PROBE = 64  # bytes at the start, the middle and the end that look-alikes are found by


def probe(view: CheckpointView, name: str) -> tuple[str, int, bytes]:
    """Give what look-alikes share: the dtype, the size, and bytes at the start, the middle and the end."""
    tensor = view.tensor(name)
    starts = 0, tensor.nbytes // 2, max(tensor.nbytes - PROBE, 0)
    data = b"".join(bytes(view.read(name, start, start + PROBE)) for start in starts)
    view.forget(name)
    return tensor.dtype, tensor.nbytes, data


def same(old: Stored, new: Stored) -> bool:
    """Tell whether two tensors hold the same bytes under the same dtype."""
    one, other = old[0].tensor(old[1]), new[0].tensor(new[1])
    if (one.dtype, one.nbytes) != (other.dtype, other.nbytes):
        return False
    return all(equal(*pair) for pair in zip(old[0].chunks(old[1], PIECE), new[0].chunks(new[1], PIECE), strict=True))
