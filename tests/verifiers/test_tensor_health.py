"""tensor_health finds what is odd wherever it lies, in files that their own libraries wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.formats.files import gguf_bytes, info
from tests.verifiers.tensors import view_of

from weighbridge.comparison import casts
from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement
from weighbridge.evaluation.runner import lay_canary
from weighbridge.formats.tensor import UNITS
from weighbridge.verifiers import tensor_health, tensor_walk
from weighbridge.verifiers.tensor_health import VERIFIER, Health
from weighbridge.verifiers.verifier import NoCanary, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

WEIGHTS = np.random.default_rng(0).standard_normal((40, 50)).astype("<f4")


def rows_of(view: CheckpointView) -> dict[str, Any]:
    return rows_by_name(VERIFIER.measure((view,), {}))


@pytest.mark.parametrize("dtype", ["<f2", ml_dtypes.bfloat16, "<f4", "<f8"])
def test_counts_every_nan_and_infinity(tmp_path: Path, dtype: Any) -> None:
    values = WEIGHTS.astype(dtype)
    values[3, 4] = values[39, 49] = np.nan
    values[0, 0] = -np.inf
    row = rows_of(view_of(tmp_path, w=values))["w"]
    assert (row.nan, row.infinite) == (2, 1)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "<f4", "<f8"])
def test_counts_what_f16_cannot_hold(tmp_path: Path, dtype: Any) -> None:
    values = WEIGHTS.astype(dtype)
    values[0, :5] = 65536, -1e30, 65280, np.inf, np.nan
    row = rows_of(view_of(tmp_path, w=values, x=WEIGHTS.astype("<f2")))
    assert (row["w"].beyond_f16, row["w"].nan, row["w"].infinite, row["x"].beyond_f16) == (2, 1, 1, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 7))
def test_the_tail_of_zeros_is_found_whatever_the_step(words: list[int], step: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_walk, "STEP", step)
        row = rows_of(view_of(Path(folder), w=np.array(words, "<i2")))["w"]
    tail = len(words) - max((at + 1 for at, word in enumerate(words) if word), default=0)
    assert row.zero_tail_bytes == 2 * tail
    assert row.all_zero == (not any(words))
    assert row.constant == (len(set(words)) == 1)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda wide: st.lists(st.lists(st.integers(0, 1), min_size=wide, max_size=wide), min_size=1, max_size=6)
    ),
    st.integers(1, 7),
)
def test_rows_of_zeros_and_columns_of_them_at_the_end_are_counted_whatever_the_step(
    rows: list[list[int]], step: int
) -> None:
    import tempfile

    words = np.array(rows, "<i2")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_walk, "STEP", step)
        row = rows_of(view_of(Path(folder), w=words))["w"]
    found = row.zero_tail_columns
    assert row.zero_rows == (np.count_nonzero(~words.any(1)) if min(words.shape) > 1 else 0)
    zero = words.shape[1] - max((at + 1 for at in np.flatnonzero(words.any(0)).tolist()), default=0)
    assert found == (zero if min(words.shape) > 1 else 0)


@pytest.mark.parametrize("dtype", ["<f2", ml_dtypes.bfloat16, "<f4", "<f8"])
def test_a_row_of_zeros_of_either_sign_is_one(tmp_path: Path, dtype: Any) -> None:
    values = WEIGHTS.astype(dtype)
    values[3:9] *= 0
    values[20, 0] = -0.0
    assert np.signbit(values[3]).any()
    assert rows_of(view_of(tmp_path, w=values))["w"].zero_rows == 6


def test_of_blocks_columns_of_zeros_are_counted_in_whole_ones(tmp_path: Path) -> None:
    writer, q8_0 = gguf.GGUFWriter(tmp_path / "x.gguf", "llama"), gguf.GGMLQuantizationType.Q8_0
    values = np.resize(WEIGHTS, (40, 128)).copy()
    values[:, 60:] = 0
    writer.add_tensor("w", gguf.quantize(values, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert rows_of(open_checkpoint(tmp_path / "x.gguf"))["w"].zero_tail_columns == 64


def test_names_the_first_of_equal_tensors_and_no_other(tmp_path: Path) -> None:
    other = WEIGHTS.copy()
    other[20, 1] += 1  # where no probe looks
    tensors = {"a": WEIGHTS, "b": other, "c": WEIGHTS, "d": WEIGHTS.view("<i4"), "e": WEIGHTS, "f": WEIGHTS[:20]}
    repeats = {name: row.repeats for name, row in rows_of(view_of(tmp_path, **tensors)).items()}
    assert repeats == {"a": None, "b": None, "c": "a", "d": None, "e": "a", "f": None}


@pytest.mark.parametrize(
    ("name", "flaws"),
    [
        ("model.layers.0.weight", ()),
        ("", ("it is empty",)),
        ("a\x1b[2J", ("a control character",)),
        ("../../etc/passwd", ("a path",)),
        ("/etc/passwd", ("a path",)),
        ("..\\a", ("a path",)),
        ("a/b..c", ()),
    ],
)
def test_a_name_that_breaks_tools_is_found(name: str, flaws: tuple[str, ...]) -> None:
    assert tensor_health.flaws(name) == flaws


@pytest.mark.parametrize("dtype", ["<f2", ml_dtypes.bfloat16, "<f4", "<f8", "<i4", "|u1", ml_dtypes.float8_e4m3fn])
def test_the_canary_is_seen_in_the_last_tensor(tmp_path: Path, dtype: Any) -> None:
    view = view_of(tmp_path, a=WEIGHTS.astype(dtype), b=WEIGHTS.astype(dtype), c=np.zeros(3, "|u1"))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = lay_canary(VERIFIER, (view,), {}, found)
    assert (canary.place, canary.applied, canary.seen) == ("b", True, True)


def blocks_of(folder: Path, dtype: str, count: int = 40) -> CheckpointView:
    """Write two tensors of whole blocks of ones."""
    kind, (elements, size) = gguf.GGMLQuantizationType[dtype], UNITS[dtype]
    data = np.ones((1, count * size), np.uint8)
    entries = [info(name, (count * elements,), kind, at * -(-data.nbytes // 32) * 32) for at, name in enumerate("ab")]
    padded = data.tobytes() + bytes(-data.nbytes % 32)
    (folder / "x.gguf").write_bytes(gguf_bytes([], entries, padded + padded[: data.nbytes]))
    return open_checkpoint(folder / "x.gguf")


@each("dtype", casts.DECODED)
def test_the_canary_is_seen_in_blocks(tmp_path: Path, dtype: str) -> None:
    view = blocks_of(tmp_path, dtype)
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = lay_canary(VERIFIER, (view,), {}, found)
    assert (canary.place, canary.applied, canary.seen) == ("b", True, True)


@pytest.mark.parametrize(
    ("dtype", "nan"), [("Q4_0", 32), ("Q6_K", 256), ("IQ1_M", 256), ("Q8_K", None), ("Q8_1", None)]
)
def test_a_block_whose_scale_is_nan_is_counted_and_what_nobody_decodes_is_not(
    tmp_path: Path, dtype: str, nan: int | None
) -> None:
    size = UNITS[dtype][1]
    view = blocks_of(tmp_path, dtype).overlaid("b", 7 * size, b"\xff" * size)
    assert [row.nan for row in rows_of(view).values()] == [None if nan is None else 0, nan]


def test_integers_cannot_be_nan_and_both_parts_of_complex_numbers_can(tmp_path: Path) -> None:
    both = np.array([complex(np.nan, np.inf), 1], np.complex64)
    np.savez(tmp_path / "x.npz", b=both, a=np.full(3, -1, np.int32))
    rows = rows_of(open_checkpoint(tmp_path / "x.npz"))
    assert {name: (row.nan, row.infinite) for name, row in rows.items()} == {"a": (0, 0), "b": (1, 1)}


def blind(kind: str, whole: Any, kept: dict[str, Any]) -> Any:
    rows: dict[str, Any] = {
        "constant": lambda self: kept[self.tensor.name],
        "first tensor only": lambda self: whole(self) if self.tensor.name == "a" else kept[self.tensor.name],
        "no infinities": lambda self: dataclasses.replace(whole(self), infinite=0),
        "no repeats": lambda self: dataclasses.replace(whole(self), repeats=None),
        "no tail": lambda self: dataclasses.replace(whole(self), zero_tail_bytes=0),
        "no columns": lambda self: dataclasses.replace(whole(self), zero_tail_columns=0),
    }
    return rows[kind]


@pytest.mark.parametrize(
    "kind", ["constant", "first tensor only", "no infinities", "no repeats", "no tail", "no columns"]
)
def test_a_blind_instrument_is_seen_to_be_blind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    view = view_of(tmp_path, a=WEIGHTS, b=WEIGHTS + 1)
    right = VERIFIER.measure((view,), {})
    assert isinstance(right, Measurement)
    monkeypatch.setattr(Health, "row", blind(kind, Health.row, rows_of(view)))
    canary = VERIFIER.canary((view,), {}, right)
    assert not isinstance(canary, NoCanary)
    assert not canary.seen(VERIFIER.measure(canary.views, {}))


def test_the_canary_lies_beyond_the_first_step(tmp_path: Path) -> None:
    view = view_of(tmp_path, a=WEIGHTS, b=np.resize(WEIGHTS, (4, 100_000)))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    assert canary.views[0].tensor("b").elements == 2 * tensor_walk.STEP + 256


def test_tensors_without_room_have_no_canary(tmp_path: Path) -> None:
    view = view_of(tmp_path, a=np.zeros(4, "<i4"))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    assert VERIFIER.canary((view,), {}, found) == NoCanary("no tensor has room for the damage")


def test_a_file_that_is_written_to_meanwhile_is_an_error(tmp_path: Path) -> None:
    view = view_of(tmp_path, a=WEIGHTS)
    with (tmp_path / "x.safetensors").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(SubjectError) as raised:
        VERIFIER.measure((view,), {})
    assert raised.value.code == "subject-changed"
