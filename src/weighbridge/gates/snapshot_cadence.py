"""snapshot-cadence: is there an analysis checkpoint for every step of the schedule, each whole and of this run?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, Whole
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, codes, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Limit, Moves
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.quantities.runs import FileState, RunFile, interval, is_scheduled, scheduled

Rows: TypeAlias = Sequence[RunFile]
FILES, SCHEDULE, GAPS = "files", "schedule", "gaps"
BLOCKED = {"other-version": FileState.OTHER_VERSION, "damaged": FileState.DAMAGED, "of-another": FileState.OF_ANOTHER,
           "over-budget": FileState.OVER_BUDGET, "changed": FileState.CHANGED, "gone": FileState.GONE}  # fmt: skip


def _thinned(rows: Rows, missing: int) -> Rows | None:
    """Return the rows without some of the schedule, so that as many are missing; one of them is kept."""
    more = missing - len(_lacking(rows))
    gone = [row.step for row in rows if is_scheduled(row.step)][-more:]
    there = [row for row in rows if row.step not in gone]
    return there if len(gone) == more and there else None


def _lacking(rows: Rows) -> list[int]:
    there = {row.step for row in rows}
    return [step for step in scheduled(rows[0].first_step, rows[0].last_step) if step not in there]


def _widest(rows: Rows) -> tuple[float, int]:
    """Return the greatest distance of two files in steps of the schedule, and the step after which it lies."""
    steps = [*sorted({row.step for row in rows}), rows[0].last_step]
    return max(((later - step) / interval(later), step) for step, later in pairwise([rows[0].first_step, *steps]))


def _stretched(rows: Rows, gap: float) -> Rows:
    """Return the rows of a run that went on without a file."""
    last = max(row.step for row in rows) + int(gap * interval(10**9)) + 10_001
    return [replace(row, last_step=last) for row in rows]


def _moved(name: str, code: str, place: str, change: Callable[[Rows, Any], Rows | None]) -> Moves:
    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        def apply(evidence: Evidence, _limits: object, _places: Sequence[str]) -> Mutated | str:
            changed = change(rows_of(evidence, FILES, RunFile), limit.value)
            if changed is None:
                return "there are too few files"
            return Mutated(with_rows(evidence, FILES, changed), frozenset({place}))

        yield Mutation(name, code, apply)

    return moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many may be missing, and how far apart they may be."""

    at_most_missing: Annotated[
        int,
        Doc("steps of the schedule without a file", ge=0, le=10**6, must="at most",
            moves=_moved("files taken away", "missing", SCHEDULE, _thinned)),
    ] = 0  # fmt: skip
    at_most_gap: Annotated[
        float,
        Doc("distance of two files, in the steps that the schedule has there", gt=0, le=10**6, must="at most",
            moves=_moved("a run that went on", "gap", GAPS, _stretched)),
    ] = 2.0  # fmt: skip


def _clauses(limits: Limits) -> Sequence[Clause]:
    def missing(evidence: Evidence) -> tuple[float, Fields]:
        rows = rows_of(evidence, FILES, RunFile)
        lacking, last = _lacking(rows), rows[0].last_step
        return len(lacking), {
            "files": len(rows),
            "missing": len(lacking),
            "first": lacking[0] if lacking else None,
            "last_step": last,
            "may_lack": limits.at_most_missing,
        }

    def gap(evidence: Evidence) -> tuple[float, Fields]:
        widest, step = _widest(rows_of(evidence, FILES, RunFile))
        return widest, {"gap": widest, "after": step, "may_be": limits.at_most_gap}

    def each(code: str, state: FileState) -> Each[RunFile]:
        def broken(row: RunFile) -> Fields | None:
            return {"why": row.why} if row.state is state else None

        return Each(code=code, need=FILES, row=RunFile, broken=broken, outcome=Outcome.BLOCKED)

    nothing = Requires(code="no-analysis", lacking=lambda of: None if rows_of(of, FILES, RunFile) else {})
    return (
        nothing, *(each(code, state) for code, state in BLOCKED.items()),
        Whole(code="gap", place=lambda _: GAPS, read=gap, must="at most", bound=limits.at_most_gap),
        Whole(code="missing", place=lambda _: SCHEDULE, read=missing, must="at most", bound=limits.at_most_missing),
    )  # fmt: skip


_breaks = Breaks(need=FILES, row=RunFile, blocked=tuple(BLOCKED))
KIND: Kind[Any] = Kind(
    name="snapshot-cadence", version=1, roles={"run": SubjectKind.RUN}, limits=Limits,
    needs={FILES: Need("run_files", of=("run",), of_limits=lambda _: {"what": "analysis"}, of_rows=False)},
    codes=codes("gap", "missing", blocked=("no-analysis", *BLOCKED)), judge=ClauseJudge(_clauses),
    mutations=tuple(_breaks(f"a file that is {state}", code, state=state) for code, state in BLOCKED.items()),
)  # fmt: skip
