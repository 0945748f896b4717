"""A sentencepiece model's pieces are read in order, and no bytes make the reader do anything but refuse."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.views.sentencepiece_file import NoModelError, pieces


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def length(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text: bytes) -> bytes:
    return length(1, length(1, text) + b"\x15" + struct.pack("<f", -2.5) + b"\x18\x03")


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.binary(max_size=300), min_size=1, max_size=20), trainer=st.binary(max_size=200))
def test_pieces_come_in_order_whatever_else_the_model_holds(texts: list[bytes], trainer: bytes) -> None:
    model = length(2, trainer) + b"".join(map(piece, texts)) + b"\x51" + bytes(8) + length(3, b"")
    assert pieces(memoryview(model)) == texts


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_model_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(NoModelError):
        assert pieces(memoryview(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it holds no pieces"),
        (b"IQ== 0\n", "a field that is none, or runs beyond its message, at byte 0"),
        (piece(b"abc")[:-1], "a field that is none, or runs beyond its message, at byte 0"),
        (varint(1 << 3 | 2) + varint(2**62) + b"x", "a field that is none, or runs beyond its message, at byte 0"),
        (b"\x0a" + b"\x80" * 20, "a number that does not end at byte 11"),
        (length(1, b"\x15" + bytes(4)), "a piece with 0 texts at byte 2"),
        (b"\x0b", "an unknown wire type 3 at byte 0"),
    ],
)
def test_what_is_no_model_is_refused_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(NoModelError) as raised:
        pieces(memoryview(data))
    assert str(raised.value) == message
