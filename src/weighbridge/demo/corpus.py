"""The text of Python's standard library, as bytes: real input that every machine has."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def standard_library(size: int) -> bytes:
    """Read the first `size` bytes of the standard library's top-level modules, in the order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= size:
            return bytes(text[:size])
    return bytes(text)
