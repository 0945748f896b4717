"""Compare two tensors' bytes at memory speed: equal stretches cost one memcmp, only unequal ones are counted."""

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from weighbridge.core import dataclass, field, np
from weighbridge.views.checkpoint import CheckpointView

Buffer: TypeAlias = Any  # whatever offers its bytes: a memoryview, an array
Stored: TypeAlias = tuple[CheckpointView, str]  # a tensor, by name

STRETCH = 2 << 20  # bytes compared by one call
PIECE = 1 << 18  # bytes counted in detail at once
STEP = 4 << 10  # bytes looked at first for anything but zeros
MAX_NAMESAKES = 16
PROBE = 64  # bytes at the start, the middle and the end that look-alikes are found by


def differing(old: Stored, new: Stored) -> int:
    """Count the bytes in which two tensors of the same size differ."""
    return sum(
        int(np.count_nonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8)))
        for _, one, other in unequal(old, new, new[0].tensor(new[1]).unit[1])
    )


def unequal(old: Stored, new: Stored, unit: int) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Walk over the pieces, whole units of two tensors of the same size, that differ, with their offsets in them."""
    # Never all of a tensor at once, however small, so that an instrument that stops early is seen to do so.
    quarter = max(-(-new[0].tensor(new[1]).nbytes // (4 * unit)), 1) * unit
    stretch = min(STRETCH // unit * unit, quarter)
    piece = min(PIECE // unit, -(-stretch // (2 * unit))) * unit
    at = 0
    for one, other in zip(old[0].chunks(old[1], stretch), new[0].chunks(new[1], stretch), strict=True):
        if not equal(one, other):
            for start in range(0, len(other), piece):
                parts = one[start : start + piece], other[start : start + piece]
                if not equal(*parts):
                    yield (at + start, *parts)
        at += len(other)


def equal(old: Buffer, new: Buffer) -> bool:
    """Return whether two buffers of the same size hold the same bytes."""
    one, other = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    # Of the ways to an address this is the one that costs a fraction of the comparison.
    return memcmp()(one.__array_interface__["data"][0], other.__array_interface__["data"][0], one.nbytes) == 0


@functools.cache
def memcmp() -> Callable[[int, int, int], int]:
    """Find the C library's memcmp, which needs no alignment and runs without the interpreter lock."""
    function = ctypes.CDLL(None).memcmp
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_int
    return function


def any_nonzero(view: CheckpointView, name: str) -> bool:
    """Return whether any byte of a tensor is not zero; stops at the first such stretch."""
    stretches = itertools.chain([view.read(name, 0, STEP)], view.chunks(name, PIECE))
    return any(np.frombuffer(stretch, np.uint8).any() for stretch in stretches)


def _probe(view: CheckpointView, name: str) -> tuple[str, int, bytes]:
    """Return what look-alikes share: the dtype, the size, and bytes at the start, the middle and the end."""
    tensor = view.tensor(name)
    starts = 0, tensor.nbytes // 2, max(tensor.nbytes - PROBE, 0)
    data = b"".join(bytes(view.read(name, start, start + PROBE)) for start in starts)
    view.forget(name)
    return tensor.dtype, tensor.nbytes, data


@dataclass(frozen=True, slots=True)
class LookAlikes:
    """Finds the tensor of a checkpoint that holds the very bytes of another one, without comparing all with all."""

    view: CheckpointView
    _by_probe: dict[tuple[str, int, bytes], list[str]] = field(default_factory=dict)
    _probing: threading.Lock = field(default_factory=threading.Lock)

    def of(self, view: CheckpointView, name: str) -> str | None:
        """Return a tensor of another name that has the dtype, the size and the bytes of this one of another view."""
        with self._probing:  # another thread must not search what is half filled
            if not self._by_probe:
                for other in self.view.names():
                    self._by_probe.setdefault(_probe(self.view, other), []).append(other)
        alike = [other for other in self._by_probe.get(_probe(view, name), ()) if other != name]
        return next((other for other in alike[:MAX_NAMESAKES] if same((self.view, other), (view, name))), None)

    def before(self, name: str) -> str | None:
        """Return the first tensor that this one repeats; it must be asked of every tensor, in order, and no other."""
        known = self._by_probe.setdefault(_probe(self.view, name), [])
        found = next((other for other in known if same((self.view, other), (self.view, name))), None)
        if found is None:
            known.append(name)
        return found


def same(old: Stored, new: Stored) -> bool:
    """Return whether two tensors hold the same bytes under the same dtype."""
    one, other = old[0].tensor(old[1]), new[0].tensor(new[1])
    if (one.dtype, one.nbytes) != (other.dtype, other.nbytes):
        return False
    return all(equal(*pair) for pair in zip(old[0].chunks(old[1], PIECE), new[0].chunks(new[1], PIECE), strict=True))
