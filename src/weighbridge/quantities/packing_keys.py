"""Keys of a `quantization_config` that do not say how codes are read, by a table."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from weighbridge.core import table

RUNS = "runs"


def is_named(key: str, globs: Iterable[str]) -> bool:
    """Return whether one of these globs names a key."""
    return any(fnmatchcase(key, glob) for glob in globs)


def beside_codes(key: str) -> str:
    """Return why a key changes nothing, `RUNS` where it changes what a model computes, "" where it reads codes."""
    return next((why for why, globs in table("quantities/packing_keys").items() if is_named(key, globs)), "")
