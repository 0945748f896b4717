"""tensor_values finds the exact way where there is one, measures errors where there is none, and sees its canary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.formats.files import Entry, gguf_bytes, info, safetensors

from weighbridge.comparison import aligned_tensor, bytewise, value_errors
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import REQUANTISED, find_exact_cast
from weighbridge.core.canonical import dumps
from weighbridge.core.limits import plain
from weighbridge.core.model import Measurement, Rows
from weighbridge.mapping.mapping_plan import Pairing, Part
from weighbridge.quantities.tensors import FirstDifference
from weighbridge.scheduling.threads import Execution
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.tensor_values import VERIFIER, batch
from weighbridge.verifiers.verifier import Canary, MeasurementJob, NoCanary, Views
from weighbridge.views.checkpoint import open_checkpoint

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


BIG = RNG.standard_normal(3 << 18).astype(np.float32)
SOURCE: dict[str, Entry] = {
    "a": ("BF16", (6,), bf16(NORM)),
    "b": ("F32", (3 << 18,), BIG.tobytes()),
    "c": ("U8", (0,), b""),
}
WIDE = np.random.default_rng(11).standard_normal((8, 512)).astype(np.float32)
IDS = {kind.name: int(kind) for kind in gguf.GGMLQuantizationType}


def rows(pair: Views, **options: Any) -> dict[str, Any]:
    found = VERIFIER.measure(pair, options)
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    dumps([plain(row) for row in found.value.rows])  # plain JSON, no NumPy scalar
    assert found.total == VERIFIER.extent(pair, options)
    return {row.name: row for row in found.value.rows}


def one(folder: Path, source: Any, candidate: Any) -> Any:
    return rows(views(folder, {"w": source}, {"w": candidate}))["w"]


def quantised(folder: Path, dtype: str, data: bytes, source: Any = None) -> Any:
    """Measure a GGUF tensor of a block type against F32 values, or others."""
    given = source or ("F32", WIDE.shape, WIDE.tobytes())
    pair = views(folder, {"w": given}, {"w": given})
    (folder / "blocks").write_bytes(gguf_bytes([], [info("w", WIDE.shape[::-1], IDS[dtype], 0)], data))
    return pair[0], open_checkpoint(folder / "blocks")


def blocks(dtype: str, values: Any = WIDE) -> bytes:
    return bytes(gguf.quantize(values, gguf.GGMLQuantizationType[dtype]).tobytes())


def test_is_registered_for_two_checkpoints() -> None:
    assert VERIFIERS[VERIFIER.quantity, VERIFIER.kinds] is VERIFIER


@pytest.mark.parametrize("dtype", REQUANTISED)
def test_blocks_that_the_source_gives_again_are_counted_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    row = rows(quantised(tmp_path, dtype, blocks(dtype)))["w"]
    assert row.reproduced == {"requantised": WIDE.size}
    assert row.relative_rmse is None


def test_bf16_is_requantised_from_its_values(tmp_path: Path) -> None:
    short = WIDE.astype(ml_dtypes.bfloat16)
    source = "BF16", WIDE.shape, short.tobytes()
    row = rows(quantised(tmp_path, "Q8_0", blocks("Q8_0", short.astype(np.float32)), source))["w"]
    assert row.reproduced == {"requantised": WIDE.size}


@pytest.mark.parametrize(("name", "between"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_blocks_of_values_that_were_rounded_before_are_counted_as_such(tmp_path: Path, name: str, between: Any) -> None:
    row = rows(quantised(tmp_path, "Q8_0", blocks("Q8_0", WIDE.astype(between).astype(np.float32))))["w"]
    assert row.reproduced[f"requantised-through-{name}"] == WIDE.size > row.reproduced["requantised"]


def test_a_changed_block_costs_its_elements_and_is_shown(tmp_path: Path) -> None:
    data = bytearray(blocks("Q8_0"))
    data[34 * 5 + 3] ^= 0x10
    row = rows(quantised(tmp_path, "Q8_0", bytes(data)))["w"]
    assert row.reproduced["requantised"] == WIDE.size - 32
    assert (row.first_difference.index, row.first_difference.offset) == (161, 34 * 5 + 3)
    assert 0 < row.relative_rmse < 0.01


@pytest.mark.parametrize(("times", "lost"), [(0.6, 0.0), (-0.6, 1.0), (-1.0, 1.0)])
def test_blocks_of_the_other_sign_are_lost_however_small_their_error(tmp_path: Path, times: float, lost: float) -> None:
    row = rows(quantised(tmp_path, "Q8_0", blocks("Q8_0", np.float32(times) * WIDE)))["w"]
    assert row.lost_share == lost


def test_errors_are_summed_to_the_last_value_whatever_the_bite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_errors, "BITE", 768)  # the steps of this tensor are no multiple of it
    data = blocks("Q8_0", np.float32(0.5) * WIDE)
    row = rows(quantised(tmp_path, "Q8_0", data))["w"]
    off = WIDE - gguf.dequantize(np.frombuffer(data, np.uint8), gguf.GGMLQuantizationType.Q8_0).reshape(WIDE.shape)
    assert row.relative_rmse == pytest.approx(float(np.sqrt(np.square(off).sum() / np.square(WIDE).sum())), rel=1e-6)
    assert row.max_error == pytest.approx(float(np.abs(off).max()), rel=1e-6)


def test_a_block_type_without_a_quantiser_is_measured_by_its_errors(tmp_path: Path) -> None:
    data = bytes(144 * WIDE.size // 256)
    row = rows(quantised(tmp_path, "Q4_K", data))["w"]
    assert row.reproduced == {}
    assert (row.relative_rmse, row.lost_share) == (1.0, 1.0)
    assert row.max_error == np.abs(WIDE).max()


LOST: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "zeros": (lambda x: 0 * x, True),
    "turned in sign": (lambda x: -x, True),
    "its values the other way round": (lambda x: x[::-1], True),
    "three times as large": (lambda x: 3.1 * x, True),
    "twice as large": (lambda x: 2 * x, False),  # as blocks of two bits with importances are
    "its largest values alone": (lambda x: np.where(np.abs(x) < np.median(np.abs(x)), 0, x), False),
}


@pytest.mark.parametrize("name", LOST)
def test_a_block_that_is_not_like_its_values_is_reported_by_its_share_alone(tmp_path: Path, name: str) -> None:
    change, lost = LOST[name]
    values = WIDE.copy()
    values[-1, -32:] = change(values[-1, -32:])
    row = rows(quantised(tmp_path, "Q8_0", blocks("Q8_0", values)))["w"]
    share = float(np.square(WIDE.reshape(-1)[-32:].astype(float)).sum() / np.square(WIDE.astype(float)).sum())
    assert row.lost_share == pytest.approx(share if lost else 0.0, rel=1e-12)


def test_what_no_library_reads_back_is_not_compared(tmp_path: Path) -> None:
    row = rows(quantised(tmp_path, "Q8_K", bytes(292 * WIDE.size // 256)))["w"]
    assert (row.compared, row.reproduced, row.relative_rmse) == (False, {}, None)


@pytest.mark.parametrize("dtype", ["Q8_0", "Q4_K"])
def test_values_that_are_not_finite_give_no_error(tmp_path: Path, dtype: str) -> None:
    size = {"Q8_0": 34, "Q4_K": 144}[dtype]
    data = bytearray(size * WIDE.size // {"Q8_0": 32, "Q4_K": 256}[dtype])
    data[0:2] = b"\x00\x7e"
    row = rows(quantised(tmp_path, dtype, bytes(data)))["w"]
    assert (row.compared, row.relative_rmse, row.max_error) == (True, None, None)


def test_the_same_values_in_another_order_are_found(tmp_path: Path) -> None:
    turned = VALUES[::-1].copy()
    found = one(tmp_path, ("F32", (48, 32), VALUES.tobytes()), ("BF16", (48, 32), bf16(turned)))
    assert found.same_values is True
    turned[0, 0] += 1
    found = one(tmp_path, ("F32", (48, 32), VALUES.tobytes()), ("BF16", (48, 32), bf16(turned)))
    assert found.same_values is False


def test_the_wider_side_as_the_import_is_found(tmp_path: Path) -> None:
    found = one(tmp_path, ("BF16", (48, 32), bf16(VALUES)), ("F32", (48, 32), VALUES.tobytes()))
    assert found.reproduced["swapped"] == VALUES.size
    back = views(tmp_path, {"w": ("F32", WIDE.shape, WIDE.tobytes())}, {})[0]
    (tmp_path / "q").write_bytes(gguf_bytes([], [info("w", WIDE.shape[::-1], 8, 0)], blocks("Q8_0")))
    decoded = rows((open_checkpoint(tmp_path / "q"), back))["w"]
    assert (decoded.packed, decoded.reproduced["identical"]) == ("Q8_0", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(-300, 300), min_size=1, max_size=20), wide=st.booleans())
def test_the_largest_distance_is_counted_in_units_of_the_last_place(
    tmp_path: Path, steps: list[int], wide: bool
) -> None:
    unsigned, dtype = ("<u4", "F32") if wide else ("<u2", "F16")
    base = np.full(len(steps), 1.0, "<f4" if wide else "<f2").view(unsigned)
    moved = (base.astype(np.int64) + np.array(steps)).astype(unsigned)
    row = one(tmp_path, (dtype, (len(steps),), base.tobytes()), (dtype, (len(steps),), moved.tobytes()))
    if any(steps):
        assert row.max_ulps == max(map(abs, steps))
        assert row.first_difference.ulps == abs(next(step for step in steps if step))
    else:
        assert row.max_ulps is None


@pytest.mark.parametrize(("many", "printed"), [(7, False), (8, True)])
def test_a_factor_is_reported_of_eight_values_and_not_of_fewer(tmp_path: Path, many: int, *, printed: bool) -> None:
    values = WIDE.reshape(-1)[:many]
    pair = (("F32", (many,), one.tobytes()) for one in (values, values * np.float32(1.5)))
    assert ("scaled" in one(tmp_path, *pair).reproduced) is printed


def test_zero_and_its_negative_are_no_distance_apart(tmp_path: Path) -> None:
    row = one(tmp_path, ("F32", (1,), bytes(4)), ("F32", (1,), bytes.fromhex("00000080")))
    assert (row.max_ulps, row.relative_rmse, row.reproduced["identical"]) == (0, 0.0, 0)


def test_labels_alone_look_at_no_content(tmp_path: Path) -> None:
    found = rows(views(tmp_path, SOURCE, SOURCE), headers=True)
    assert {row.compared for row in found.values()} == {False}
    assert {row.first_difference for row in found.values()} == {None}


def test_who_asks_hears_how_far_it_has_come(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    execution = Execution(on_progress=lambda done, whole: heard.append((done, whole)))
    batch([MeasurementJob(VERIFIER, views(tmp_path, SOURCE, SOURCE))], {}, execution)
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] == 2 * (12 + 4 * (3 << 18))


def test_bytes_that_are_equal_cost_one_look_and_are_never_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(_: aligned_tensor.AlignedTensor) -> Any:
        raise AssertionError("words were looked at")

    monkeypatch.setattr(aligned_tensor.AlignedTensor, "steps", decoded)
    found = rows(views(tmp_path, SOURCE, SOURCE))
    assert {name: row.reproduced["identical"] for name, row in found.items()} == {"a": 6, "b": 3 << 18, "c": 0}


def test_bf16_bytes_labelled_f16_are_reproduced_by_that_reading_alone(tmp_path: Path) -> None:
    row = one(tmp_path, ("BF16", (48, 32), bf16(VALUES)), ("F16", (48, 32), bf16(VALUES)))
    assert row.differing_bytes == 0
    assert row.reproduced["bf16-bits-as-f16"] == row.reproduced["relabelled"] == 48 * 32
    assert row.reproduced["value-cast"] < 48 * 32
    assert row.reproduced["truncated"] < 48 * 32


def test_f16_bytes_labelled_bf16_are_reproduced_by_that_reading(tmp_path: Path) -> None:
    data = VALUES.astype(np.float16).tobytes()
    row = one(tmp_path, ("F16", (48, 32), data), ("BF16", (48, 32), data))
    assert row.reproduced["f16-bits-as-bf16"] == 48 * 32


def test_other_weights_are_reproduced_by_nothing(tmp_path: Path) -> None:
    other = np.array([7.0625, 7.125, 7.0, 7.0625, 6.75, 6.875], np.float16).tobytes()
    row = one(tmp_path, ("BF16", (6,), bf16(NORM)), ("F16", (6,), other))
    assert 6 not in row.reproduced.values()
    assert row.other is None


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
    assert row.reproduced[name] == 48 * 32
    assert row.reproduced["identical"] < 48 * 32


def test_cut_towards_zero_is_distinguished_from_rounded(tmp_path: Path) -> None:
    cut = (VALUES.view("<u4") >> 16).astype("<u2").tobytes()
    row = one(tmp_path, ("F32", (48, 32), VALUES.tobytes()), ("BF16", (48, 32), cut))
    assert row.reproduced["truncated"] == 48 * 32
    assert row.reproduced["value-cast"] < 48 * 32


def test_finite_values_that_a_cast_makes_infinite_are_counted_and_those_that_were_infinite_are_not(
    tmp_path: Path,
) -> None:
    values = BIG.copy()
    values[-1], values[0], values[1] = 65520.0, np.inf, np.nan
    with np.errstate(over="ignore"):
        row = one(
            tmp_path, ("F32", values.shape, values.tobytes()), ("F16", values.shape, values.astype("<f2").tobytes())
        )
    assert (row.reproduced["value-cast"], row.overflowed) == (values.size, 1)


@pytest.mark.parametrize("square", [True, False])
def test_a_transpose_is_found(tmp_path: Path, square: bool) -> None:
    values = VALUES[:32] if square else VALUES
    source = ("BF16", values.shape, bf16(values))
    row = one(tmp_path, source, ("BF16", values.shape[::-1], bf16(values.T)))
    assert row.reproduced["transposed"] == values.size
    assert ("identical" in row.reproduced) is square


def test_the_tensor_that_took_anothers_place_is_named(tmp_path: Path) -> None:
    a, b = ("F32", (8,), VALUES[0, :8].tobytes()), ("F32", (8,), VALUES[1, :8].tobytes())
    found = rows(views(tmp_path, {"a": a, "b": b}, {"a": b, "b": b}))
    assert (found["a"].other, found["a"].reproduced["other-tensor"]) == ("b", 8)
    assert found["b"].other is None


def test_a_name_on_one_side_has_a_row_without_the_other(tmp_path: Path) -> None:
    found = rows(views(tmp_path, {"a": ("U8", (2,), b"\0\1")}, {"b": ("I8", (3,), b"\0\0\0")}))
    assert list(found) == ["b", "a"]
    assert (found["a"].candidate_dtype, found["a"].candidate_shape, found["a"].elements) == ("", (), 2)
    assert (found["b"].source_dtype, found["b"].source_bytes, found["b"].nonzero) == ("", 0, False)


def test_a_nan_is_compared_by_its_bits(tmp_path: Path) -> None:
    nan, other = bytes.fromhex("0100807f"), bytes.fromhex("0000c07f")
    assert one(tmp_path, ("F32", (1,), nan), ("F32", (1,), nan)).reproduced["identical"] == 1
    assert one(tmp_path, ("F32", (1,), nan), ("F32", (1,), other)).reproduced["identical"] == 0


def test_blocks_are_compared_by_bytes_and_have_no_cast(tmp_path: Path) -> None:
    blocks = bytearray(range(36))
    pair = []
    for name in ("source", "candidate"):
        (tmp_path / name).write_bytes(gguf_bytes([], [info("q", (64,), 2, 0)], bytes(blocks)))
        pair.append(open_checkpoint(tmp_path / name))
        blocks[20] ^= 1
    row = rows((pair[0], pair[1]))["q"]
    assert row.reproduced == {"identical": 32}
    assert (row.differing_bytes, row.first_difference.index) == (1, 32)
    assert (row.first_difference.source_hex, row.first_difference.source_value) == ("0x14", "-0.003452301")


def test_packed_bits_count_whole_units(tmp_path: Path) -> None:
    row = one(tmp_path, ("F4", (4,), b"\x12\x34"), ("F4", (4,), b"\x12\x35"))
    assert row.reproduced == {"identical": 2}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
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
    assert row.differing_bytes == len(flips)
    assert row.reproduced["identical"] == 2500 - len({at // 2 for at in flips})
    first = row.first_difference
    assert (first is None) if not flips else (first.offset, first.index) == (min(flips), min(flips) // 2)


def test_the_first_element_that_a_cast_does_not_give_is_shown_with_both_values(tmp_path: Path) -> None:
    wide = NORM.copy()
    wide[4] = 1.5
    row = one(tmp_path, ("BF16", (6,), bf16(NORM)), ("F32", (6,), wide.tobytes()))
    assert row.reproduced["value-cast"] == 5
    assert row.first_difference == FirstDifference(
        offset=16,
        file_offset=row.first_difference.file_offset,
        index=4,
        source_hex="0x40ef",
        candidate_hex="0x3fc00000",
        expected_hex="0x40ef0000",
        source_value="7.46875",
        candidate_value="1.5",
        ulps=0x40EF0000 - 0x3FC00000,
    )


# --- The canary -------------------------------------------------------------------------------------------------------


def seen(pair: Views, measure: Any = VERIFIER.measure) -> bool:
    whole = VERIFIER.measure(pair, {})
    assert isinstance(whole, Measurement)
    canary = VERIFIER.canary(pair, {}, whole)
    assert isinstance(canary, Canary)
    return canary.seen(measure(canary.views, {}))


@each("dtype", [*REQUANTISED, "Q4_K", "Q6_K", "IQ4_XS", "Q8_K"])
def test_damage_in_any_block_type_is_seen(tmp_path: Path, dtype: str) -> None:
    per, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[dtype]]
    data = blocks(dtype) if dtype in REQUANTISED else b"\x11" * (size * WIDE.size // per)
    pair = quantised(tmp_path, dtype, data)
    if dtype == "Q8_K":
        pair = pair[1], pair[1]
    assert seen(pair)


def test_damage_is_seen_in_a_widened_and_in_an_already_wrong_pair(tmp_path: Path) -> None:
    assert seen(views(tmp_path, SOURCE, {**SOURCE, "a": ("F32", (6,), NORM.tobytes())}))
    wrong = bytearray(BIG.tobytes())
    wrong[-1] ^= 1
    assert seen(views(tmp_path, SOURCE, {**SOURCE, "b": ("F32", (3 << 18,), bytes(wrong))}))


def test_an_instrument_that_looks_at_the_first_tensor_or_stretch_alone_is_blind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)

    def first(found: Views, options: Any) -> Any:
        whole = VERIFIER.measure(found, options)
        assert isinstance(whole, Measurement)
        assert isinstance(whole.value, Rows)
        return dataclasses.replace(whole, value=Rows("name", whole.value.rows[:1]))

    (tmp_path / "wide").mkdir()
    narrow = {"a": ("BF16", (6,), bf16(NORM)), "b": ("BF16", BIG.shape, bf16(BIG))}
    wide = views(tmp_path / "wide", narrow, SOURCE)
    assert seen(pair)
    assert seen(wide)
    assert not seen(pair, first)
    stretches, unequal = aligned_tensor.AlignedTensor.steps, bytewise.unequal
    monkeypatch.setattr(aligned_tensor.AlignedTensor, "steps", lambda self: list(stretches(self))[:1])
    assert not seen(wide)
    monkeypatch.setattr(bytewise, "unequal", lambda *sides: (at for at in unequal(*sides) if at[0] == 0))
    assert not seen(pair)


def test_says_where_no_damage_could_be_placed(tmp_path: Path) -> None:
    pair = views(tmp_path, {"a": ("U8", (0,), b"")}, {"a": ("U8", (0,), b"")})
    whole = VERIFIER.measure(pair, {})
    assert isinstance(whole, Measurement)
    assert isinstance(VERIFIER.canary(pair, {}, whole), NoCanary)


def test_a_constant_answer_is_blind(tmp_path: Path) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)
    constant = VERIFIER.measure(pair, {})
    assert not seen(pair, lambda _views, _options: constant)


def test_elements_that_no_part_of_the_mapping_reaches_are_not_counted_as_right(tmp_path: Path) -> None:
    pair = views(tmp_path, {"w": ("F32", WIDE.shape, WIDE.tobytes())}, {"w": ("F32", WIDE.shape, WIDE.tobytes())})
    half = Pairing(candidate="w", parts=(Part(source="w", take=(0, 0, 4)),), shape=WIDE.shape)
    exact_cast = find_exact_cast("F32", "F32", computed=False)
    assert exact_cast is not None
    assert value_errors.count(AlignedTensor(*pair, half), exact_cast) == (WIDE.size // 2, None, 0, 0)


def test_the_canary_is_cut_down_whatever_the_size(tmp_path: Path) -> None:
    pair = views(tmp_path, SOURCE, SOURCE)
    canary = VERIFIER.canary(pair, {}, VERIFIER.measure(pair, {}))  # type: ignore[arg-type]
    assert isinstance(canary, Canary)
    assert canary.place == "b"
    assert {view.names() for view in canary.views} == {("a", "b")}
    assert canary.views[1].tensor("b").elements == 1 << 14
