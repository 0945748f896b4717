"""The rules by which llama.cpp's converter makes a GGUF file: `gguf_rules.yaml`, which says what its rows mean."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any

from weighbridge.core import dataclass, table

LAYER = r"(?:.*\.)?(?:layers|h|blocks)\.(\d{1,6})\."
EXPERTS = LAYER + r"(?:mlp|feed_forward|block_sparse_moe)\.experts\."


class Layout(enum.Enum):
    """How the values of one source tensor stand in what it becomes."""

    APART = "apart"  # equal stretches of rows, one after the other; each matrix of a stack for itself
    TURNED = "turned"  # equal stretches of columns, rows and columns exchanged
    INTERLEAVED = "interleaved"  # every second column, rows and columns exchanged; of a bias, every second value
    FLAT = "flat"  # experts under one another become a stack
    FLAT_TURNED = "flat-turned"  # the same, with rows and columns exchanged
    LATENT = "latent"  # of each head the keys' rows, exchanged with columns, and the values'
    BY_KEY_HEAD = "by-key-head"  # q, k, v and z of each key head become q, k and v of all, and z of all
    TILED = "tiled"  # value heads grouped by key head are tiled over the key heads
    TILED_AFTER_KEYS = "tiled-after-keys"  # the same, behind the rows of queries and keys
    TILED_COLUMNS = "tiled-columns"  # the same, of the columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the converter does with source tensors of these names, `of` some architectures or of all."""

    names: str
    to: tuple[str, ...] = ()
    layout: Layout = Layout.APART
    of: tuple[str, ...] = ()
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A difference that the converter is known to make: of which tensors, by its code or mechanism, and why."""

    of: tuple[str, ...]
    names: str
    found: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The whole table; what the rows of each kind do stands above them there."""

    tensors: tuple[Rule, ...]
    respelled: tuple[Rule, ...]
    stacks: tuple[Rule, ...]
    in_header: tuple[Rule, ...]
    plus_one: tuple[Rule, ...]
    faults: tuple[Fault, ...]
    further: Mapping[str, str]
    left_out: Mapping[str, str]
    zero_biases: str
    multiplied: Mapping[str, tuple[str, ...]]
    permuted: tuple[str, ...]
    of_sections: tuple[str, ...]
    interleaved: tuple[str, ...]
    turned: tuple[str, ...]
    cut_vocabulary: tuple[str, ...]
    padded_vocabulary: tuple[str, ...]
    proven: tuple[str, ...]


@functools.cache
def rules() -> Rules:
    """Read the table."""
    read = table("mapping/gguf_rules")
    kinds = ("tensors", "respelled", "stacks", "in_header", "plus_one")

    def rule(row: Mapping[str, Any]) -> Rule:
        names = row["names"].replace("<experts>", EXPERTS).replace("<layer>", LAYER)
        return Rule(**{**row, "names": names, "layout": Layout(row.get("layout", "apart"))})

    of_names = {kind: tuple(map(rule, read[kind])) for kind in kinds}
    return Rules(**{**read, **of_names, "faults": tuple(Fault(**row) for row in read["faults"])})
