"""Two traces compared: the figures are those of plain float64, whatever the dtype, and no bit is overlooked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.forward.traces import trace

from weighbridge.forward import between_traces
from weighbridge.forward.between_traces import SMALL, Again, Apart, apart
from weighbridge.forward.trace_file import Trace

DTYPES = ("float32", "bfloat16", "float16", "float64")
Array = np.ndarray[Any, Any]


def between(folder: Path, one: Array, other: Array) -> Apart:
    found = apart(trace(folder / "a.trace", {"logits": one}), trace(folder / "b.trace", {"logits": other}), "logits")
    assert found is not None
    return found


def plainly(one: Array, other: Array) -> tuple[float, float, float]:
    first, second = one.astype(np.float64), other.astype(np.float64)
    found = []
    for axis in ((0, 1, 2), 2, (0, 1)):
        error, norm = (np.sqrt((values**2).sum(axis)) for values in (second - first, first))
        found.append(float((error / np.maximum(norm, SMALL * norm.mean())).max()))
    return found[0], found[1], found[2]


@each("dtype", DTYPES)
@each("shape", [(2, 5, 3), (3, 70, 1500), (1, 2, 70_000)])
def test_the_figures_are_those_of_float64(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    chance = np.random.default_rng(1)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    one = chance.standard_normal(shape).astype(kind)
    other = (one.astype(np.float64) * (1 + 1e-2 * chance.standard_normal(shape))).astype(kind)
    found = between(tmp_path, one, other)
    assert (found.all, found.token, found.channel) == pytest.approx(plainly(one, other), rel=1e-4)
    words = f"u{one.itemsize}"
    assert found.equal_share == pytest.approx((one.view(words) == other.view(words)).mean())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_what_float32_cannot_square_is_measured_in_float64(tmp_path: Path, dtype: str, scale: float) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    one = (scale * np.random.default_rng(2).standard_normal((2, 5, 40))).astype(kind)
    other = (1.5 * one.astype(np.float64)).astype(kind)
    assert between(tmp_path, one, other).all == pytest.approx(plainly(one, other)[0], rel=1e-4)


@pytest.mark.parametrize("scale", [2.0**-12, 2.0**12])
def test_the_worst_token_and_channel_are_as_far_off_however_small_all_values_are(tmp_path: Path, scale: float) -> None:
    chance = np.random.default_rng(4)
    one = (scale * chance.standard_normal((2, 5, 40))).astype("f4")
    other = one * np.float32(1.01)
    found = between(tmp_path, one, other)
    assert (found.token, found.channel) == pytest.approx((0.01, 0.01), rel=1e-3)


def test_the_worst_token_and_channel_are_named(tmp_path: Path) -> None:
    one = np.ones((2, 5, 40), "f4")
    other = one.copy()
    other[1, 3, 7] = 2
    found = between(tmp_path, one, other)
    assert (found.worst_token, found.worst_channel) == ("sequence 1, token 3", 7)
    assert found.equal_share == 399 / 400


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_what_is_not_finite_is_counted_unless_its_bits_are_equal(
    tmp_path: Path, value: float, sides: tuple[int, ...]
) -> None:
    pair = [np.ones((2, 5, 40), "f4") for _ in range(2)]
    for side in sides:
        pair[side][0, 0, 0] = value
    found = between(tmp_path, *pair)
    assert (found.nonfinite, found.same, found.all) == ((0, True, 0.0) if len(sides) == 2 else (1, False, 0.0))


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (0.0, 1e-45), (1e-45, 0.0), (1.0, np.nextafter(np.float32(1), np.float32(2)))]
)
def test_one_bit_is_seen_even_where_its_square_vanishes(tmp_path: Path, one: float, other: float) -> None:
    found = between(tmp_path, np.full((1, 2, 3), one, "f4"), np.full((1, 2, 3), other, "f4"))
    assert not found.same
    assert (found.all > 0) == (one != other)


def test_another_dtype_has_no_equal_bits_and_another_shape_no_distance(tmp_path: Path) -> None:
    one = np.ones((2, 5, 4), "f4")
    assert between(tmp_path, one, one.astype("f2")).equal_share == 0
    assert between(tmp_path, one, one.astype("f2")).all == 0
    first, second = (trace(tmp_path / str(n), {"logits": np.ones((2, 5, n), "f4")}) for n in (3, 4))
    assert apart(first, second, "logits") is None
    assert apart(first, second, "embed") is None


def test_the_same_bits_in_another_dtype_are_not_the_same(tmp_path: Path) -> None:
    words = np.full((2, 5, 4), 0x3F00, "u2")
    pair = (words.view(np.float16), words.view(ml_dtypes.bfloat16))
    one, other = (trace(tmp_path / f"{at}", {"logits": values}) for at, values in enumerate(pair))
    assert apart(one, one, "logits") == replace(ALIKE, equal_share=1.0)
    found = apart(one, other, "logits")
    assert found is not None
    assert not found.same
    assert again(tmp_path, *pair) == np.inf
    assert again(tmp_path, pair[0], pair[0]) == 0


ALIKE = Apart(
    all=0.0, token=0.0, channel=0.0, worst_token="sequence 0, token 0", worst_channel=0, equal_share=0.0, nonfinite=0
)


def again(folder: Path, one: Array, other: Array, steps: int = 1) -> float:
    """Return how far a second run lies from a first one, that comes in some steps along tokens."""
    second = Again(trace(folder / "first.trace", {"logits": one}))
    for part in np.array_split(other, steps, axis=1):
        second.write("logits", np.ascontiguousarray(part).tobytes(), part.shape, str(part.dtype))
    return second.noise("logits")


@each("dtype", DTYPES)
@each("steps", [1, 3])
def test_a_second_run_lies_as_far_from_the_first_as_its_trace_would(tmp_path: Path, dtype: str, steps: int) -> None:
    chance, kind = np.random.default_rng(3), np.dtype(getattr(ml_dtypes, dtype, dtype))
    one = chance.standard_normal((2, 5, 7)).astype(kind)
    other = one.copy()
    other[1, 3, 2] *= kind.type(1.5)
    assert again(tmp_path, one, one, steps) == 0
    assert again(tmp_path, one, other, steps) == pytest.approx(between(tmp_path, one, other).all, rel=1e-5)
    assert again(tmp_path, one, one[:1].repeat(2, 0), steps) > 0


def test_a_second_run_of_other_tokens_channels_or_numbers_is_infinitely_far(tmp_path: Path) -> None:
    one = np.ones((2, 5, 4), "f4")
    odd = one.copy()
    odd[0, 0, 0] = np.nan
    for other in (one[:, :4], one[:, :, :3], one.repeat(2, 1), one.repeat(2, 0), odd):
        assert again(tmp_path, one, other) == np.inf
    assert again(tmp_path, odd, one) == np.inf
    assert again(tmp_path, odd, odd) == 0  # the same bits
    assert again(tmp_path, one[:1], one) == 0  # one for all sequences, which is said of each
    assert again(tmp_path, one, one[:1]) == 0


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2 * 50 * 1500 - 1), bit=st.integers(0, 15))
def test_one_flipped_bit_anywhere_is_found(tmp_path: Path, at: int, bit: int) -> None:
    words = np.random.default_rng(3).integers(0x3F00, 0x4000, (2, 50, 1500), "u2")
    other = words.copy()
    other.reshape(-1)[at] ^= np.uint16(1 << bit)
    found = between(tmp_path, words.view(ml_dtypes.bfloat16), other.view(ml_dtypes.bfloat16))
    assert found.equal_share == 1 - 1 / words.size
    token = f"sequence {at // 75_000}, token {at // 1500 % 50}"
    assert found.nonfinite or (found.worst_token, found.worst_channel) == (token, at % 1500)


def test_blocks_are_small_whatever_the_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = Trace.windows

    def noted(self: Trace, point: str, step: int) -> Iterator[Array]:
        for window in real(self, point, step):
            asked.append(window.size)
            yield window

    monkeypatch.setattr(Trace, "windows", noted)
    between(tmp_path, np.ones((4, 300, 600), "f4"), np.ones((4, 300, 600), "f4"))
    assert max(asked) <= between_traces.AT_ONCE
    assert sum(asked) == 2 * 4 * 300 * 600  # of both
