"""Read a tensor whose elements do not lie in row-major order, in that order, a window at a time.

Copies what is asked for and nothing else; walks over the file in the order in which the elements lie, so that a
transposed matrix costs one pass a window and constant memory, not a page an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from weighbridge.formats.tensor import Tensor, row_major
from weighbridge.storage.readable import WINDOW, ReadableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[Any]


def windows(file: ReadableFile, tensor: Tensor, size: int) -> Iterator[memoryview]:
    """Walk over a strided tensor's bytes in row-major order, in steps of `size`.

    Raises:
        SubjectError: `subject-changed`, when the file is no longer the one that was opened.
    """
    yield from in_steps(lambda start, stop: read(file, tensor, start, stop), tensor.nbytes, size)
    file.release(*tensor.extent)
    file.require_unchanged()


def in_steps(read: Callable[[int, int], memoryview], nbytes: int, size: int) -> Iterator[memoryview]:
    """Walk in steps of `size` over bytes that are gathered a window at a time."""
    many = max(WINDOW // size, 1) * size
    for start in range(0, nbytes, many):
        window = read(start, min(start + many, nbytes))
        for at in range(0, len(window), size):
            yield window[at : at + size]


def read(file: ReadableFile, tensor: Tensor, start: int, stop: int) -> memoryview:
    """Gather bytes `start` to `stop` of a strided tensor in row-major order.

    Raises:
        SubjectError: `subject-changed`, when the file is no longer the one that was opened.
    """
    import numpy as np

    assert tensor.strides is not None
    size, strides = tensor.unit[1], tensor.strides
    file.require_unchanged()
    spread = in_place(file, tensor, strides.shape)
    first, last = start // size, -(-stop // size)
    gathered = np.empty(last - first, spread.dtype)
    Gathering.of(file, tensor, spread).fill(gathered, spread, strides.first + first)
    return gathered.data.cast("B")[start - first * size : stop - first * size]


def in_place(file: ReadableFile, tensor: Tensor, shape: tuple[int, ...]) -> Words:
    """Look at a tensor's words where they lie, as an array of this shape; nothing is copied."""
    import numpy as np

    size = tensor.unit[1]
    steps = tensor.strides.steps if tensor.strides else row_major(shape)
    return np.ndarray(shape, f"<u{size}", file.gather(*tensor.extent), strides=tuple(step * size for step in steps))


@dataclass(frozen=True, slots=True)
class Gathering:
    """Copies elements out of a file; `base` turns an address in memory into a byte of the file."""

    file: ReadableFile
    base: int

    @classmethod
    def of(cls, file: ReadableFile, tensor: Tensor, spread: Words) -> Gathering:
        """Copy out of `spread`, the words of this tensor."""
        return cls(file, tensor.offset - _address(spread))

    def fill(self, out: Words, source: Words, first: int) -> None:
        """Copy elements of `source`, from its `first` in row-major order on, until `out` is full."""
        row = math.prod(source.shape[1:])
        at = 0
        while at < len(out):
            index, inside = divmod(first + at, row)
            rows = (len(out) - at) // row
            if inside or not rows:
                taken = min(row - inside, len(out) - at)
                self.fill(out[at : at + taken], source[index], inside)
            else:
                taken = rows * row
                whole = out[at : at + taken].reshape(rows, *source.shape[1:])
                self.copy(whole, source[index : index + rows])
            at += taken

    def copy(self, out: Words, source: Words) -> None:
        """Copy all of `source` in bands along its longest step, giving back each band that was read."""
        axis = max(range(source.ndim), key=lambda axis: source.strides[axis])
        many = max(WINDOW // max(source.strides[axis], 1), 1)
        for at in range(0, source.shape[axis], many):
            band = (slice(None),) * axis + (slice(at, at + many),)
            out[band] = source[band]
            self.give_back(source[band], WINDOW // 2)

    def give_back(self, band: Words, least: int = 0) -> None:
        """Give back the pages of a band that reaches over `least` bytes or more."""
        start = _address(band) + self.base
        reach = sum((size - 1) * step for size, step in zip(band.shape, band.strides, strict=True)) + band.itemsize
        if reach >= least:
            self.file.release(start, start + reach)


def _address(array: Words) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
