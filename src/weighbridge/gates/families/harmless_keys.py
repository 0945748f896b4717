"""Keys that change nothing of what a model computes, with the reason: a difference in one decides nothing."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from weighbridge.core.data import table
from weighbridge.quantities.checkpoints import RUNS, beside_codes

CODE = "it names code, which another format does not run"  # harmless where one side is of another format alone
PLACES = {"model": ("config.json:", "metadata:", "config.json:text_config.")}


@cache
def _harmless() -> Mapping[str, str]:
    return {
        before + key: row["why"]
        for row in table("gates/families/harmless_keys")
        for before in PLACES.get(row["in"], (row["in"],))
        for key in row["keys"].split()
    }


@lru_cache(maxsize=4096)
def harmless(name: str) -> str:
    """Return why a difference in this key decides nothing, or nothing where it decides."""
    keys = _harmless()
    return keys.get(name) or next((why for glob, why in keys.items() if "*" in glob and fnmatchcase(name, glob)), "")


PACKING = re.compile(r"config\.json:(?:\w+_config\.)?quantization(?:_config)?\.(.+)")


@lru_cache(maxsize=4096)
def harmless_of_packing(name: str) -> str:
    """Return the same of two files that one method quantised, whose tensors do not tell what becomes of activations."""
    if (found := PACKING.fullmatch(name)) is None:
        return harmless(name)
    why = beside_codes(found[1]) or "each side's codes are read by its own keys, and compared"
    return "" if why == RUNS else why
