"""The fields of a protobuf message in memory, for records of logs. Knows no schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
SIZES = {FIXED64: 8, FIXED32: 4}


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield each field's number with its value: a number of a varint, else bytes; a ValueError says what is broken."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        size = SIZES.get(wire, -1)
        if wire == LENGTH:
            size, at = varint(data, at)
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"the field {number} is broken")
        yield number, data[at : at + size]
        at += size


def of(data: bytes) -> dict[int, int | bytes]:
    """Return fields by number, the last of each."""
    return dict(fields(data))


def part(found: dict[int, int | bytes], number: int) -> bytes:
    """Return a field of bytes, or nothing."""
    value = found.get(number, b"")
    return value if isinstance(value, bytes) else b""


def signed(value: int | bytes) -> int:
    """Return a varint as the 64-bit number with a sign that it is."""
    return (value ^ 1 << 63) - (1 << 63) if isinstance(value, int) else 0


def float_of(data: bytes) -> float:
    """Return eight bytes as a double and four as a float; a ValueError where they are neither."""
    if len(data) not in (4, 8):
        raise ValueError(f"{len(data)} bytes are no floating-point number")
    return float(struct.unpack("<d" if len(data) == 8 else "<f", data)[0])


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, the lowest first, and find the byte behind it."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise ValueError("a number has no end")
