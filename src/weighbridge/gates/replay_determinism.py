"""replay-determinism: do two runs of one program with one seed log the same, step by step?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, listed
from weighbridge.clauses.kind import Evidence, Kind, codes, rows_of
from weighbridge.core import Doc, Fields, SubjectKind, dataclass, plain
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import BREAKS, COLUMNS, FACTS, OWN, STEP, differs
from weighbridge.quantities.facts import ColumnAgreement, FactAgreement, Parting

# Times, and what follows from them, are of the host and never of the program.
TIMES = (
    *("time", "timestamp", "_timestamp", "_runtime", "monotonic_s", "elapsed_time", "remaining_time", "*_ms"),
    *("*_per_sec", "*_per_second", "*_runtime", "*util_pct", "*_mib", "mfu", STEP),
)


def _apart(by: float) -> dict[str, Any]:
    ends: Any = {"least": 1.0, "greatest": 1.0 + by, "least_in": 0, "greatest_in": 1}
    return {"unequal": 1, "parted": (Parting(step=0, difference=by, tensor="", **ends),)}


FARTHER = BREAKS.beyond(("farther apart", "parts", lambda _row, _limits, value: {"whole": False, **_apart(value)}))
Globs: TypeAlias = tuple[str, ...]
LOGGED: Globs = ("loss", "grad_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(several_runs.Compared):
    """Which columns must be the same, and how far apart they may be."""

    columns: Annotated[Globs, Doc("globs of the columns that must be the same", min_items=1, tight="up")] = ("*",)
    ignored: Annotated[Globs, Doc("globs of columns that may differ, besides times", tight="down")] = ()
    required: Annotated[Globs, Doc("globs of columns that both must log", min_items=1, tight="up")] = LOGGED
    within: Annotated[
        float,
        Doc("how far apart two numbers may be; whole ones not at all", ge=0, le=1e9, must="at most", moves=FARTHER),
    ] = 0.0

    def asks(self, code: str, column: str) -> bool:
        """Return whether a code is asked of a column."""
        globs = self.columns if code in ("parts", "one-sided") else self.required
        return listed(column, globs) and not listed(column, (*TIMES, *self.ignored))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which part of the runs is looked at."""

    steps: Annotated[tuple[int, int] | None, Doc("first and last step that are compared; all without it")] = None


def _clauses(limits: Limits) -> Sequence[Clause]:
    def parts(row: ColumnAgreement) -> Fields | None:
        allowed = 0.0 if row.whole else limits.within
        first = next((one for one in row.parted if one.difference > allowed), None)
        if first is None:
            return None
        ends = (first.least, first.greatest) if first.least_in == 0 else (first.greatest, first.least)
        named = {"tensor": first.tensor} if first.tensor else {}
        return {**plain(row), "first": plain(first), "allowed": allowed, "run": ends[0], "replay": ends[1], **named}

    among: Any = {"names": limits.columns, "exempt": (*TIMES, *limits.ignored)}
    each = Each(code="parts", need=COLUMNS, row=ColumnAgreement, broken=parts, **among)
    return (several_runs.ARE_SEVERAL, each, *several_runs.whole(limits, limits.required))


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    rows = [row for row in rows_of(evidence, COLUMNS, ColumnAgreement) if limits.asks("parts", row.column)]
    both, alone = [row for row in rows if row.runs > 1], [row.column for row in rows if row.runs == 1]
    facts = [row for row in rows_of(evidence, FACTS, FactAgreement) if row.fact not in OWN and differs(row)]
    other = [f"{row.fact}: {row.values[0]}, {row.values[1]}" for row in facts]
    shown: Fields = {"columns": [row.column for row in both], "steps": max((row.steps for row in both), default=0)}
    named = {name: said for name, said in (("other", other), ("alone", alone)) if said}
    farthest = max((row.parted[-1].difference for row in both if row.parted), default=0.0)
    return {**shown, **named, "of": len(both), "measured": farthest, "limit": limits.within}


def _step(offence: Any) -> tuple[int, bool]:
    return offence.figures["first"]["step"], "tensor" in offence.figures


KIND = Kind(
    name="replay-determinism", version=1, roles={"run": SubjectKind.RUN, "replay": SubjectKind.RUN},
    needs=several_runs.needs("run", "replay"), limits=Limits, measure=Measure,
    codes=codes("parts", blocked=("same-run", *several_runs.INCOMPLETE)),
    judge=ClauseJudge(_clauses, figures=_figures, first=_step), columns=lambda limits, _: limits.required,
    window=lambda _limits, measure: measure.steps,
    mutations=(
        *several_runs.MUTATIONS,
        BREAKS("one whole number off by one", "parts", whole=True, **_apart(1.0)),
        BREAKS("NaN on one side", "parts", whole=False, **_apart(float("inf"))),
    ),
)  # fmt: skip
