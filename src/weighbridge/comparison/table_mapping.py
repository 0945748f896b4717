"""A mapping that a person wrote: names of the candidate from a table, from patterns, or as they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from weighbridge.comparison.mapping_plan import Pairing, Part, Plan, ties

MAX_NAME = 512  # letters of a name that a pattern is tried on


def table(
    source: Mapping[str, tuple[int, ...]],
    candidate: Collection[str],
    *,
    names: Mapping[str, str],
    rename: Sequence[tuple[str, str]],
) -> Plan:
    """Pair tensors by a table of candidate's to source's names; the others by rewriting the source's names in turn.

    Raises:
        re.error: a pattern that is none.
    """
    patterns = [(re.compile(pattern), new) for pattern, new in rename]
    origin = {_rewritten(name, patterns): name for name in sorted(source, reverse=True)}
    origin |= {new: old for new, old in names.items() if old in source}
    pairings = {
        name: Pairing(candidate=name, parts=(Part(source=origin[name]),), shape=source[origin[name]])
        for name in candidate
        if name in origin
    }
    return Plan(name="table", pairings=pairings, tied=ties({*source, *candidate}))


def _rewritten(name: str, patterns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    if len(name) > MAX_NAME:
        return name
    for pattern, new in patterns:
        name = pattern.sub(new, name)
    return name
