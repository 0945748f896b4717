"""What kinds that hold two checkpoints against each other look at: their tensors, in one mapping, measured once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from weighbridge.clauses.kind import Need
from weighbridge.limits import Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """One rewriting of names."""

    pattern: Annotated[str, Doc("a regular expression, searched for in the source's name", name="from")]
    replacement: Annotated[str, Doc("what takes its place", name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is looked at."""

    headers: Annotated[bool, Doc("labels and shapes alone; content is then BLOCKED")] = False
    map: Annotated[str, Doc("how names map: auto tells it from both sides", choices=("auto", "identity", "table"))] = (
        "auto"
    )
    names: Annotated[Mapping[str, str], Doc("the source's name by the candidate's")] = field(default_factory=dict)
    rename: Annotated[tuple[Rename, ...], Doc("patterns that rewrite the source's names, in turn")] = ()


PAIRS = Need("tensor_values", of=("source", "candidate"), options=("headers", "map", "names", "rename"))
