"""What a reader of one format gives back: the tensors, the short metadata, and the checksums that the file carries."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from weighbridge.formats.tensor import Tensor
from weighbridge.model import Scalar
from weighbridge.storage.readable import WINDOW, ReadableFile

MAX_TEXT = 1 << 10  # characters of a text in metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """A CRC-32 that a file carries of parts of itself, each `(start, stop)` in bytes; `place` is what they hold.

    `place` and `file` are data from the outside: escape them when shown, never use them as a path.
    """

    place: str
    file: str
    parts: tuple[tuple[int, int], ...]
    stored: int

    def found(self, file: ReadableFile) -> int:
        """Compute the CRC-32 of the parts as they are; reads each byte once, in constant memory."""
        crc = 0
        for start, stop in self.parts:
            for window in file.windows(start, stop, WINDOW):
                crc = zlib.crc32(window, crc)
        return crc


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One file, read: its format, tensors by name, metadata (None for what is long or no scalar), and checksums."""

    format: str
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    checksums: tuple[Checksum, ...] = ()


def short(value: object) -> Scalar:
    """Return a value of a file's metadata, or None for a long text and for what is no scalar."""
    if isinstance(value, (bool, int, float)):
        return value
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else None
