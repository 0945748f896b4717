"""Read the pieces of a sentencepiece model, a protocol buffer, without its library. Parses untrusted bytes.

Only what is needed is read: each piece's text, in order. Every length is held against the bytes that are left.
"""

from __future__ import annotations

from collections.abc import Iterator

PIECES, TEXT = 1, 1  # field numbers in ModelProto, and in SentencePiece
VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # wire types
MAX_PIECES = 1 << 22


class NoModelError(ValueError):
    """These bytes are no sentencepiece model; its text says where."""


def pieces(data: memoryview) -> list[bytes]:
    """List the texts of a model's pieces, by id.

    Raises:
        NoModelError: with the byte at which it is none.
    """
    found: list[bytes] = []
    for number, start, stop in _fields(data, 0, len(data)):
        if number != PIECES:
            continue
        if len(found) >= MAX_PIECES:
            raise NoModelError(f"more than {MAX_PIECES} pieces at byte {start}")
        texts = [(first, last) for inner, first, last in _fields(data, start, stop) if inner == TEXT]
        if len(texts) != 1:
            raise NoModelError(f"a piece with {len(texts)} texts at byte {start}")
        found.append(bytes(data[texts[0][0] : texts[0][1]]))
    if not found:
        raise NoModelError("it holds no pieces")
    return found


def _fields(data: memoryview, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Walk over the fields of a message: number, and where the content begins and ends."""
    while at < stop:
        tag, start = _varint(data, at, stop)
        number, wire = tag >> 3, tag & 7
        if wire == LENGTH:
            size, start = _varint(data, start, stop)
        elif wire == VARINT:
            size = _varint(data, start, stop)[1] - start
        elif wire in (EIGHT_BYTES, FOUR_BYTES):
            size = 8 if wire == EIGHT_BYTES else 4
        else:
            raise NoModelError(f"an unknown wire type {wire} at byte {at}")
        if number == 0 or size > stop - start:
            raise NoModelError(f"a field that is none, or runs beyond its message, at byte {at}")
        yield number, start, start + size
        at = start + size


def _varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise NoModelError(f"a number that does not end at byte {at}")
