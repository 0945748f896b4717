"""Of blocks, exactly what decoding every block would count is counted, and few of them are decoded."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.comparison import casts
from weighbridge.comparison.casts import DECODED, F16_FIELDS, dequantise, not_finite
from weighbridge.formats.tensor import UNITS

SCALES = [*F16_FIELDS, "IQ1_M", "MXFP4"]  # dtypes of which a block can hold a value that is not finite


def whole(stored: Any, dtype: str) -> tuple[int, int]:
    values = dequantise(stored.reshape(-1), dtype)
    return int(np.isnan(values).sum()), int(np.isinf(values).sum())


@pytest.mark.parametrize("dtype", DECODED)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_counts_what_decoding_every_block_counts(dtype: str, seed: int) -> None:
    rng, size = np.random.default_rng(seed), UNITS[dtype][1]
    stored = rng.integers(0, 256, (200, size), dtype=np.uint8)
    stored[rng.random(stored.shape) < 0.2] = 255
    assert not_finite(stored.reshape(-1), dtype) == whole(stored, dtype)


@pytest.mark.parametrize("dtype", SCALES)
def test_one_block_among_many_is_found_and_the_others_are_not_decoded(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = UNITS[dtype][1]
    stored = np.ones((5000, size), np.uint8)
    stored[4711] = 255
    decoded: list[int] = []

    def counting(blocks: Any, kind: str) -> Any:
        decoded.append(len(blocks) // size)
        return np.asarray(dequantise(blocks, kind))

    monkeypatch.setattr(casts, "dequantise", counting)
    assert sum(not_finite(stored.reshape(-1), dtype)) == UNITS[dtype][0]
    assert decoded == [1]


@each("dtype", SCALES)
def test_no_scale_that_gives_a_value_that_is_not_finite_is_passed_over(dtype: str) -> None:
    """Every byte of a block is set alone, beside bytes that make any exponent of F16 full or nearly so."""
    size = UNITS[dtype][1]
    edges = (0, 0x3F, 0x7B, 0x7C, 0x80, 0xBF, 0xC0, 0xFA, 0xFB, 0xFF)
    for beside, byte in itertools.product((0, 0x7B, 0xFF), edges):
        stored = np.full((size, size), beside, np.uint8)
        stored[np.arange(size), np.arange(size)] = byte
        assert not_finite(stored.reshape(-1), dtype) == whole(stored, dtype)


def test_a_file_of_nothing_but_nan_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []

    def counting(blocks: Any, kind: str) -> Any:
        most.append(len(blocks) // 18)
        return np.asarray(dequantise(blocks, kind))

    monkeypatch.setattr(casts, "dequantise", counting)
    assert not_finite(np.full(18 * 3000, 255, np.uint8), "Q4_0") == (96000, 0)
    assert max(most) <= casts.AT_ONCE
