"""Ways to damage a table of tensors, or of pairs of them, for the kinds that judge one. Never judges.

The clause's own falsifier (`each_row`) goes to every place and to single ones; what is here is tried at a few places
of a long table, so that trials of a checkpoint with 20,000 tensors stay cheap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from weighbridge.gates.gate_kind import Damage, Evidence, Falsifier, NotApplicable, rows_of, with_value
from weighbridge.model import Fields, Outcome, Rows

L = TypeVar("L")
Change = Callable[[Fields, L], Fields | None]

FEW = 16


def both(row: Fields) -> bool:
    """Tell whether a tensor is on both sides."""
    return bool(row["source_dtype"] and row["candidate_dtype"])


def deeper(row: Fields, _limits: object) -> Fields | None:
    """Give the candidate's shape a dimension more."""
    shape = row["candidate_shape"]
    assert isinstance(shape, Sequence)
    return {**row, "candidate_shape": [1, *shape]} if both(row) else None


def longer(row: Fields, _limits: object) -> Fields | None:
    """Make the last dimension of the candidate's shape longer by one."""
    shape = row["candidate_shape"]
    if not both(row) or not isinstance(shape, Sequence) or not shape:
        return None
    return {**row, "candidate_shape": [*shape[:-1], int(str(shape[-1])) + 1]}


def variant(name: str, code: str, change: Change[L], *, why: str, need: str = "pairs") -> Falsifier[L]:
    """Break a clause in a further way, once, in the first few rows where it applies."""

    def damage(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Damage | NotApplicable:
        if len(places) == 1 < len(rows_of(evidence, need)):
            return NotApplicable("tried at a few places together")
        return _damaged(evidence, limits, set(places), change, why=why, need=need)

    return Falsifier(name, code, damage)


def unlooked(name: str, code: str, change: Change[L], *, why: str, need: str = "pairs") -> Falsifier[L]:
    """Break a clause where the judge did not say that it looked; it must object there all the same."""

    def damage(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Damage | NotApplicable:
        others = {str(row["name"]) for row in rows_of(evidence, need)} - set(places)
        return _damaged(evidence, limits, others, change, why=why, need=need)

    return Falsifier(name, code, damage)


def _damaged(
    evidence: Evidence, limits: L, places: Collection[str], change: Change[L], *, why: str, need: str
) -> Damage | NotApplicable:
    rows = rows_of(evidence, need)
    applicable = (
        (str(row["name"]), new)
        for row in rows
        if str(row["name"]) in places and (new := change(row, limits)) is not None
    )
    changed = dict(itertools.islice(applicable, FEW))
    if not changed:
        return NotApplicable(why)
    damaged = tuple(changed.get(str(row["name"]), row) for row in rows)
    return Damage(with_value(evidence, need, Rows("name", damaged)), frozenset(changed))


def blank_table(
    name: str, change: Change[L], *, why: str, code: str = "nothing-compared", need: str = "pairs"
) -> Falsifier[L]:
    """Leave only the rows that `change` gives; the judge must then be blocked with `code`."""

    def damage(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Damage | NotApplicable:
        rows = rows_of(evidence, need)
        if len(places) == 1 < len(rows):
            return NotApplicable("tried with the whole table")
        left = tuple(new for row in rows if (new := change(row, limits)) is not None)
        if not left:
            return NotApplicable(why)
        return Damage(with_value(evidence, need, Rows("name", left)), frozenset())

    return Falsifier(name, code, damage, Outcome.BLOCKED)
