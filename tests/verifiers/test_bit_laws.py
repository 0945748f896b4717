"""Symbols, laws and divergences are what their formulas say."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weighbridge.verifiers import tensor_bits

RNG = np.random.default_rng(0)
WEIGHTS = 0.02 * RNG.standard_normal(65536)


def counts(words: object) -> tensor_bits.Counts:
    found: tensor_bits.Counts = np.bincount(tensor_bits.symbols(np.asarray(words)), minlength=256)
    return found


@pytest.mark.parametrize(("reading", "dtype"), [("BF16", ml_dtypes.bfloat16), ("F16", np.float16)])
def test_weights_cost_nothing_beyond_their_entropy_under_their_own_reading_alone(reading: str, dtype: type) -> None:
    excess = tensor_bits.excess(counts(WEIGHTS.astype(dtype).view(np.uint16)))
    assert excess is not None
    other = {"BF16": "F16", "F16": "BF16"}[reading]
    assert excess[reading] < 0.05
    assert excess[other] > 1.0


@pytest.mark.parametrize("law", ["uniform", "laplace", "standard_cauchy"])
def test_every_law_of_the_family_is_found_at_any_scale_between(law: str) -> None:
    values = 0.0137 * getattr(np.random.default_rng(1), law)(size=65536)
    signed = values * np.where(RNG.random(65536) < 0.5, 1, -1)
    excess = tensor_bits.excess(counts(signed.astype(np.float16).view(np.uint16)))
    assert excess is not None
    assert excess["F16"] < 0.05


def test_symbols_leave_out_the_sign_and_the_last_seven_bits() -> None:
    assert tensor_bits.symbols(np.array([0x3F80, 0xBF81, 0x7FFF, 0x007F], np.uint16)).tolist() == [0x7F, 0x7F, 0xFF, 0]


def test_nothing_has_no_divergence() -> None:
    nothing = np.zeros(256, np.int64)
    assert tensor_bits.divergence(nothing, nothing) is None


def test_divergence_is_zero_for_the_same_and_one_for_disjoint_counts() -> None:
    one, other = np.zeros(256, np.int64), np.zeros(256, np.int64)
    one[:4], other[4:8] = 10, 3
    assert tensor_bits.divergence(one, 7 * one) == 0.0
    assert tensor_bits.divergence(one, other) == 1.0
    assert tensor_bits.entropy(one, other) == 3.0


@pytest.mark.parametrize("reading", tensor_bits.READINGS)
def test_every_law_is_a_distribution_with_no_mass_of_zero_anywhere(reading: str) -> None:
    masses = 2.0 ** tensor_bits._log2_masses(reading)
    assert masses.shape == (4 * len(tensor_bits.SCALES[reading]), 256)
    assert np.allclose(masses.sum(axis=1), 1.0)
    assert masses.min() >= tensor_bits.STRAY / 256 * 0.999
