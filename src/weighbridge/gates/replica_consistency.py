"""replica-consistency: do the ranks of one run hold the same model, and train on other data?

Judges a folder of ranks as a whole. What an all-reduce leaves is equal bit for bit on all of them, so no tolerance is
allowed; a loss that is equal on all at every step is one that was not computed from data of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutation, codes
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import BEGAN, COLUMNS, ENDED, LOG, fact, in_columns, in_facts
from weighbridge.quantities.agreement import ColumnAgreement, Parting

OF_ONE_RUN = ("world_size", "commit", "model.parameters", "requested_steps", "versions.torch")
PARTED = (Parting(step=0, difference=1e-7, least=1.0, greatest=1.0000001, least_in=0, greatest_in=1, tensor=""),)


def _later(limit: Limit) -> Iterator[Mutation[Any]]:
    def late(facts: Any, _limits: Any) -> Any:
        return {BEGAN: (*(0.0 for _ in facts[LOG][1:]), limit.value)}

    yield in_facts("a rank that began later", "not-one-run", late)


def _globs(limits: Any) -> Sequence[str]:
    return (*limits.equal, *limits.differ, *limits.disjoint)


def _named(limits: Any) -> Any:
    return lambda column: listed(column, _globs(limits))


FEWER = several_runs.steps_moves(_named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which columns must be the same on all ranks, and which must not."""

    equal: Annotated[tuple[str, ...], Doc("globs of columns that are equal on all ranks at every step", tight="up")] = (
        "grad_norm", "parameters_sum",
    )  # fmt: skip
    differ: Annotated[tuple[str, ...], Doc("globs of columns that are not equal at every step", tight="up")] = ("loss",)
    disjoint: Annotated[tuple[str, ...], Doc("globs of columns that no two ranks share at a step", tight="up")] = (
        "batch_crc",
    )
    min_steps: Annotated[
        int,
        Doc(
            "steps at which each is compared",
            ge=1,
            must="at least",
            moves=FEWER,
        ),
    ] = 2
    started_within_s: Annotated[
        int,
        Doc(
            "from the first rank's start to the last one's, as a process group waits",
            ge=0,
            must="at most",
            moves=_later,
        ),
    ] = 1800


def _of(name: str) -> Any:
    return lambda limits: lambda column: listed(column, getattr(limits, name))


def _clauses(limits: Limits) -> Sequence[Clause]:
    columns: Any = {"need": COLUMNS, "row": ColumnAgreement}
    return (
        Requires(code="same-run", lacking=several_runs.several),
        Requires(code="ranks-missing", lacking=_missing),
        Requires(code="not-one-run", lacking=_strangers),
        Whole(
            code="not-one-run", place=lambda _: "started", read=_apart, must="at most", bound=limits.started_within_s,
            outcome=Outcome.BLOCKED,
        ),
        Each(code="ranks-differ", names=limits.equal, broken=_differs, **columns),
        Each(code="all-equal", names=limits.differ, broken=_all_equal, **columns),
        Each(code="same-batch", names=limits.disjoint, broken=_shared, **columns),
        *several_runs.whole(_globs(limits), limits.equal, limits.min_steps),
    )  # fmt: skip


def _missing(evidence: Evidence) -> Fields | None:
    ranks, size = len(fact(evidence, LOG)), next(iter(fact(evidence, "world_size")), None)
    return None if ranks > 1 and size == ranks else {"ranks": ranks, "world_size": size}


def _strangers(evidence: Evidence) -> Fields | None:
    ranks = len(fact(evidence, LOG))
    wrong = {"rank": fact(evidence, "rank")} if fact(evidence, "rank") != tuple(range(ranks)) else {}
    wrong |= {name: values for name, values in several_runs.differing(evidence).items() if name in OF_ONE_RUN}
    return next(({"fact": name, "values": list(values) or None} for name, values in wrong.items()), None)


def _apart(evidence: Evidence) -> tuple[float, Fields]:
    """Return how long after the first rank the last one began; infinite where another had ended by then."""
    began, ended = fact(evidence, BEGAN), [at for at in fact(evidence, ENDED) if at is not None]
    last = math.nan if None in began else max(began, default=math.nan)
    late = last > min(ended, default=math.inf)
    return math.inf if late else last, {"fact": "when they began", "values": list(fact(evidence, "started"))}


def _differs(row: ColumnAgreement) -> Fields | None:
    if not row.parted:
        return None
    first = row.parted[0]
    shown: Fields = {"step": first.step, "least": first.least, "greatest": first.greatest}
    places: Fields = {"least_in": first.least_in, "greatest_in": first.greatest_in}
    return {**shown, **places, "unequal": row.unequal, "compared": row.steps, "farthest": row.parted[-1].difference}


def _all_equal(row: ColumnAgreement) -> Fields | None:
    return {"compared": row.steps} if row.steps and not row.unequal and row.runs > 1 else None


def _shared(row: ColumnAgreement) -> Fields | None:
    by = (*row.shared_by, 0, 0)
    return {"step": row.first_shared, "one": by[0], "other": by[1], "shared": row.shared} if row.shared else None


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    rows = {row.column: row.steps for row in several_runs.compared(evidence, _globs(limits))}
    return {"ranks": len(fact(evidence, LOG)), "steps": [f"{name} {steps}" for name, steps in rows.items()]}


def _world(size: Any) -> Any:
    return lambda facts, _limits: {"world_size": (size(facts[LOG]),) * len(facts[LOG])}


KIND = Kind(
    name="replica-consistency",
    version=1,
    roles={"run": SubjectKind.RUN},
    of_ranks=True,
    needs=several_runs.needs("run"),
    limits=Limits,
    codes=codes(
        "ranks-differ", "all-equal", "same-batch",
        blocked=("same-run", "ranks-missing", "not-one-run", *several_runs.INCOMPLETE),
    ),
    judge=ClauseJudge(_clauses, figures=_figures),
    mutations=(
        *several_runs.SAME_RUN,
        in_facts("a rank that is not there", "ranks-missing", _world(lambda logs: len(logs) + 1)),
        in_facts("ranks that say no number", "not-one-run", lambda facts, _: {"rank": (0,) * len(facts[LOG])}),
        in_facts("ranks of two commits", "not-one-run", lambda facts, _: {"commit": map(str, range(len(facts[LOG])))}),
        in_facts("a rank that had ended before", "not-one-run", lambda facts, _: {ENDED: (-1.0,) * len(facts[LOG])}),
        in_columns("a step that differs in its last bits", "ranks-differ", _of("equal"), unequal=1, parted=PARTED),
        in_columns("equal at every step", "all-equal", _of("differ"), unequal=0, parted=()),
        in_columns("one batch on two ranks", "same-batch", _of("disjoint"), shared=1, first_shared=0, shared_by=(0, 1)),
        *several_runs.incomplete(_named, _of("equal")),
    ),
    columns=lambda limits, _: _globs(limits),
)  # fmt: skip
