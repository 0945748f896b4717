"""What every kind asks that holds several runs against each other: that they are several, and that all was compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from weighbridge.clauses.clause import Requires, listed
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, Need, rows_of, with_rows
from weighbridge.clauses.mutations import Limit, Moves
from weighbridge.core import Fields, Outcome
from weighbridge.quantities.agreement import ColumnAgreement, FactAgreement

COLUMNS, FACTS = "columns", "facts"
LOG, BEGAN, ENDED, STEP = "log_sha256", "began_s", "last_row_s", "step"
OF_A_PROCESS = ("host", "pid", "started")  # one run is told from another by these
OWN = (*OF_A_PROCESS, "rank", LOG, BEGAN, ENDED)  # what two runs of one program state otherwise


def needs(*roles: str) -> dict[str, Need]:
    """Return the needs of a kind that compares columns."""
    return {COLUMNS: Need("column_agreement", of=roles, options=("steps",)), FACTS: Need("fact_agreement", of=roles)}


def fact(evidence: Evidence, name: str) -> tuple[Any, ...]:
    """Return what each run states, nothing where none does."""
    return next((row.values for row in rows_of(evidence, FACTS, FactAgreement) if row.fact == name), ())


def differing(evidence: Evidence) -> dict[str, tuple[Any, ...]]:
    """Return the facts that the runs state otherwise, those apart that are of one process."""
    rows = (row for row in rows_of(evidence, FACTS, FactAgreement) if row.fact not in OWN)
    return {row.fact: row.values for row in rows if any(not same(one, row.values[0]) for one in row.values)}


def same(one: object, other: object) -> bool:
    """Return whether two facts are equal; 1 is not true, and no text."""
    return type(one) is type(other) and one == other


def several(evidence: Evidence) -> Fields | None:
    """Return which two are one run: of one process and start, or of one log where that is unknown."""
    logs, told = fact(evidence, LOG), [fact(evidence, name) for name in OF_A_PROCESS]
    who = list(zip(*told, strict=True)) if all(told) else [(None,)] * len(logs)
    for one, other in itertools.combinations(range(len(logs)), 2):
        known = None not in who[one] + who[other]
        if who[one] == who[other] if known else logs[one] == logs[other]:
            return {
                "first": one,
                "second": other,
                "by": "the process and its start" if known else "every byte of the log",
            }
    return None if len(logs) > 1 else {"first": 0, "second": 0, "by": "all that is known"}


def compared(evidence: Evidence, globs: Sequence[str]) -> Iterator[ColumnAgreement]:
    """Yield the columns that globs name and all runs log."""
    runs = len(fact(evidence, LOG))
    rows = rows_of(evidence, COLUMNS, ColumnAgreement)
    return (row for row in rows if listed(row.column, globs) and row.runs == runs)


def whole(globs: Sequence[str], moving: Sequence[str], min_steps: int) -> tuple[Requires, ...]:
    """Return the clauses that all that globs name was compared, over all steps, and that what should move does."""

    def idle(evidence: Evidence) -> Fields | None:
        known = [row.column for row in compared(evidence, ["*"])]
        missing = (glob for glob in globs if not any(listed(one, [glob]) for one in known))
        return next(({"column": glob, "known": known} for glob in missing), None)

    def short(evidence: Evidence) -> Fields | None:
        row = next((row for row in compared(evidence, globs) if row.steps < min_steps), None)
        return None if row is None else {"column": row.column, "steps": row.steps, "needed": min_steps}

    def alone(evidence: Evidence) -> Fields | None:
        rows = sorted(compared(evidence, [STEP, *globs]), key=lambda row: row.column != STEP)
        row = next((row for row in rows if row.one_sided), None)
        return None if row is None else {"column": row.column, "one_sided": row.one_sided, "first": row.first_one_sided}

    def still(evidence: Evidence) -> Fields | None:
        row = next((row for row in compared(evidence, moving) if not row.changes), None)
        return None if row is None else {"column": row.column, "steps": row.steps}

    read = {"not-compared": idle, "too-few-steps": short, "one-sided": alone, "stands-still": still}
    return tuple(Requires(code=code, lacking=lacking) for code, lacking in read.items())


INCOMPLETE = ("not-compared", "too-few-steps", "one-sided", "stands-still")


def in_columns(name: str, code: str, globs: Any, outcome: Outcome = Outcome.FAIL, **new: Any) -> Mutation[Any]:
    """Return the mutation that gives columns, which `globs` names by the limits, other fields; callables by the row."""

    def apply(evidence: Evidence, limits: Any, places: tuple[str, ...]) -> Mutated | str:
        rows, mine = rows_of(evidence, COLUMNS, ColumnAgreement), globs(limits)
        broken = {row.column for row in compared(evidence, ["*"]) if row.column in places and mine(row.column)}
        if not broken:
            return "no such column is judged"
        fields = {key: value for key, value in new.items() if not callable(value)}
        made = {key: value for key, value in new.items() if callable(value)}
        changed = [
            replace(row, **fields, **{key: value(limits) for key, value in made.items()})
            if row.column in broken
            else row
            for row in rows
        ]
        return Mutated(with_rows(evidence, COLUMNS, changed), frozenset(broken))

    return Mutation(name, code, apply, outcome)


def in_facts(name: str, code: str, change: Any, place: str = "") -> Mutation[Any]:
    """Return the mutation that gives facts other values, by fact; without a `place` the judge must be BLOCKED."""

    def apply(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
        rows = {row.fact: row for row in rows_of(evidence, FACTS, FactAgreement)}
        new = change({name: row.values for name, row in rows.items()}, limits)
        if not new:
            return "nothing to break"
        rows |= {name: FactAgreement(fact=name, values=tuple(values)) for name, values in new.items()}
        return Mutated(with_rows(evidence, FACTS, list(rows.values())), frozenset({place}) if place else frozenset())

    return Mutation(name, code, apply, Outcome.FAIL if place else Outcome.BLOCKED)


def _one_process(facts: Any, _limits: Any) -> Any:
    return {name: (f"canary {name}",) * len(facts[LOG]) for name in OF_A_PROCESS}


def _one_log(facts: Any, _limits: Any) -> Any:
    return {name: (None,) * len(facts[LOG]) for name in OF_A_PROCESS} | {LOG: ("0" * 64,) * len(facts[LOG])}


SAME_RUN: tuple[Mutation[Any], ...] = (
    in_facts("the process of the first", "same-run", _one_process),
    in_facts("the log of the first", "same-run", _one_log),
)


def incomplete(required: Any, moving: Any) -> tuple[Mutation[Any], ...]:
    """Return the mutations of `whole`; of which columns, the limits say."""
    blocked = Outcome.BLOCKED
    return (
        in_columns("logged by one alone", "not-compared", required, blocked, runs=1),
        in_columns("a step that one has alone", "one-sided", required, blocked, one_sided=1, first_one_sided=0),
        in_columns("a column that stands still", "stands-still", moving, blocked, changes=0),
    )


def steps_moves(required: Any) -> Moves:
    """Return how to move the number of steps that were compared."""

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        yield in_columns("fewer steps", "too-few-steps", required, Outcome.BLOCKED, steps=limit.value)

    return moves
