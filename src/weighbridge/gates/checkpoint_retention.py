"""checkpoint-retention: are few checkpoints kept, the newest whole, and none pruned before the next one was?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, Each, Requires
from weighbridge.clauses.kind import Evidence, Kind, Need, codes, rows_of
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.quantities.runs import FileState, RunFile

FILES = "files"
_breaks = Breaks(need=FILES, row=RunFile, blocked=("unread",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many may be kept."""

    at_most: Annotated[
        int,
        Doc(
            "earlier checkpoints that are there when the next one is whole", ge=1, le=10**6, must="at most",
            moves=_breaks.beyond(("one more is kept", "too-many", lambda _row, _limits, value: {"earlier": value})),
        ),
    ] = 3  # fmt: skip


def _clauses(limits: Limits) -> Sequence[Clause]:
    def each(code: str, outcome: Outcome, broken: Callable[[RunFile], bool]) -> Each[RunFile]:
        def wrong(row: RunFile) -> Fields | None:
            return {"why": row.why} if broken(row) else None

        return Each(code=code, need=FILES, row=RunFile, broken=wrong, outcome=outcome)

    most = limits.at_most
    few = Bounded(code="too-many", need=FILES, row=RunFile, value=lambda row: row.earlier, must="at most", bound=most)
    return (
        Requires(code="no-checkpoints", lacking=lambda of: None if rows_of(of, FILES, RunFile) else {}),
        each("pruned-early", Outcome.FAIL, lambda row: row.latest is False), few,
        each("not-whole", Outcome.FAIL, lambda row: row.state in (FileState.CHANGED, FileState.GONE)),
        each("unread", Outcome.BLOCKED, lambda row: row.state is FileState.UNKNOWN),
    )  # fmt: skip


def _most(evidence: Evidence, _limits: Limits) -> Fields:
    return {"most": max((row.earlier or 0 for row in rows_of(evidence, FILES, RunFile)), default=0)}


KIND: Kind[Any] = Kind(
    name="checkpoint-retention", version=1, roles={"run": SubjectKind.RUN}, limits=Limits,
    needs={FILES: Need("run_files", of=("run",), of_limits=lambda _: {"what": "checkpoint"}, of_rows=False)},
    codes=codes("too-many", "pruned-early", "not-whole", blocked=("no-checkpoints", "unread")),
    judge=ClauseJudge(_clauses, figures=_most),
    mutations=(
        _breaks("the one before was gone already", "pruned-early", latest=False),
        _breaks("the newest was written to", "not-whole", state=FileState.CHANGED),
        _breaks("the newest is gone", "not-whole", state=FileState.GONE),
        _breaks("none that can be read", "unread", state=FileState.UNKNOWN),
    ),
)  # fmt: skip
