"""Casts are rounded to nearest even, bit for bit, against independent oracles."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.comparison.casts import (
    REQUANTISED,
    cast,
    castable,
    decode,
    dequantise,
    encode,
    overflowed,
    quantise,
    shorten,
    shown,
)
from weighbridge.formats.tensor import FLOATS, INTEGERS, numpy_dtype

ALL_16 = np.arange(1 << 16, dtype="<u2")


def test_every_bf16_word_widens_to_f32_by_a_shift_nan_included() -> None:
    assert np.array_equal(cast(ALL_16, "BF16", "F32"), ALL_16.astype("<u4") << 16)


def test_every_finite_f16_word_is_read_as_the_standard_says() -> None:
    numbers = ALL_16[np.isfinite(ALL_16.view("<f2"))]
    printed = np.array([value for (value,) in struct.iter_unpack("<e", numbers.tobytes())], "<f4")
    assert np.array_equal(decode(numbers, "F16").view("<u4"), printed.view("<u4"))


def test_every_f16_word_survives_the_way_through_f32_and_every_number_through_f64() -> None:
    assert np.array_equal(cast(cast(ALL_16, "F16", "F32"), "F32", "F16"), ALL_16)
    numbers = ALL_16[~np.isnan(ALL_16.view("<f2"))]
    assert np.array_equal(cast(cast(numbers, "F16", "F64"), "F64", "F16"), numbers)


@given(st.integers(0, 2**32 - 1))
def test_f32_to_bf16_rounds_to_nearest_even(word: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", word))[0]
    found = int(cast(np.array([word], "<u4"), "F32", "BF16")[0])
    if math.isnan(value):
        assert found & 0x7FFF > 0x7F80
    else:
        assert found == (word + 0x7FFF + (word >> 16 & 1)) >> 16


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_f32_to_f16_is_the_nearest_as_fractions_tell(value: float) -> None:
    found = float(decode(encode(np.array([value], "<f4"), "F16"), "F16")[0])
    if math.isinf(found):
        assert abs(value) >= 65520
        return
    word = int(np.array([found], "<f2").view("<u2")[0])
    near = [float(np.array([word + step], "<u2").view("<f2")[0]) for step in (-1, 1) if 0 <= word + step < 1 << 16]
    error = abs(Fraction(value) - Fraction(found))
    assert all(error <= abs(Fraction(value) - Fraction(x)) for x in near if math.isfinite(x))


@given(st.floats(width=32, allow_nan=False), st.sampled_from(["BF16", "F16"]))
def test_cutting_never_gives_more_than_the_value(value: float, dtype: str) -> None:
    cut = float(decode(shorten(np.array([value], "<f4"), dtype), dtype)[0])
    nearest = float(decode(encode(np.array([value], "<f4"), dtype), dtype)[0])
    assert abs(cut) <= abs(value)
    assert math.copysign(1, cut) == math.copysign(1, value)
    assert (cut == value) == (nearest == value)


def test_only_pairs_with_one_correct_rounding_are_cast() -> None:
    assert [castable(*pair) for pair in (("BF16", "F32"), ("F32", "BF16"), ("F64", "F16"), ("I8", "BF16"))] == [
        True
    ] * 4
    refused = [("F64", "BF16"), ("F64", "F8_E4M3"), ("I32", "F16"), ("F32", "I8"), ("I64", "I32"), ("F32", "Q4_0")]
    refused += [("BOOL", "BOOL"), ("C64", "C64"), ("F4", "F4"), ("F32", "F8_E8M0")]
    assert [pair for pair in refused if castable(*pair)] == []


@each("source", sorted({*FLOATS, *INTEGERS, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"}))
@each("candidate", sorted({*FLOATS, "BF16", "F8_E4M3", "F8_E5M2"}))
def test_what_a_cast_makes_infinite_or_nan_is_counted(source: str, candidate: str) -> None:
    kind = numpy_dtype(source)
    if not castable(source, candidate):
        return
    assert kind is not None
    size = kind.itemsize
    words = np.random.default_rng(3).integers(0, 256, 4096 * size, np.uint8).view(f"<u{size}")
    edges = np.array([0, 2 ** (8 * size) - 1, 2 ** (8 * size - 1) - 1], f"<u{size}")
    for stored in (np.concatenate([words, edges]), edges[:1]):
        finite, made = (
            np.isfinite(decode(one, kind))
            for one, kind in ((stored, source), (cast(stored, source, candidate), candidate))
        )
        assert overflowed(stored, cast(stored, source, candidate), source, candidate) == np.count_nonzero(
            finite & ~made
        )


@pytest.mark.parametrize("candidate", REQUANTISED)
def test_every_finite_value_of_a_block_whose_scale_is_infinite_overflows(candidate: str) -> None:
    stored = np.ones(1024, np.float32)
    stored[[0, 256]] = 1e10
    stored[700] = np.inf
    words = stored.view("<u4")
    with np.errstate(all="ignore"):
        blocks = quantise(stored, candidate).reshape(-1)
        lost = np.isfinite(stored) & ~np.isfinite(dequantise(blocks, candidate))
    assert overflowed(words, blocks, "F32", candidate) == np.count_nonzero(lost)
    assert overflowed(words[1:2].repeat(256), quantise(stored[1:2].repeat(256), candidate), "F32", candidate) == 0


@each("source", sorted({*FLOATS, *INTEGERS, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"}))
@each("candidate", sorted({*FLOATS, *INTEGERS, "BF16", "F8_E4M3", "F8_E5M2"}))
def test_a_cast_that_is_offered_keeps_small_whole_numbers(source: str, candidate: str) -> None:
    kind = numpy_dtype(source)
    if not castable(source, candidate):
        return
    assert kind is not None
    stored = np.array([1, 2, 4, 8]).astype(kind).view(f"<u{kind.itemsize}")
    assert [float(value) for value in decode(cast(stored, source, candidate), candidate)] == [1, 2, 4, 8]


def test_values_are_shown_exactly() -> None:
    assert shown(b"\xf2\x40", "BF16") == "7.5625"
    assert shown(b"\xf2\x40", "F16") == "2.47265625"
    assert shown(b"\x01\x00\x00\x80", "I32") == "-2147483647"
    assert shown(b"\x00\x00\xc0\x7f", "F32") == "nan"
    assert shown(b"\x01", "Q4_0") == ""


EIGHT_BITS = {  # bits of exponent and fraction, and the bias, as their papers and makers give them
    "F8_E4M3": (4, 3, 7), "F8_E5M2": (5, 2, 15), "F8_E4M3FNUZ": (4, 3, 8), "F8_E5M2FNUZ": (5, 2, 16),
}  # fmt: skip


@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_every_word_of_eight_bits_is_read_as_its_own_dtype(dtype: str) -> None:
    exponents, fractions, bias = EIGHT_BITS[dtype]
    read = decode(np.arange(256, dtype=np.uint8), dtype).tolist()
    odd = {word for word, value in enumerate(read) if not math.isfinite(value)}
    if dtype.endswith("FNUZ"):
        assert odd == {0x80}
    else:
        assert odd == ({0x7F, 0xFF} if dtype == "F8_E4M3" else {*range(0x7C, 0x80), *range(0xFC, 0x100)})
    for word in set(range(256)) - odd:
        exponent, fraction = word >> fractions & (1 << exponents) - 1, word & (1 << fractions) - 1
        size = math.ldexp((exponent > 0) + fraction / (1 << fractions), max(exponent, 1) - bias)
        assert read[word] == (-size if word & 0x80 else size)


def test_a_scale_of_eight_bits_is_a_power_of_two() -> None:
    read = decode(np.arange(256, dtype=np.uint8), "F8_E8M0").tolist()
    assert read[:255] == [math.ldexp(1, word - 127) for word in range(255)]
    assert math.isnan(read[255])
