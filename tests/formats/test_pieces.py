"""A tensor in pieces reads as the one array that it is: any tiling, any dtype's width, any window, cut and overlaid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.dcp_files import WORDS, Chunk, Saved, write
from tests.formats.files import joined

from weighbridge.core.errors import SubjectError
from weighbridge.formats.dcp_directory import doubled
from weighbridge.formats.tensor import Block, boxes
from weighbridge.views.checkpoint import open_checkpoint


@st.composite
def tilings(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Block]:
    """Cut a shape along an axis, and each part again or not: what shards of shards look like."""
    blocks: list[Block] = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 5))):
        chosen = draw(st.integers(0, len(blocks) - 1))
        at, sizes = blocks[chosen]
        axis = draw(st.integers(0, len(shape) - 1))
        cut = draw(st.integers(0, sizes[axis]))
        first = tuple(cut if i == axis else n for i, n in enumerate(sizes))
        rest = tuple(n - cut if i == axis else n for i, n in enumerate(sizes))
        moved = tuple(n + cut if i == axis else n for i, n in enumerate(at))
        if cut not in (0, sizes[axis]):
            blocks[chosen : chosen + 1] = [(at, first), (moved, rest)]
    return draw(st.permutations(blocks))


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
tiled = shapes.flatmap(lambda shape: st.tuples(st.just(shape), tilings(shape)))


def array_of(dtype: str, shape: tuple[int, ...]) -> Any:
    width = WORDS[dtype][0]
    return (np.arange(int(np.prod(shape))) + 1).astype(f"<u{width}").reshape(shape)


def saved(dtype: str, array: Any, blocks: list[Block], turned: bool = False) -> Saved:
    chunks = []
    for number, (at, sizes) in enumerate(blocks):
        part = array[tuple(slice(start, start + n) for start, n in zip(at, sizes, strict=True))]
        stored = part.T if turned else part
        steps = tuple(step // array.itemsize for step in np.ascontiguousarray(stored).strides)
        data, file = stored.tobytes(), f"__{number % 3}_0.distcp"
        chunks.append(Chunk(at=at, sizes=sizes, data=data, file=file, steps=steps[::-1] if turned else None))
    return Saved(dtype=dtype, shape=array.shape, chunks=chunks)


@settings(max_examples=40)
@given(
    tiling=tiled,
    dtype=st.sampled_from(sorted(WORDS)),
    turned=st.booleans(),
    steps=st.tuples(st.integers(1, 30), st.sampled_from([1, 7, 64])),
    ends=st.tuples(st.integers(0, 300), st.integers(0, 300)),
)
def test_any_tiling_is_read_as_the_array_that_it_is(
    tmp_path_factory: pytest.TempPathFactory, *, tiling: Any, dtype: str, turned: bool, steps: Any, ends: Any
) -> None:
    (shape, blocks), (size, window) = tiling, steps
    array = array_of(dtype, shape)
    whole = array.tobytes()
    view = open_checkpoint(write(tmp_path_factory.mktemp("x") / "x", {"w": saved(dtype, array, blocks, turned)}))
    found = view.tensor("w")
    assert (found.dtype, found.shape, found.nbytes, len(found.stored)) == (dtype, shape, len(whole), len(blocks))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("weighbridge.formats.tensor.WINDOW", window)
        assert joined(view, "w", size) == whole
        start, stop = sorted(min(end, len(whole)) for end in ends)
        assert bytes(view.read("w", start, stop)) == whole[start:stop]
    view.forget("w")
    tail = view.overlaid("w", len(whole) - 1, b"!").cut(["w"], 2)
    assert joined(tail, "w", size) == (whole[:-1] + b"!")[-2 * found.unit[1] :]


@pytest.mark.parametrize("turned", [False, True])
def test_the_byte_of_a_file_is_the_one_in_its_piece(tmp_path: Path, turned: bool) -> None:
    array = array_of("BF16", (2, 4))
    printed = saved("BF16", array, [((0, 0), (2, 3)), ((0, 3), (2, 1))], turned)
    view = open_checkpoint(write(tmp_path / "x", {"w": printed}))
    found = view.tensor("w")
    assert found.pieces is not None
    for at, byte in enumerate(array.tobytes()):
        piece, _ = found.pieces.holder(at // 2)
        offset = found.file_offset(at)
        assert view.files[piece.stored.file].read(offset, offset + 1)[0] == byte


@given(shape=shapes, data=st.data())
def test_boxes_are_a_stretch_in_row_major_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    first = data.draw(st.integers(0, numbers.size))
    many = data.draw(st.integers(0, numbers.size - first))
    cut = list(boxes(shape, first, many))
    assert len(cut) <= 2 * len(shape)
    taken = [numbers[tuple(slice(a, a + n) for a, n in zip(*box, strict=True))].reshape(-1) for box in cut]
    assert np.array_equal(np.concatenate([numbers[:0].reshape(-1), *taken]), np.arange(first, first + many))


@pytest.mark.slow
@given(tiling=tiled)
def test_a_tiling_holds_no_element_twice(tiling: tuple[tuple[int, ...], list[Block]]) -> None:
    assert doubled(*tiling) is None


@pytest.mark.slow
@given(shape=shapes, data=st.data())
def test_an_element_stored_twice_is_found_wherever_blocks_lie(shape: tuple[int, ...], data: st.DataObject) -> None:
    blocks, holders = [], np.zeros(shape, int)
    for _ in range(data.draw(st.integers(0, 4))):
        at = tuple(data.draw(st.integers(0, size)) for size in shape)
        sizes = tuple(data.draw(st.integers(0, size - start)) for size, start in zip(shape, at, strict=True))
        blocks.append((at, sizes))
        holders[tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))] += 1
    found = doubled(shape, blocks)
    assert (found is None) == (holders.max() < 2)
    assert found is None or holders[found] >= 2


@pytest.mark.parametrize(("many", "rank", "most"), [(4, 8, 1600), (300, 4, 4194304)])
def test_a_tiling_of_too_many_cells_is_not_tried(many: int, rank: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"more than {most} cells"):
        doubled((1 << 40,) * rank, [((number,) * rank, (1,) * rank) for number in range(many)])


def test_a_file_that_changes_after_the_last_piece_was_read_is_reported(tmp_path: Path) -> None:
    array = array_of("U8", (4,))
    folder = write(tmp_path / "x", {"w": saved("U8", array, [((0,), (2,)), ((2,), (2,))])})
    windows = open_checkpoint(folder).chunks("w", 4)
    assert bytes(next(windows)) == array.tobytes()
    with (folder / "__0_0.distcp").open("ab") as file:
        file.write(b"more")
    with pytest.raises(SubjectError, match="subject-changed"):
        next(windows)


def test_a_file_that_changes_while_its_pieces_are_read_is_reported(tmp_path: Path) -> None:
    array = array_of("F32", (4, 3))
    folder = write(tmp_path / "x", {"w": saved("F32", array, [((0, 0), (2, 3)), ((2, 0), (2, 3))])})
    view = open_checkpoint(folder)
    assert joined(view, "w") == array.tobytes()
    with (folder / "__1_0.distcp").open("ab") as file:
        file.write(b"more")
    assert bytes(view.read("w", 0, 24)) == array.tobytes()[:24]  # the first piece's file is as it was
    for look in (lambda: joined(view, "w"), lambda: view.read("w", 24, 25), lambda: view.require_unchanged("w")):
        with pytest.raises(SubjectError, match="subject-changed") as caught:
            look()
        assert caught.value.where == str(folder / "__1_0.distcp")
