"""Kinds over the files that a run announced: its analysis checkpoints, its checkpoints to resume from, its probes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, Each, Requires, Whole
from weighbridge.clauses.kind import Evidence, Kind, Need, rows_of, settings
from weighbridge.clauses.mutations import Breaks, Moves, table_moves
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.quantities.runs import FileState, RunFile, interval, is_scheduled, scheduled

Rows: TypeAlias = Sequence[RunFile]
Fault: TypeAlias = tuple[str, str, Mapping[str, Any]]  # in words, its code, and what is so in the row of such a file
Of: TypeAlias = Callable[[str], Clause]  # the promise that no file has the fault of a code
FILES, SCHEDULE, GAPS, PROBES = "files", "schedule", "gaps", "probes"


def _kind(
    name: str, what: str, limits: type, faults: Sequence[Fault], clauses: Callable[[Any, Of], Sequence[Clause]],
    *fails: str, blocked: Sequence[str], figures: Callable[[Evidence, Any], Fields] = lambda *_: {},
) -> Kind[Any]:  # fmt: skip
    """Return the kind over one sort of files; the first code of `blocked` is for a run without any."""
    outcomes = dict.fromkeys(fails, Outcome.FAIL) | dict.fromkeys(blocked, Outcome.BLOCKED)

    def of(code: str) -> Each[RunFile]:
        found = [so for _, one, so in faults if one == code]

        def broken(row: RunFile) -> Fields | None:
            wrong = any(all(getattr(row, key) is value for key, value in so.items()) for so in found)
            return {"why": row.why} if wrong else None

        return Each(code=code, need=FILES, row=RunFile, broken=broken, outcome=outcomes[code])

    nothing = Requires(code=blocked[0], lacking=lambda of: None if rows_of(of, FILES, RunFile) else {})
    breaks = Breaks(need=FILES, row=RunFile, blocked=blocked)
    return Kind(
        name=name, version=1, roles={"run": SubjectKind.RUN}, limits=limits, codes=outcomes,
        needs={FILES: Need("run_files", of=("run",), of_limits=lambda _: {"what": what}, of_rows=False)},
        judge=ClauseJudge(lambda limits: (nothing, *clauses(limits, of)), figures=figures),
        mutations=tuple(breaks(words, code, **so) for words, code, so in faults),
    )  # fmt: skip


def _lacking(rows: Rows) -> list[int]:
    there = {row.step for row in rows}
    return [step for step in scheduled(rows[0].first_step, rows[0].last_step) if step not in there]


def _thinned(rows: Rows, missing: int) -> Rows | None:
    """Return the rows without some of the schedule, so that as many are missing; one of them is kept."""
    more = missing - len(_lacking(rows))
    gone = [row.step for row in rows if is_scheduled(row.step)][-more:]
    there = [row for row in rows if row.step not in gone]
    return there if len(gone) == more and there else None


def _stretched(rows: Rows, gap: float) -> Rows:
    """Return the rows of a run that went on without a file."""
    last = max(row.step for row in rows) + int(gap * interval(10**9)) + 10_001
    return [replace(row, last_step=last) for row in rows]


def _moves(name: str, code: str, change: Callable[[Rows, Any], Rows | None], *at: str) -> Moves:
    outcome = Outcome.FAIL if at else Outcome.BLOCKED
    return table_moves(name, code, FILES, RunFile, change=change, outcome=outcome, places=frozenset(at))


CADENCE = settings(
    at_most_missing=(
        int,
        Doc("steps of the schedule without a file", ge=0, le=10**6, must="at most",
            moves=_moves("files taken away", "missing", _thinned, SCHEDULE)),
        0,
    ),
    at_most_gap=(
        float,
        Doc("distance of two files, in the steps that the schedule has there", gt=0, le=10**6, must="at most",
            moves=_moves("a run that went on", "gap", _stretched, GAPS)),
        2.0,
    ),
)  # fmt: skip
MORE = Breaks(need=FILES, row=RunFile).beyond(("one more is kept", "too-many", lambda _, __, value: {"earlier": value}))
OLDER = "earlier checkpoints that are there when the next one is whole"
KEPT = settings(at_most=(int, Doc(OLDER, ge=1, le=10**6, must="at most", moves=MORE), 3))
FEWER = _moves("fewer probes", "too-few-probes", lambda rows, few: [replace(one, probes=few) for one in rows])
PROBED = settings(at_least=(int, Doc("probes", ge=1, le=10**6, must="at least", moves=FEWER), 10))


def _cadence(limits: Any, of: Of) -> Sequence[Clause]:
    def missing(evidence: Evidence) -> tuple[float, Fields]:
        rows = rows_of(evidence, FILES, RunFile)
        lacking, may = _lacking(rows), limits.at_most_missing
        figures = {"files": len(rows), "missing": len(lacking), "first": lacking[0] if lacking else None}
        return len(lacking), {**figures, "last_step": rows[0].last_step, "may_lack": may}

    def gap(evidence: Evidence) -> tuple[float, Fields]:
        rows = rows_of(evidence, FILES, RunFile)
        steps = [rows[0].first_step, *sorted({row.step for row in rows}), rows[0].last_step]
        widest, step = max(((later - step) / interval(later), step) for step, later in pairwise(steps))
        return widest, {"gap": widest, "after": step, "may_be": limits.at_most_gap}

    return (
        *(of(code) for _, code, _ in OF_SNAPSHOTS),
        Whole(code="gap", place=lambda _: GAPS, read=gap, must="at most", bound=limits.at_most_gap),
        Whole(code="missing", place=lambda _: SCHEDULE, read=missing, must="at most", bound=limits.at_most_missing),
    )


def _kept(limits: Any, of: Of) -> Sequence[Clause]:
    few = Bounded(
        code="too-many", need=FILES, row=RunFile, value=lambda row: row.earlier, must="at most", bound=limits.at_most
    )
    return of("pruned-early"), few, of("not-whole"), of("unread")


def _most(evidence: Evidence, _limits: Any) -> Fields:
    return {"most": max((row.earlier or 0 for row in rows_of(evidence, FILES, RunFile)), default=0)}


def _probed(limits: Any, of: Of) -> Sequence[Clause]:
    def fewest(evidence: Evidence) -> tuple[float, Fields]:
        found = min(row.probes or 0 for row in rows_of(evidence, FILES, RunFile))
        return found, {"probes": found, "needed": limits.at_least}

    few = Whole(code="too-few-probes", place=lambda _: PROBES, read=fewest, must="at least", bound=limits.at_least,
                outcome=Outcome.BLOCKED)  # fmt: skip
    return *(of(code) for _, code, _ in OF_PROBES), few


def _states(what: str, **states: FileState) -> tuple[Fault, ...]:
    return tuple((f"{what} {one}", code.replace("_", "-"), {"state": one}) for code, one in states.items())


OF_SNAPSHOTS = _states(
    "a file that is", other_version=FileState.OTHER_VERSION, damaged=FileState.DAMAGED, of_another=FileState.OF_ANOTHER,
    over_budget=FileState.OVER_BUDGET, changed=FileState.CHANGED, gone=FileState.GONE,
)  # fmt: skip
OF_PROBES = _states(
    "probes that are", probes_changed=FileState.CHANGED, probes_gone=FileState.GONE, not_sealed=FileState.UNKNOWN,
    not_asked=FileState.DAMAGED,
)  # fmt: skip
OF_CHECKPOINTS: tuple[Fault, ...] = (
    ("the one before was gone already", "pruned-early", {"latest": False}),
    ("the newest was written to", "not-whole", {"state": FileState.CHANGED}),
    ("the newest is gone", "not-whole", {"state": FileState.GONE}),
    ("none that can be read", "unread", {"state": FileState.UNKNOWN}),
)
KINDS = (
    _kind("snapshot-cadence", "analysis", CADENCE, OF_SNAPSHOTS, _cadence, "gap", "missing",
          blocked=("no-analysis", *(code for _, code, _ in OF_SNAPSHOTS))),
    _kind("checkpoint-retention", "checkpoint", KEPT, OF_CHECKPOINTS, _kept, "too-many", "pruned-early", "not-whole",
          blocked=("no-checkpoints", "unread"), figures=_most),
    _kind("sealed-probes", "probes", PROBED, OF_PROBES, _probed, "probes-changed", "probes-gone",
          blocked=("no-probes", "not-sealed", "not-asked", "too-few-probes")),
)  # fmt: skip
KIND = {one.name: one for one in KINDS}
