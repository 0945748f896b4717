"""tensor_pairs counts what is there, explains what is not, and cannot be replaced by something that does not look."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.verifiers.rows import canary_seen, rows_of
from tests.views.files import Entry, gguf_bytes, info, safetensors

from weighbridge.model import Rows
from weighbridge.verifiers import VERIFIERS, bytewise, tensor_pairs
from weighbridge.verifiers.base import Canary, NoCanary, Views
from weighbridge.verifiers.tensor_pairs import VERIFIER
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

RNG = np.random.default_rng(7)
VALUES = RNG.standard_normal((48, 32)).astype(np.float32)
NORM = np.array([7.5625, 8.0, 7.21875, 7.3125, 7.46875, 7.375], np.float32)


def bf16(values: Any) -> bytes:
    return bytes(np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).tobytes())


def views(folder: Path, source: Mapping[str, Entry], candidate: Mapping[str, Entry]) -> tuple[Any, Any]:
    return (
        open_checkpoint(safetensors(folder / "source", source)),
        open_checkpoint(safetensors(folder / "candidate", candidate)),
    )


def rows(pair: Views) -> dict[str, Any]:
    return rows_of(VERIFIER, *pair)


def one(folder: Path, source: Entry, candidate: Entry) -> Any:
    return rows(views(folder, {"w": source}, {"w": candidate}))["w"]


def test_is_registered_for_two_checkpoints() -> None:
    assert VERIFIERS[VERIFIER.quantity, VERIFIER.kinds] is VERIFIER


def test_bf16_bytes_labelled_f16_are_reproduced_by_that_reading_alone(tmp_path: Path) -> None:
    row = one(tmp_path, ("BF16", (48, 32), bf16(VALUES)), ("F16", (48, 32), bf16(VALUES)))
    assert row["differing_bytes"] == 0
    assert row["reproduced"]["bf16-bits-as-f16"] == row["reproduced"]["relabelled"] == 48 * 32
    assert row["reproduced"]["value-cast"] < 48 * 32
    assert row["reproduced"]["truncated"] < 48 * 32


def test_f16_bytes_labelled_bf16_are_reproduced_by_that_reading(tmp_path: Path) -> None:
    data = VALUES.astype(np.float16).tobytes()
    row = one(tmp_path, ("F16", (48, 32), data), ("BF16", (48, 32), data))
    assert row["reproduced"]["f16-bits-as-bf16"] == 48 * 32


def test_other_weights_are_reproduced_by_nothing(tmp_path: Path) -> None:
    other = np.array([7.0625, 7.125, 7.0, 7.0625, 6.75, 6.875], np.float16).tobytes()
    row = one(tmp_path, ("BF16", (6,), bf16(NORM)), ("F16", (6,), other))
    assert 6 not in row["reproduced"].values()
    assert row["other"] is None


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("byte-swapped", lambda x: x.byteswap()),
        ("through-f16", lambda x: x.astype(np.float16).astype(np.float32)),
        ("through-bf16", lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32)),
    ],
)
def test_a_changed_f32_is_reproduced_by_what_changed_it(tmp_path: Path, name: str, make: Any) -> None:
    row = one(tmp_path, ("F32", (48, 32), VALUES.tobytes()), ("F32", (48, 32), make(VALUES).tobytes()))
    assert row["reproduced"][name] == 48 * 32
    assert row["reproduced"]["identical"] < 48 * 32


def test_cut_towards_zero_is_told_from_rounded(tmp_path: Path) -> None:
    cut = (VALUES.view("<u4") >> 16).astype("<u2").tobytes()
    row = one(tmp_path, ("F32", (48, 32), VALUES.tobytes()), ("BF16", (48, 32), cut))
    assert row["reproduced"]["truncated"] == 48 * 32
    assert row["reproduced"]["value-cast"] < 48 * 32


@pytest.mark.parametrize("square", [True, False])
def test_a_transpose_is_counted_in_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, square: bool) -> None:
    monkeypatch.setattr("weighbridge.verifiers.hypotheses.TILE", 5)
    values = VALUES[:32] if square else VALUES
    source = ("BF16", values.shape, bf16(values))
    row = one(tmp_path, source, ("BF16", values.shape[::-1], bf16(values.T)))
    assert row["reproduced"]["transposed"] == values.size
    assert ("identical" in row["reproduced"]) is square


def test_the_tensor_that_took_anothers_place_is_named(tmp_path: Path) -> None:
    a, b = ("F32", (8,), VALUES[0, :8].tobytes()), ("F32", (8,), VALUES[1, :8].tobytes())
    found = rows(views(tmp_path, {"a": a, "b": b}, {"a": b, "b": b}))
    assert (found["a"]["other"], found["a"]["reproduced"]["other-tensor"]) == ("b", 8)
    assert found["b"]["other"] is None


def test_a_name_on_one_side_has_a_row_without_the_other(tmp_path: Path) -> None:
    found = rows(views(tmp_path, {"a": ("U8", (2,), b"\0\1")}, {"b": ("I8", (3,), b"\0\0\0")}))
    assert list(found) == ["a", "b"]
    assert (found["a"]["candidate_dtype"], found["a"]["candidate_shape"], found["a"]["elements"]) == ("", [], 2)
    assert (found["b"]["source_dtype"], found["b"]["source_bytes"], found["b"]["nonzero"]) == ("", 0, False)


def test_a_nan_is_compared_by_its_bits(tmp_path: Path) -> None:
    nan, other = bytes.fromhex("0100807f"), bytes.fromhex("0000c07f")
    assert one(tmp_path, ("F32", (1,), nan), ("F32", (1,), nan))["reproduced"]["identical"] == 1
    assert one(tmp_path, ("F32", (1,), nan), ("F32", (1,), other))["reproduced"]["identical"] == 0


def test_blocks_are_compared_by_bytes_and_have_no_cast(tmp_path: Path) -> None:
    blocks = bytearray(range(36))
    pair = []
    for name in ("source", "candidate"):
        (tmp_path / name).write_bytes(gguf_bytes([], [info("q", (64,), 2, 0)], bytes(blocks)))
        pair.append(open_checkpoint(tmp_path / name))
        blocks[20] ^= 1
    row = rows(tuple(pair))["q"]
    assert row["reproduced"] == {"identical": 32}
    assert (row["differing_bytes"], row["first_difference"]["index"]) == (1, 32)
    assert (row["first_difference"]["source_hex"], row["first_difference"]["source_value"]) == ("0x14", "")


def test_packed_bits_count_whole_units(tmp_path: Path) -> None:
    row = one(tmp_path, ("F4", (4,), b"\x12\x34"), ("F4", (4,), b"\x12\x35"))
    assert row["reproduced"] == {"identical": 2}


@settings(max_examples=40)
@given(flips=st.sets(st.integers(0, 4999), max_size=6), chunk=st.sampled_from([16, 64, 1 << 20]))
def test_counts_exactly_the_bytes_that_differ(tmp_path: Path, flips: set[int], chunk: int) -> None:
    data = bytearray(RNG.integers(0, 256, 5000, dtype=np.uint8).tobytes())
    source = bytes(data)
    for at in flips:
        data[at] ^= 0x10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytewise, "PIECE", chunk)
        patch.setattr(bytewise, "STRETCH", 3 * chunk)
        row = one(tmp_path, ("U16", (2500,), source), ("U16", (2500,), bytes(data)))
    assert row["differing_bytes"] == len(flips)
    assert row["reproduced"]["identical"] == 2500 - len({at // 2 for at in flips})
    first = row["first_difference"]
    assert (first is None) if not flips else (first["offset"], first["index"]) == (min(flips), min(flips) // 2)


def test_the_first_element_that_a_cast_does_not_give_is_shown_with_both_values(tmp_path: Path) -> None:
    wide = NORM.copy()
    wide[4] = 1.5
    row = one(tmp_path, ("BF16", (6,), bf16(NORM)), ("F32", (6,), wide.tobytes()))
    assert row["reproduced"]["value-cast"] == 5
    assert row["first_difference"] == {
        "offset": 16,
        "file_offset": row["first_difference"]["file_offset"],
        "index": 4,
        "source_hex": "0x40ef",
        "candidate_hex": "0x3fc00000",
        "source_value": "7.46875",
        "candidate_value": "1.5",
    }


# --- The canary -------------------------------------------------------------------------------------------------------


BIG = RNG.standard_normal(3 << 18).astype(np.float32)
SOURCE: dict[str, Entry] = {
    "a": ("BF16", (6,), bf16(NORM)),
    "b": ("F32", (3 << 18,), BIG.tobytes()),
    "c": ("U8", (0,), b""),
}


def test_a_seeing_instrument_sees_the_canary(tmp_path: Path) -> None:
    widened = {**SOURCE, "a": ("F32", (6,), NORM.tobytes())}
    assert canary_seen(VERIFIER, views(tmp_path, SOURCE, SOURCE))
    assert canary_seen(VERIFIER, views(tmp_path, SOURCE, widened))
    assert canary_seen(VERIFIER, views(tmp_path, {"a": SOURCE["a"]}, {"a": widened["a"]}))
    assert canary_seen(VERIFIER, views(tmp_path, {"a": SOURCE["a"]}, {"a": ("F16", (6,), bf16(NORM))}))


def test_a_constant_is_blind(tmp_path: Path) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)
    whole = VERIFIER.measure(pair, {})
    assert not canary_seen(VERIFIER, pair, lambda _views, _options: whole)


def test_an_instrument_that_looks_at_its_first_tensor_only_is_blind(tmp_path: Path) -> None:
    def first_only(pair: Views, options: Any) -> Any:
        source, candidate = pair
        name = source.names()[0]
        return VERIFIER.measure((source.cut([name]), candidate.cut([name])), options)

    def first_repeated(pair: Views, options: Any) -> Any:
        found = first_only(pair, options)
        row = found.value.rows[0]
        rows = tuple({**row, "name": name} for name in pair[0].names())
        return dataclasses.replace(found, value=Rows("name", rows))

    pair = views(tmp_path, SOURCE, SOURCE)
    assert not canary_seen(VERIFIER, pair, first_only)
    assert not canary_seen(VERIFIER, pair, first_repeated)


def test_an_instrument_that_looks_at_its_first_chunk_only_is_blind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)
    whole = CheckpointView.chunks

    def first_chunk(view: CheckpointView, name: str, size: int) -> Any:
        return list(whole(view, name, size))[:1]

    assert canary_seen(VERIFIER, pair)
    monkeypatch.setattr(CheckpointView, "chunks", first_chunk)
    assert not canary_seen(VERIFIER, pair)


def test_the_canary_is_cut_down_whatever_the_size(tmp_path: Path) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)
    canary = VERIFIER.canary(pair, {}, VERIFIER.measure(pair, {}))  # type: ignore[arg-type]
    assert isinstance(canary, Canary)
    assert canary.place == "b"
    assert {view.names() for view in canary.views} == {("a", "b")}
    assert canary.views[1].tensor("b").elements == (1 << 18) + 512


def test_where_nothing_can_be_compared_there_is_no_canary(tmp_path: Path) -> None:
    pair = views(tmp_path, {"a": ("U8", (0,), b"")}, {"a": ("U8", (0,), b""), "b": ("U8", (1,), b"1")})
    assert isinstance(VERIFIER.canary(pair, {}, VERIFIER.measure(pair, {})), NoCanary)  # type: ignore[arg-type]
    assert tensor_pairs.extent(pair, {}) == 2
