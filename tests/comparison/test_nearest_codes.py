"""A right quantiser's codes are the nearest ones, under every type's own scales, and another revision's are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tests.cases import each

from weighbridge.comparison.casts import dequantise, quantise
from weighbridge.comparison.nearest_codes import SIGNED, not_nearest
from weighbridge.formats.tensor import UNITS
from weighbridge.gates.families.block_types import NOT_NEAREST, TYPICAL_ERROR

# 1,024 values in each type by ggml (llama-cpp-python 0.3.36), with importances that are drawn log-normally
MADE = load_file(Path(__file__).parent / "blocks-by-ggml.safetensors")
VALUES = (np.random.default_rng(5).standard_normal(1024) * 0.02).astype(np.float32)
OTHER = (VALUES + 0.02 * 0.05 * np.random.default_rng(8).standard_normal(1024)).astype(np.float32)
GIVEN = {**MADE, **{dtype: quantise(VALUES, dtype) for dtype in ("Q4_1", "Q5_0", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")}}
PARITY = [dtype for dtype, wrong in SIGNED.items() if wrong]


def counted(values: np.ndarray, dtype: str, factor: float = 1.0) -> int:
    stored = GIVEN[dtype].reshape(-1, UNITS[dtype][1])
    found = not_nearest(values, dequantise(stored.reshape(-1), dtype) * np.float32(factor), stored, dtype)
    assert found is not None
    return found


def test_every_type_is_checked_but_those_that_cannot_be() -> None:
    assert set(GIVEN) == set(NOT_NEAREST) == set(TYPICAL_ERROR) - {"IQ1_S", "IQ1_M"}
    assert not_nearest(VALUES, VALUES, np.zeros((4, 50), np.uint8), "IQ1_S") is None


@each("dtype", GIVEN)
def test_the_codes_of_ggml_are_the_nearest_and_those_of_other_values_are_not(dtype: str) -> None:
    assert counted(VALUES, dtype) <= NOT_NEAREST[dtype] * 1024
    other = OTHER if dtype not in PARITY else np.roll(VALUES, 1)  # their signs tell 2 % of noise in 100,000 values
    assert counted(other, dtype) > NOT_NEAREST[dtype] * 1024


@each("dtype", sorted(set(GIVEN) - set(SIGNED)))
def test_a_decoded_value_that_no_code_gives_is_not_the_nearest(dtype: str) -> None:
    """Were the scales read wrongly, the steps between codes would be others."""
    assert counted(VALUES, dtype, factor=1.5) > 1024 / 10


@each("dtype", sorted(set(GIVEN) - {"MXFP4", "NVFP4"}))
def test_values_that_are_not_numbers_have_no_nearest_code(dtype: str) -> None:
    values = VALUES.copy()
    values[7] = np.nan
    assert counted(values, dtype) == counted(VALUES, dtype) + (dtype not in SIGNED)
