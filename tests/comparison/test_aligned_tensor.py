"""A source's values are walked over in the order that a mapping says, wherever the borders of stretches lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.files import safetensors

from weighbridge.comparison import aligned_tensor
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.mapping.mapping_plan import Pairing, Part, rope_order
from weighbridge.views.checkpoint import open_checkpoint


@pytest.fixture(autouse=True)
def _small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned_tensor, "ELEMENTS", 16)
    monkeypatch.setattr(aligned_tensor, "BEHIND", 48)


def walked(folder: Path, values: Any, *parts: Part) -> list[float]:
    path = safetensors(folder / "x", {"w": ("F32", values.shape, values.tobytes())})
    view = open_checkpoint(path)
    aligned = AlignedTensor(view, view, Pairing(candidate="w", parts=parts, shape=values.shape))
    return [float(value) for words in aligned.predicted() for value in words.copy().view("<f4")]


@pytest.mark.slow
@given(heads=st.integers(1, 4), half=st.integers(1, 4), width=st.integers(1, 40))
def test_halves_of_heads_are_interleaved(tmp_path: Path, heads: int, half: int, width: int) -> None:
    values = np.arange(heads * 2 * half * width, dtype=np.float32).reshape(-1, width)
    meant = values.reshape(heads, 2, half, width).swapaxes(1, 2)
    assert walked(tmp_path, values, rope_order("w", heads, len(values))) == meant.ravel().tolist()


@pytest.mark.slow
@given(groups=st.integers(1, 3), each=st.integers(1, 3), rows=st.integers(1, 3), width=st.integers(1, 40))
def test_parts_of_a_fused_tensor_stand_one_after_the_other(
    tmp_path: Path, groups: int, each: int, rows: int, width: int
) -> None:
    values = np.arange(groups * (each + 1) * rows * width, dtype=np.float32).reshape(-1, width)
    cube = values.reshape(groups, each + 1, rows, width)
    cuts = ((1, 0, each), (1, each, each + 1))
    parts = [Part(source="w", view=(groups, each + 1, rows), take=cut) for cut in cuts]
    meant = [*cube[:, :each].ravel().tolist(), *cube[:, each:].ravel().tolist()]
    assert walked(tmp_path, values, *parts) == meant


@pytest.mark.slow
@given(stack=st.integers(1, 3), rows=st.integers(1, 20), columns=st.integers(1, 40))
def test_each_matrix_of_a_stack_is_transposed(tmp_path: Path, stack: int, rows: int, columns: int) -> None:
    values = np.arange(stack * rows * columns, dtype=np.float32).reshape(stack, rows, columns)
    meant = values.swapaxes(1, 2).ravel().tolist()
    assert walked(tmp_path, values, Part(source="w", transposed=True)) == meant
    assert walked(tmp_path, values[0], Part(source="w", transposed=True)) == meant[: rows * columns]
