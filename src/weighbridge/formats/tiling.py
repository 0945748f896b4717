"""Check that rectangular pieces fill a tensor exactly once. Knows shapes only, no file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

MAX_CELLS = 1 << 22
CELLS = 64  # for each pair of blocks; a grid has one for each block

Block: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # where it starts, and how far it reaches


def doubled(shape: tuple[int, ...], blocks: Sequence[Block]) -> tuple[int, ...] | None:
    """Find an element that two of the blocks hold, all of which lie inside the shape; None where there is none.

    The blocks' edges cut the shape into cells, each wholly inside a block or outside it, so the work grows with the
    cells, not with the pairs of blocks.

    Raises:
        ValueError: there would be more cells than any sharding has.
    """
    import numpy as np

    edges = [
        sorted({0, size, *itertools.chain.from_iterable((at[axis], at[axis] + sizes[axis]) for at, sizes in blocks)})
        for axis, size in enumerate(shape)
    ]
    most = min(MAX_CELLS, CELLS * (1 + len(blocks)) ** 2)
    if math.prod(len(cuts) - 1 for cuts in edges) > most:
        raise ValueError(f"more than {most} cells")
    numbers = [{edge: number for number, edge in enumerate(cuts)} for cuts in edges]
    held = np.zeros([len(cuts) - 1 for cuts in edges], bool)
    for at, sizes in blocks:
        corners = zip(at, sizes, numbers, strict=True)
        region = held[tuple(slice(number[start], number[start + size]) for start, size, number in corners)]
        if region.any():
            place = np.unravel_index(int(region.argmax()), region.shape)
            first = [numbers[axis][start] for axis, start in enumerate(at)]
            return tuple(edges[axis][first[axis] + int(step)] for axis, step in enumerate(place))
        region[...] = True
    return None
