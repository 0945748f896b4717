"""What every kind asks that holds several runs against each other: that they are several, and that all was compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

from weighbridge.clauses.clause import Requires, listed
from weighbridge.clauses.kind import Evidence, Mutation, Need, rows_of
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, dataclass, plain
from weighbridge.quantities.facts import ColumnAgreement, FactAgreement

COLUMNS, FACTS = "columns", "facts"
LOG, BEGAN, ENDED, STEP = "log_sha256", "began_s", "last_row_s", "step"
OF_A_PROCESS = ("host", "pid", "started")  # one run is told from another by these
OWN = (*OF_A_PROCESS, "run", "attempt", "rank", LOG, BEGAN, ENDED)  # what two runs of one program state otherwise
INCOMPLETE = ("not-compared", "too-few-steps", "one-sided", "stands-still")
BREAKS = Breaks(
    need=COLUMNS,
    row=ColumnAgreement,
    blocked=INCOMPLETE,
    why="no such column is judged",
    spares=lambda row, limits, code: not limits.asks(code, row.column),
)
BREAKS_FACTS = Breaks(need=FACTS, row=FactAgreement)
NEEDS = {COLUMNS: "column_agreement", FACTS: "fact_agreement"}
FEWER = BREAKS.beyond(("fewer steps", "too-few-steps", lambda _row, _limits, value: {"steps": value}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What all that is compared must have; `asks` tells whether a code is asked of a column."""

    min_steps: Annotated[int, Doc("steps at which each is compared", ge=1, must="at least", moves=FEWER)] = 2


def needs(*roles: str) -> dict[str, Need]:
    """Return the needs of a kind that compares columns."""
    return {need: Need(quantity, of=roles, options=("steps",)) for need, quantity in NEEDS.items()}


def fact(evidence: Evidence, name: str) -> tuple[Any, ...]:
    """Return what each run states, nothing where none does."""
    return next((row.values for row in rows_of(evidence, FACTS, FactAgreement) if row.fact == name), ())


def differs(row: FactAgreement) -> bool:
    """Return whether a fact is not the same in all runs; 1 is not true, and no text."""
    return any((type(one), one) != (type(row.values[0]), row.values[0]) for one in row.values)


def _several(evidence: Evidence) -> Fields | None:
    """Return which two are one run: of one process and start, or of one log where that is unknown."""
    logs, stated = fact(evidence, LOG), [fact(evidence, name) for name in OF_A_PROCESS]
    who = list(zip(*stated, strict=True)) if all(stated) else [(None,)] * len(logs)
    for one, other in itertools.combinations(range(len(logs)), 2):
        known = None not in who[one] + who[other]
        if who[one] == who[other] if known else logs[one] == logs[other]:
            return {"first": one, "second": other}
    return None if len(logs) > 1 else {"first": 0, "second": 0}


ARE_SEVERAL = Requires(code="same-run", lacking=_several)
TWICE: Mutation[Any] = BREAKS_FACTS.only(
    "the first run twice",
    "same-run",
    lambda row, _: {"values": row.values[:1] * len(row.values)} if row.fact in (*OF_A_PROCESS, LOG) else row,
    "nothing is known of the runs",
)


def whole(limits: Any, globs: Sequence[str]) -> tuple[Requires, ...]:
    """Return the clauses that what globs name was compared, over all steps, and that what should move does."""

    def idle(evidence: Evidence) -> Fields | None:
        rows = [row.column for row in rows_of(evidence, COLUMNS, ColumnAgreement)]
        missing = [glob for glob in (*globs, STEP) if not any(listed(one, [glob]) for one in rows)]
        return {"column": missing[0], "runs": 0} if missing else None

    def none(code: str, wrong: Callable[[ColumnAgreement, int], object]) -> Requires:
        def lacking(evidence: Evidence) -> Fields | None:
            rows, runs = rows_of(evidence, COLUMNS, ColumnAgreement), len(fact(evidence, LOG))
            asked = (row for row in rows if limits.asks(code, row.column) or row.column == STEP)
            found = next((row for row in asked if wrong(row, runs)), None)
            return None if found is None else {**cast(Fields, plain(found)), "needed": limits.min_steps}

        return Requires(code=code, lacking=lacking)

    return (
        Requires(code="not-compared", lacking=idle),
        none("not-compared", lambda row, runs: row.runs < runs),
        none("too-few-steps", lambda row, _: row.steps < limits.min_steps),
        none("one-sided", lambda row, _: row.one_sided),
        none("stands-still", lambda row, _: row.column != STEP and not row.changes),
    )


MUTATIONS: tuple[Mutation[Any], ...] = (
    TWICE,
    BREAKS("logged by one alone", "not-compared", runs=1),
    BREAKS("a step that one has alone", "one-sided", one_sided=1, first_one_sided=0),
    BREAKS("a column that stands still", "stands-still", changes=0),
)
