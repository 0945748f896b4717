"""Layouts that are known by their names, as rules: `known_layouts.yaml`, with what follows from its rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weighbridge.core import table
from weighbridge.mapping.tensor_rules import Rule, rule_of

TABLE = "mapping/known_layouts"


@functools.cache
def built_in() -> tuple[Rule, ...]:
    """Return the rules of all layouts but encoders', in both directions."""
    read = table(TABLE)
    experts = (rule for row in read["experts"] for rule in _of_experts(**row))
    same = (Rule(tensor=pair[at], of=(pair[1 - at],)) for pair in read["same"] for at in (0, 1))
    turns = ("interleaved", "halves", (2, -1)), ("halves", "interleaved", (-1, 2))
    rotated = (
        Rule(tensor=row[new], of=(row[old],), view=(row["heads"], *view), permute=(0, 2, 1))
        for row in read["rotated"]
        for new, old, view in turns
    )
    return (*experts, *same, *rotated, *_given(read["fused"]))


@functools.cache
def encoders() -> tuple[Rule, ...]:
    """Return what the converter makes of encoders in an mmproj file."""
    return tuple(_given(table(TABLE)["encoders"]))


def projectors() -> tuple[str, ...]:
    """Return the projectors of mmproj files whose conversions were accepted."""
    found: tuple[str, ...] = table(TABLE)["projectors"]
    return found


def buffer(name: str) -> str:
    """Return why a side may lack this tensor, which every model computes for itself, or nothing for any other."""
    return next((why for names, why in table(TABLE)["buffers"].items() if re.fullmatch(names, name)), "")


def _of_experts(*, apart: str, stacked: str, matrices: tuple[str, str, str]) -> Iterator[Rule]:
    gate, up, down = matrices
    both, down_all = f"{stacked}.gate_up_proj", f"{stacked}.down_proj"
    yield Rule(tensor=both, of=(f"{apart}.<each>.{gate}.weight", f"{apart}.<each>.{up}.weight"))
    yield Rule(tensor=down_all, of=(f"{apart}.<each>.{down}.weight",))
    one = f"{apart}.<expert>"
    for half, matrix in enumerate((gate, up)):
        yield Rule(tensor=f"{one}.{matrix}.weight", of=(both,), view=("dim0", 2, -1), index=("<expert>", half))
    yield Rule(tensor=f"{one}.{down}.weight", of=(down_all,), view=("dim0", -1), index=("<expert>",))


def _given(rows: Iterable[Mapping[str, Any]]) -> Iterator[Rule]:
    for row in rows:
        for end in ("weight", "bias") if row["tensor"].endswith("{}") else ("",):
            of = tuple(one.replace("{}", end) for one in row["of"])
            yield rule_of({**row, "tensor": row["tensor"].replace("{}", end), "of": of})
