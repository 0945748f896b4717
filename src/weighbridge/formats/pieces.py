"""Read a tensor that does not lie in one stretch in row-major order, in that order, a window at a time.

It is stored in rectangular pieces, or its elements are strided, which is one piece that lies in another order. Copies
what is asked for and nothing else: a window is cut into boxes that lie together in row-major order, and each box is
filled from the pieces that it meets, in the order in which their elements lie, so that shards of rows, of columns or of
both cost one pass, and a transposed matrix one pass a window, in constant memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from weighbridge.formats.tensor import Piece, Pieces, Tensor, row_major
from weighbridge.storage.readable import WINDOW, ReadableFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[Any]


class Box(NamedTuple):
    """A block of a tensor, in words: where it starts and how far it reaches in every dimension."""

    at: tuple[int, ...]
    sizes: tuple[int, ...]


def windows(files: Mapping[str, ReadableFile], tensor: Tensor, size: int) -> Iterator[memoryview]:
    """Yield the tensor's bytes in row-major order, in steps of `size`; refuse with `subject-changed`."""
    many = max(WINDOW // size, 1) * size
    for start in range(0, tensor.nbytes, many):
        window = read(files, tensor, start, min(start + many, tensor.nbytes))
        for at in range(0, len(window), size):
            yield window[at : at + size]
    for stored in tensor.stored:
        files[stored.file].require_unchanged()


def read(files: Mapping[str, ReadableFile], tensor: Tensor, start: int, stop: int) -> memoryview:
    """Return bytes `start` to `stop` of the tensor in row-major order; refuse with `subject-changed`."""
    import numpy as np

    size, tiled = tensor.unit[1], tensor.pieces
    if tiled is None:
        assert tensor.strides is not None
        shape = tensor.strides.shape
        whole = Piece(at=(0,) * len(shape), sizes=shape, stored=tensor)
        tiled = Pieces(shape=shape, blocks=(whole,), first=tensor.strides.first)
    first, last = start // size, -(-stop // size)
    gathered = np.empty(last - first, f"<u{size}")
    at = 0
    for box in boxes(tiled.shape, tiled.first + first, last - first):
        many = math.prod(box.sizes)
        for piece in tiled.blocks:
            _fill(gathered[at : at + many].reshape(box.sizes), box, piece, files[piece.stored.file])
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


def _fill(out: Words, box: Box, piece: Piece, file: ReadableFile) -> None:
    """Copy into a box what a piece holds of it, in bands along its longest step, giving back each that was read."""
    import numpy as np

    ranges = [
        (max(mine, its), min(mine + long, its + its_long))
        for mine, long, its, its_long in zip(*box, piece.at, piece.sizes, strict=True)
    ]
    if any(start >= stop for start, stop in ranges):
        return
    file.require_unchanged()
    stored, size = piece.stored, piece.stored.unit[1]
    steps = [step * size for step in (stored.strides.steps if stored.strides else row_major(piece.sizes))]
    words = np.ndarray(piece.sizes, f"<u{size}", file.gather(*stored.extent), strides=steps)
    source, target = words[_inside(ranges, piece.at)], out[_inside(ranges, box.at)]
    offset = stored.offset + sum(
        (start - at) * step for (start, _), at, step in zip(ranges, piece.at, steps, strict=True)
    )
    axis = max(range(source.ndim), key=lambda axis: source.strides[axis])
    many = max(WINDOW // max(steps[axis], 1), 1)
    for at in range(0, source.shape[axis], many):
        band = (slice(None),) * axis + (slice(at, at + many),)
        target[band] = source[band]
        begin, sides = offset + at * steps[axis], source[band].shape
        file.release(begin, begin + size + sum((side - 1) * step for side, step in zip(sides, steps, strict=True)))


def _inside(ranges: list[tuple[int, int]], at: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(start - base, stop - base) for (start, stop), base in zip(ranges, at, strict=True))
