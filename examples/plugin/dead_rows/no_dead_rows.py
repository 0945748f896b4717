"""no-dead-rows: has no tensor more rows of zeros than the contract allows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from dead_rows.quantity import DeadRows
from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, every_glob_names
from weighbridge.clauses.kind import Kind, Need, codes
from weighbridge.clauses.mutations import column_moves
from weighbridge.core.limits import Doc
from weighbridge.core.model import SubjectKind

MORE = column_moves("dead", "rows", "dead", names="tensors", idle="names-nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many rows of which tensors may be dead."""

    tensors: Annotated[str, Doc("glob over tensor names")] = "*"
    at_most: Annotated[int, Doc("dead rows of a tensor", ge=0, must="at most", moves=MORE)] = 0


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that the glob names a tensor, and that none has too many dead rows."""
    names = (limits.tensors,)
    bounded = Bounded(
        code="dead",
        need="rows",
        row=DeadRows,
        value=lambda row: row.dead,
        must="at most",
        bound=limits.at_most,
        names=names,
    )
    return every_glob_names("names-nothing", "rows", DeadRows, names), bounded


KIND = Kind(
    name="no-dead-rows",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"rows": Need("dead_rows", of=("candidate",))},
    limits=Limits,
    codes=codes("dead", blocked=("names-nothing",)),
    judge=ClauseJudge(clauses, lambda _, limits: {"limit": limits.at_most, "unit": "tensors"}),
)
