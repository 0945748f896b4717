"""Two tensors' bytes are compared as Python compares them, wherever the borders of stretches and pieces lie."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.files import safetensors

from weighbridge.comparison import bytewise
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, size in {"STRETCH": 64, "PIECE": 24, "STEP": 8, "PROBE": 4}.items():
        monkeypatch.setattr(bytewise, constant, size)


def opened(path: Path, **tensors: tuple[str, bytes]) -> CheckpointView:
    return open_checkpoint(safetensors(path, {name: (t, [len(data)], data) for name, (t, data) in tensors.items()}))


@pytest.mark.slow
@given(zeros=st.integers(0, 200), data=st.binary(min_size=1, max_size=200), flips=st.sets(st.integers(0, 399)))
def test_every_differing_byte_is_found_in_its_place(tmp_path: Path, zeros: int, data: bytes, flips: set[int]) -> None:
    one = bytes(zeros) + data
    other = bytes(byte ^ (at in flips) for at, byte in enumerate(one))
    view = opened(tmp_path / "x", a=("U8", one), b=("U8", other), c=("I8", one), d=("U8", bytes(zeros) + b"\1"))
    a, b = (view, "a"), (view, "b")
    differing = [at for at, (old, new) in enumerate(zip(one, other, strict=True)) if old != new]
    assert bytewise.differing(a, b) == len(differing)
    assert bytewise.same(a, b) is (not differing)
    found = [(at, bytes(old), bytes(new)) for at, old, new in bytewise.unequal(a, b, 1)]
    assert all(one[at:].startswith(old) and other[at:].startswith(new) for at, old, new in found)
    assert all(at + len(old) <= behind for (at, old, _), (behind, *_) in pairwise(found))
    assert set(differing) <= {place for at, old, _ in found for place in range(at, at + len(old))}
    assert bytewise.any_nonzero(view, "b") is any(other)
    assert bytewise.any_nonzero(view, "d")


def test_the_same_bytes_under_another_dtype_or_beyond_an_end_are_not_the_same(tmp_path: Path) -> None:
    view = opened(tmp_path / "x", a=("U8", b"12"), b=("I8", b"12"), c=("U8", b"123"), d=("U8", b"12"))
    assert [bytewise.same((view, "a"), (view, name)) for name in "bcd"] == [False, False, True]
    assert [bytewise.LookAlikes(view).of(view, name) for name in "abcd"] == ["d", None, None, "a"]
