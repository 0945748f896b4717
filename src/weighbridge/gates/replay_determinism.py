"""replay-determinism: do two runs of one program with one seed log the same, step by step?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutation, codes, rows_of
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, SubjectKind, Verdict
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import COLUMNS, STEP, in_columns
from weighbridge.quantities.agreement import ColumnAgreement, Parting

# Times, and what follows from them, are of the host and never of the program.
TIMES = (
    *("time", "timestamp", "_timestamp", "_runtime", "monotonic_s", "elapsed_time", "remaining_time", "*_ms"),
    *("*_per_sec", "*_per_second", "*_runtime", "*util_pct", "*_mib", "mfu", STEP),
)


def _parted(difference: float) -> tuple[Parting, ...]:
    ends: Any = {"least": 1.0, "greatest": 1.0 + difference, "least_in": 0, "greatest_in": 1}
    return (Parting(step=0, difference=difference, tensor="", **ends),)


def _farther(limit: Limit) -> Iterator[Mutation[Any]]:
    found: Any = {"unequal": 1, "parted": _parted(limit.value)}
    yield in_columns("farther apart", "parts", _judged, whole=False, **found)


def _judged(limits: Any) -> Any:
    return lambda column: listed(column, limits.columns) and not listed(column, (*TIMES, *limits.ignored))


def _required(limits: Any) -> Any:
    return lambda column: listed(column, limits.required) and _judged(limits)(column)


FEWER = several_runs.steps_moves(_required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which columns must be the same, and how far apart they may be."""

    columns: Annotated[tuple[str, ...], Doc("globs of the columns that must be the same", min_items=1, tight="up")] = (
        "*",
    )
    ignored: Annotated[tuple[str, ...], Doc("globs of columns that may differ, besides times", tight="down")] = ()
    required: Annotated[tuple[str, ...], Doc("globs of columns that both must log", min_items=1, tight="up")] = (
        "loss", "grad_norm",
    )  # fmt: skip
    within: Annotated[
        float, Doc("how far apart two numbers may be; whole ones not at all", ge=0, must="at most", moves=_farther)
    ] = 0.0
    min_steps: Annotated[
        int,
        Doc(
            "steps at which each is compared",
            ge=1,
            must="at least",
            moves=FEWER,
        ),
    ] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which part of the runs is looked at."""

    steps: Annotated[tuple[int, int] | None, Doc("first and last step that are compared; all without it")] = None


def _clauses(limits: Limits) -> Sequence[Clause]:
    required = limits.required

    def parts(row: ColumnAgreement) -> Fields | None:
        allowed = 0.0 if row.whole else limits.within
        first = next((one for one in row.parted if one.difference > allowed), None)
        if first is None:
            return None
        of_run = first.greatest if first.greatest_in == 0 else first.least
        of_replay = first.least if first.greatest_in == 0 else first.greatest
        found = {
            "step": first.step,
            "run": of_run,
            "replay": of_replay,
            "difference": first.difference,
            "allowed": allowed,
        }
        found |= {"begins": row.parted[0].step, "unequal": row.unequal, "compared": row.steps}
        return {**found, "farthest": row.parted[-1].difference, **({"tensor": first.tensor} if first.tensor else {})}

    return (
        Requires(code="same-run", lacking=several_runs.several),
        Each(
            code="parts", need=COLUMNS, row=ColumnAgreement, names=limits.columns, exempt=(*TIMES, *limits.ignored),
            broken=parts,
        ),
        *several_runs.whole(required, required, limits.min_steps),
    )  # fmt: skip


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    mine = _judged(limits)
    rows = [row for row in several_runs.compared(evidence, limits.columns) if mine(row.column)]
    other = [f"{name}: {values[0]}, {values[1]}" for name, values in several_runs.differing(evidence).items()]
    alone = [row.column for row in rows_of(evidence, COLUMNS, ColumnAgreement) if mine(row.column) and row.runs == 1]
    farthest = max((row.parted[-1].difference for row in rows if row.parted), default=0.0)
    shown: Fields = {"columns": [row.column for row in rows], "steps": max((row.steps for row in rows), default=0)}
    return {
        **shown,
        "of": len(rows),
        "measured": farthest,
        **{name: said for name, said in (("other", other), ("alone", alone)) if said},
    }


_BY_CLAUSES = ClauseJudge(_clauses, figures=_figures)


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return what clauses find, where the runs part first before all else."""
    verdict = _BY_CLAUSES(evidence, limits)
    first = sorted(verdict.offences, key=lambda one: (one.figures["step"], one.place.startswith("layers:")))
    return dataclasses.replace(verdict, limit=limits.within, offences=tuple(first))


def check(limits: Limits, _measure: object) -> list[str]:
    """Return which required columns are not compared."""
    left_out = [glob for glob in limits.required if "*" not in glob and not _judged(limits)(glob)]
    return [f"{name!r} is required, and not among the columns that are compared" for name in left_out]


KIND = Kind(
    name="replay-determinism",
    version=1,
    roles={"run": SubjectKind.RUN, "replay": SubjectKind.RUN},
    needs=several_runs.needs("run", "replay"),
    limits=Limits,
    measure=Measure,
    codes=codes("parts", blocked=("same-run", *several_runs.INCOMPLETE)),
    judge=judge,
    check=check,
    mutations=(
        *several_runs.SAME_RUN,
        in_columns(
            "one whole number off by one", "parts", _judged, whole=True, unequal=1, parted=lambda _: _parted(1.0)
        ),
        in_columns("NaN on one side", "parts", _judged, whole=False, unequal=1, parted=lambda _: _parted(float("inf"))),
        *several_runs.incomplete(_required, _required),
    ),
    window=lambda _limits, measure: measure.steps,
    columns=lambda limits, _: limits.required,
)
