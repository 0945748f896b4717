"""Keys of a `quantization_config`: those that say how codes are read, and those that say something else, by a table."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from weighbridge.core import table

TABLE = "quantities/packing_keys"


def is_named(key: str, globs: Iterable[str]) -> bool:
    """Return whether one of these globs names a key."""
    return any(fnmatchcase(key, glob) for glob in globs)


def why_idle(key: str) -> str:
    """Return why a key changes no value and nothing that a model computes; "" of one that may."""
    return next((why for why, globs in table(TABLE)["idle"].items() if is_named(key, globs)), "")


def runs(key: str) -> bool:
    """Return whether a key changes what a model computes, but not how codes are read."""
    return is_named(key, table(TABLE)["runs"])
