"""Read the long values of a GGUF header (vocabularies, merges, templates) where they lie, one entry at a time.

`gguf_file.read` steps over them. Every count and length was held against the file by then, and is held again here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats import gguf_file
from weighbridge.formats.gguf_file import ARRAY, SCALARS, STRING
from weighbridge.formats.tensor import quoted
from weighbridge.model import Json
from weighbridge.storage.readable import WINDOW, ReadableFile

MAX_TEXT = 1 << 20  # bytes of one text
MAX_PIECE = 1 << 16  # bytes of one entry of an array of texts
STRIDE = 1 << 12  # entries between two places that are remembered
MAX_NUMBERS = 1 << 12  # entries of an array of numbers that is read at once: one a layer


class LongValues:
    """The values of one file's header, by key; `places` are the bytes at which their types stand."""

    __slots__ = ("file", "marks", "places")

    def __init__(self, file: ReadableFile) -> None:
        self.file = file
        self.places = gguf_file.places(file)
        self.marks: dict[str, dict[int, int]] = {}  # where some entries of an array lie, once walked

    def text(self, key: str) -> str | None:
        """Read a text; None where the key is not there, or holds something else.

        Raises:
            SubjectError: `gguf-length` or `gguf-text`.
        """
        at = self.places.get(key)
        if at is None or self._number("I", at) != STRING:
            return None
        length = self._number("Q", at + 4)
        if length > MAX_TEXT:
            self._refuse("length", f"{quoted(key)} is {length} bytes long, at most {MAX_TEXT} are read", at + 4)
        try:
            return str(self.file.read(at + 12, at + 12 + length), "utf-8")
        except UnicodeDecodeError:
            self._refuse("text", f"{quoted(key)} is not UTF-8", at + 12)

    def numbers(self, key: str) -> Json:
        """Read a short array of numbers; None where the key is not there, or holds something else."""
        found = self._array(key)
        if found is None or found[0] not in SCALARS or found[1] > MAX_NUMBERS:
            return None
        kind, count, at = found
        form = f"<{count}{SCALARS[kind]}"
        return list(struct.unpack(form, self.file.read(at, at + struct.calcsize(form))))

    def count(self, key: str) -> int | None:
        """Count the entries of an array of texts; None where the key is not there, or holds something else."""
        found = self._array(key)
        return found[1] if found is not None and found[0] == STRING else None

    def strings(self, key: str, start: int = 0) -> Iterator[bytes]:
        """Walk over an array of texts from one entry on, giving back what lies behind; over nothing without one.

        Raises:
            SubjectError: `gguf-length`, or `subject-changed` when the file was written to meanwhile.
        """
        found = self._array(key)
        if found is None or found[0] != STRING:
            return
        self.file.require_unchanged()
        known = {0: found[2], **self.marks.get(key, {})}  # begin at the last known entry before this one
        begun = max(entry for entry in known if entry <= start)
        behind = at = known[begun]
        for entry in range(begun, found[1]):
            length = self._number("Q", at)
            if entry % STRIDE == 0:
                self.marks.setdefault(key, {})[entry] = at
            if entry >= start:
                if length > MAX_PIECE:
                    self._refuse("length", f"an entry of {quoted(key)} is {length} bytes long, at most {MAX_PIECE}", at)
                yield bytes(self.file.read(at + 8, at + 8 + length))
            at += 8 + length
            if at - behind > WINDOW:
                self.file.release(behind, at)
                behind = at
        self.file.release(behind, at)
        self.file.require_unchanged()

    def _array(self, key: str) -> tuple[int, int, int] | None:
        """Find an array: the type of its entries, their count, and where they begin."""
        at = self.places.get(key)
        if at is None or self._number("I", at) != ARRAY:
            return None
        return self._number("I", at + 4), self._number("Q", at + 8), at + 16

    def _number(self, code: str, at: int) -> int:
        value: int = struct.unpack_from("<" + code, self.file.read(at, at + 8))[0]
        return value

    def _refuse(self, code: str, what: str, at: int) -> NoReturn:
        where = f"{self.file.name} at byte {at}"
        raise SubjectError(f"gguf-{code}", what, where=where, remedy=gguf_file.WRITE_AGAIN)
