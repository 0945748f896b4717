"""A sentencepiece model's pieces are read in order, and no bytes make the reader do anything but refuse."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.errors import SubjectError
from weighbridge.model_config.sentencepiece_file import pieces
from weighbridge.storage.mapped_file import MappedFile


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


def read(folder: Path, data: bytes) -> list[bytes]:
    path = folder / "tokenizer.model"
    path.write_bytes(data)
    return pieces(MappedFile(path, "m"))


@settings(max_examples=60)
@given(texts=st.lists(st.binary(max_size=300), min_size=1, max_size=20), trainer=st.binary(max_size=200))
def test_pieces_come_in_order_whatever_else_the_model_holds(tmp_path: Path, texts: list[bytes], trainer: bytes) -> None:
    model = length(2, trainer) + b"".join(map(piece, texts)) + b"\x51" + bytes(8) + length(3, b"")
    assert read(tmp_path, model) == texts


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_a_model_or_are_refused(tmp_path: Path, data: bytes) -> None:
    with contextlib.suppress(SubjectError):
        assert read(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (length(2, b"no piece"), "sentencepiece-piece it holds no pieces at byte 0"),
        (b"IQ== 0\n", "sentencepiece-truncated the field 9 takes 8 bytes, 6 are left at byte 0"),
        (piece(b"abc")[:-1], "sentencepiece-truncated the field 1 takes 12 bytes, 11 are left at byte 0"),
        (
            varint(1 << 3 | 2) + varint(2**62) + b"x",
            "sentencepiece-truncated the field 1 takes 4611686018427387904 bytes, 1 are left at byte 0",
        ),
        (b"\x0a" + b"\x80" * 20, "sentencepiece-wire a number has more than 64 bits at byte 1"),
        (length(1, b"\x15" + bytes(4)), "sentencepiece-piece a piece has 0 texts at byte 2"),
        (b"\x0b", "sentencepiece-wire the field 1 has the wire type 3 at byte 0"),
    ],
)
def test_what_is_no_model_is_refused_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(SubjectError) as raised:
        read(tmp_path, data)
    problem = raised.value
    assert f"{problem.code} {problem.what} {problem.where.removeprefix('m ')}" == message
