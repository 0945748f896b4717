"""sealed-probes: were the probes at every look the file that was sealed before the first step, and enough of them?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, Whole
from weighbridge.clauses.kind import Evidence, Kind, Need, codes, rows_of
from weighbridge.clauses.mutations import Breaks, table_moves
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.quantities.runs import FileState, RunFile

FILES, PLACE = "files", "probes"
STATES = {"probes-changed": FileState.CHANGED, "probes-gone": FileState.GONE, "not-sealed": FileState.UNKNOWN,
          "not-asked": FileState.DAMAGED}  # fmt: skip
BLOCKED = ("no-probes", "not-sealed", "not-asked", "too-few-probes")


def _fewer(rows: Sequence[RunFile], probes: int) -> Sequence[RunFile]:
    return [replace(row, probes=probes) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many probes there must be."""

    at_least: Annotated[int, Doc("probes", ge=1, le=10**6, must="at least", moves=table_moves(
        "fewer probes", "too-few-probes", FILES, RunFile, change=_fewer, outcome=Outcome.BLOCKED))] = 10  # fmt: skip


def _clauses(limits: Limits) -> Sequence[Clause]:
    def each(code: str) -> Each[RunFile]:
        def broken(row: RunFile) -> Fields | None:
            return {"why": row.why} if row.state is STATES[code] else None

        outcome = Outcome.BLOCKED if code in BLOCKED else Outcome.FAIL
        return Each(code=code, need=FILES, row=RunFile, broken=broken, outcome=outcome)

    def fewest(evidence: Evidence) -> tuple[float, Fields]:
        found = min(row.probes or 0 for row in rows_of(evidence, FILES, RunFile))
        return found, {"probes": found, "needed": limits.at_least}

    return (
        Requires(code="no-probes", lacking=lambda of: None if rows_of(of, FILES, RunFile) else {}),
        each("probes-changed"), each("probes-gone"), each("not-sealed"), each("not-asked"),
        Whole(code="too-few-probes", place=lambda _: PLACE, read=fewest, must="at least", bound=limits.at_least,
              outcome=Outcome.BLOCKED),
    )  # fmt: skip


_breaks = Breaks(need=FILES, row=RunFile, blocked=BLOCKED)
KIND: Kind[Any] = Kind(
    name="sealed-probes", version=1, roles={"run": SubjectKind.RUN}, limits=Limits,
    needs={FILES: Need("run_files", of=("run",), of_limits=lambda _: {"what": "probes"}, of_rows=False)},
    codes=codes("probes-changed", "probes-gone", blocked=BLOCKED), judge=ClauseJudge(_clauses),
    mutations=tuple(_breaks(f"probes that are {state}", code, state=state) for code, state in STATES.items()),
)  # fmt: skip
