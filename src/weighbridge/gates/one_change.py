"""one-change: does a run state the same as another but for the one thing that was declared?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, listed
from weighbridge.clauses.kind import Evidence, Kind, Need, codes, rows_of
from weighbridge.core import Doc, Fields, SubjectKind, dataclass
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import BREAKS_FACTS, FACTS, OWN, differs, fact
from weighbridge.quantities.facts import FactAgreement

DIRTY, COMMIT = "dirty", "commit"
UNKNOWN = {COMMIT: lambda one: not one, DIRTY: lambda one: one is not False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was meant to change."""

    change: Annotated[str, Doc("the fact that was meant to change, or a glob where several are one change")] = ""
    ignored: Annotated[tuple[str, ...], Doc("globs of facts that say nothing of the program", tight="down")] = ()

    @property
    def spared(self) -> tuple[str, ...]:
        """Return the globs of facts that need not be the same."""
        return (*OWN, DIRTY, self.change, *self.ignored)


def _clauses(limits: Limits) -> Sequence[Clause]:
    def broken(row: FactAgreement) -> Any:
        return {"baseline": row.values[0], "run": row.values[1]} if differs(row) else None

    def unknown(evidence: Evidence) -> Fields | None:
        for name in (one for one in UNKNOWN if not listed(one, limits.ignored)):
            said = fact(evidence, name) or (None,)
            if any(map(UNKNOWN[name], said)):
                return {"fact": name, "values": list(said)}
        return None

    return (
        several_runs.ARE_SEVERAL,
        Each(code="undeclared", need=FACTS, row=FactAgreement, exempt=limits.spared, broken=broken),
        Requires(code="unknown-code", lacking=unknown),
    )


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    rows = [row for row in rows_of(evidence, FACTS, FactAgreement) if differs(row)]
    changed = [row for row in rows if listed(row.fact, [limits.change])]
    return {"changes": [f"{row.fact} {row.values[0]} -> {row.values[1]}" for row in changed] or None}


def _unknown(name: str) -> Any:
    def change(row: FactAgreement, limits: Limits) -> Any:
        return None if row.fact == name or listed(name, limits.ignored) else row

    return BREAKS_FACTS.only(f"no {name}", "unknown-code", change, "it is ignored")


KIND = Kind(
    name="one-change", version=1, roles={"baseline": SubjectKind.RUN, "run": SubjectKind.RUN}, limits=Limits,
    needs={FACTS: Need("fact_agreement", of=("baseline", "run"), of_rows=False)},
    codes=codes("undeclared", blocked=("same-run", "unknown-code")), judge=ClauseJudge(_clauses, figures=_figures),
    mutations=(
        several_runs.TWICE,
        BREAKS_FACTS(
            "a change that nobody declared", "undeclared",
            lambda row, limits: None if listed(row.fact, limits.spared) else {"values": (0, 1)},
        ),
        *map(_unknown, UNKNOWN),
    ),
    window=lambda *_: (0, 0),  # what is judged was written before the first step, however the run ended
)  # fmt: skip
