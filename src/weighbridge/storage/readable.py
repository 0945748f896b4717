"""What every reader asks of a file, wherever it is: its size, ranges of its bytes, and that it has not changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

WINDOW = 8 << 20  # bytes that stay at hand behind the reader


class ReadableFile(Protocol):
    """One file, open to be read from several threads at once."""

    @property
    def name(self) -> str:
        """Return what messages call it."""

    @property
    def size(self) -> int:
        """Return how many bytes it has."""

    @property
    def version(self) -> str:
        """Return what differs between this file and a later one of its name."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop`, of which those beyond the end are left out."""

    def gather(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop` in an order that nobody knows yet.

        Raises:
            SubjectError: `remote-order`, where they are elsewhere and too many to be fetched for that.
        """

    def release(self, start: int, stop: int) -> None:
        """Let go of bytes that are not needed for now; reading them again brings them back."""

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield bytes `start` to `stop` in steps of `size`, in constant memory.

        Raises:
            SubjectError: `subject-changed`, when the file is no longer the one that was opened.
        """

    def require_unchanged(self) -> None:
        """Raise where the file is no longer what it was when it was opened.

        Raises:
            SubjectError: `subject-changed`.
        """


class Excerpt:
    """A stretch of an open file, read as if it were a file by itself; its bytes count from its own start."""

    __slots__ = ("_start", "name", "size", "whole")

    def __init__(self, whole: ReadableFile, start: int, stop: int) -> None:
        self.whole, self._start = whole, start
        self.name = f"{whole.name}, in the item at byte {start},"
        self.size = stop - start

    @property
    def version(self) -> str:
        """Return what differs between the whole file and a later one of its name."""
        return self.whole.version

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop`, of which those beyond the end are left out."""
        return self.whole.read(self._start + start, self._start + min(stop, self.size))

    def gather(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop` in an order that nobody knows yet."""
        return self.whole.gather(self._start + start, self._start + min(stop, self.size))

    def release(self, start: int, stop: int) -> None:
        """Let go of bytes that are not needed for now."""
        self.whole.release(self._start + start, self._start + stop)

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield bytes `start` to `stop` in steps of `size`."""
        return self.whole.windows(self._start + start, self._start + stop, size)

    def require_unchanged(self) -> None:
        """Raise where the whole file is no longer what it was when it was opened."""
        self.whole.require_unchanged()


def sha256(file: ReadableFile) -> str:
    """Return the digest of a whole file."""
    digest = hashlib.sha256()
    for window in file.windows(0, file.size, WINDOW):
        digest.update(window)
    return digest.hexdigest()
