"""What every reader asks of a file, wherever it lies: its size, ranges of its bytes, and that it has not changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

WINDOW = 8 << 20  # bytes that stay at hand behind the reader


class ReadableFile(Protocol):
    """One file, open to be read from several threads at once; `name` is what messages call it."""

    @property
    def name(self) -> str:
        """Give the name."""
        ...

    @property
    def size(self) -> int:
        """Count the bytes."""
        ...

    @property
    def version(self) -> str:
        """Tell what differs between this file and a later one of its name."""
        ...

    def read(self, start: int, stop: int) -> memoryview:
        """Look at bytes `start` to `stop`, of which those beyond the end are left out."""
        ...

    def gather(self, start: int, stop: int) -> memoryview:
        """Look at bytes `start` to `stop` in an order that nobody knows yet.

        Raises:
            SubjectError: `remote-order`, where they are elsewhere and too many to be fetched for that.
        """
        ...

    def release(self, start: int, stop: int) -> None:
        """Say that these bytes are not needed for now; looking again brings them back."""
        ...

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Walk over bytes `start` to `stop` in steps of `size`, in constant memory.

        Raises:
            SubjectError: `subject-changed`, when the file is no longer the one that was opened.
        """
        ...

    def require_unchanged(self) -> None:
        """Hold the file against what it was when it was opened.

        Raises:
            SubjectError: `subject-changed`.
        """
        ...


def sha256(file: ReadableFile) -> str:
    """Digest a whole file."""
    digest = hashlib.sha256()
    for window in file.windows(0, file.size, WINDOW):
        digest.update(window)
    return digest.hexdigest()
