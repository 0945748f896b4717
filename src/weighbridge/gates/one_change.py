"""one-change: does a run differ from another in one thing only, and in what was declared?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, codes
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, Json, SubjectKind
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import FACTS, OWN, fact, in_facts, same
from weighbridge.quantities.agreement import FactAgreement

PLACE, DIRTY, COMMIT = "run.json", "dirty", "commit"


def _more(limit: Limit) -> Iterator[Mutation[Any]]:
    def more(_facts: Any, _limits: Any) -> Any:
        return {f"canary {at}": (0, 1) for at in range(limit.value)}

    yield in_facts("more changes", "several-changes", more, place=PLACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was meant to change."""

    declared: Annotated[tuple[str, ...], Doc("globs of the facts that were meant to change, each one change")] = ()
    ignored: Annotated[tuple[str, ...], Doc("globs of facts that say nothing of the program", tight="down")] = ()
    at_most: Annotated[int, Doc("changes that there may be", ge=0, must="at most", moves=_more)] = 1


def _clauses(limits: Limits) -> Sequence[Clause]:
    def count(evidence: Evidence) -> tuple[float, Fields]:
        found = _changes(evidence, limits)
        return len(found), {"changes": [f"{name}: {said}" for name, said in found.items()], "counted": 0, "of": 1}

    def unchanged(evidence: Evidence) -> tuple[float, Fields]:
        idle = [
            glob for glob in limits.declared if not any(listed(name, [glob]) for name in _differing(evidence, limits))
        ]
        return len(idle), {"unchanged": idle}

    def unknown(evidence: Evidence) -> Fields | None:
        commits, dirty = fact(evidence, COMMIT), fact(evidence, DIRTY)
        wrong = {} if commits and all(commits) else {COMMIT: commits}
        wrong |= {} if dirty and not any(one is not False for one in dirty) else {DIRTY: dirty}
        named = (
            {"fact": name, "values": list(said) or None}
            for name, said in wrong.items()
            if not listed(name, limits.ignored)
        )
        return next(named, None)

    def differs(row: FactAgreement) -> Fields | None:
        baseline, run = cast(tuple[Json, Json], row.values)
        return {"baseline": baseline, "run": run} if not same(baseline, run) else None

    spared = (*OWN, DIRTY, *limits.declared, *limits.ignored)
    undeclared = Each(code="undeclared", need=FACTS, row=FactAgreement, exempt=spared, broken=differs)
    return (
        Requires(code="same-run", lacking=several_runs.several),
        *((undeclared,) if limits.declared else ()),
        Whole(code="unchanged", place=lambda _: PLACE, read=unchanged, must="at most", bound=0),
        Whole(code="several-changes", place=lambda _: PLACE, read=count, must="at most", bound=limits.at_most),
        Requires(code="unknown-code", lacking=unknown),
    )


def _differing(evidence: Evidence, limits: Limits) -> dict[str, str]:
    found = several_runs.differing(evidence)
    spared = (DIRTY, *limits.ignored)
    return {name: f"{said[0]} -> {said[1]}" for name, said in found.items() if not listed(name, spared)}


def _changes(evidence: Evidence, limits: Limits) -> dict[str, str]:
    """Return what changed, in words: what one glob declares is one change."""
    found = dict[str, str]()
    for name, said in _differing(evidence, limits).items():
        key = next((glob for glob in limits.declared if listed(name, [glob])), name)
        found[key] = f"{found[key]}, {name} {said}" if key in found else said if key == name else f"{name} {said}"
    return found


def _in_declared(facts: Any, limits: Limits) -> Any:
    return {name: values[:1] * 2 for name, values in facts.items() if listed(name, limits.declared)}


KIND = Kind(
    name="one-change",
    version=1,
    roles={"baseline": SubjectKind.RUN, "run": SubjectKind.RUN},
    needs={FACTS: Need("fact_agreement", of=("baseline", "run"), of_rows=False)},
    limits=Limits,
    codes=codes("undeclared", "unchanged", "several-changes", blocked=("same-run", "unknown-code")),
    judge=ClauseJudge(_clauses),
    window=lambda *_: (0, 0),  # what is judged was written before the first step, however the run ended
    mutations=(
        *several_runs.SAME_RUN,
        in_facts(
            "a change that nobody declared",
            "undeclared",
            lambda _, limits: limits.declared and {"canary": (0, 1)},
            place="canary",
        ),
        in_facts("a declared change that was not made", "unchanged", _in_declared, place=PLACE),
        in_facts(
            "a tree that had changed",
            "unknown-code",
            lambda _, limits: None if listed(DIRTY, limits.ignored) else {DIRTY: (True, True)},
        ),
        in_facts(
            "no commit",
            "unknown-code",
            lambda _, limits: None if listed(COMMIT, limits.ignored) else {COMMIT: ("", "")},
        ),
    ),
)
