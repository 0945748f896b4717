"""Read a tensor that is stored in rectangular pieces, in row-major order, a window at a time.

Copies what is asked for and nothing else. A window is cut into boxes that lie together in row-major order, and each
box is filled from the pieces that it meets, so that shards of rows, of columns or of both cost one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from weighbridge.formats import strided
from weighbridge.formats.tensor import Piece, Tensor
from weighbridge.storage.readable import ReadableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[Any]


class Box(NamedTuple):
    """A block of a tensor, in words: where it starts and how far it reaches in every dimension."""

    at: tuple[int, ...]
    sizes: tuple[int, ...]


def windows(files: Mapping[str, ReadableFile], tensor: Tensor, size: int) -> Iterator[memoryview]:
    """Walk over the bytes of a tensor in pieces in row-major order, in steps of `size`.

    Raises:
        SubjectError: `subject-changed`, when a file is no longer the one that was opened.
    """
    yield from strided.in_steps(lambda start, stop: read(files, tensor, start, stop), tensor.nbytes, size)
    for stored in tensor.stored:
        files[stored.file].require_unchanged()


def read(files: Mapping[str, ReadableFile], tensor: Tensor, start: int, stop: int) -> memoryview:
    """Gather bytes `start` to `stop` of a tensor in pieces in row-major order.

    Raises:
        SubjectError: `subject-changed`, when a file is no longer the one that was opened.
    """
    import numpy as np

    assert tensor.pieces is not None
    size = tensor.unit[1]
    first, last = start // size, -(-stop // size)
    gathered = np.empty(last - first, f"<u{size}")
    at = 0
    for box in boxes(tensor.pieces.shape, tensor.pieces.first + first, last - first):
        many = math.prod(box.sizes)
        _fill(gathered[at : at + many].reshape(box.sizes), box, tensor.pieces.blocks, files)
        at += many
    return gathered.data.cast("B")[start - first * size : stop - first * size]


def boxes(shape: tuple[int, ...], first: int, many: int) -> Iterator[Box]:
    """Cut a stretch of `many` words in row-major order, from the `first` on, into boxes, at most two a dimension."""
    if not shape:
        yield Box((), ())
        return
    row = math.prod(shape[1:])
    while many:
        index, inside = divmod(first, row)
        rows = many // row
        taken = min(row - inside, many) if inside or not rows else rows * row
        if inside or not rows:
            for at, sizes in boxes(shape[1:], inside, taken):
                yield Box((index, *at), (1, *sizes))
        else:
            yield Box((index, *(0 for _ in shape[1:])), (rows, *shape[1:]))
        first, many = first + taken, many - taken


def _fill(out: Words, box: Box, blocks: tuple[Piece, ...], files: Mapping[str, ReadableFile]) -> None:
    """Copy into a box what each piece holds of it, and give back the pages that were read."""
    for piece in blocks:
        ranges = [
            (max(mine, its), min(mine + long, its + its_long))
            for mine, long, its, its_long in zip(*box, piece.at, piece.sizes, strict=True)
        ]
        if any(start >= stop for start, stop in ranges):
            continue
        file = files[piece.stored.file]
        file.require_unchanged()
        whole = strided.in_place(file, piece.stored, piece.sizes)
        gathering = strided.Gathering.of(file, piece.stored, whole)
        source = whole[_inside(ranges, piece.at)]
        gathering.copy(out[_inside(ranges, box.at)], source)
        gathering.give_back(source)


def _inside(ranges: list[tuple[int, int]], at: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(start - base, stop - base) for (start, stop), base in zip(ranges, at, strict=True))
