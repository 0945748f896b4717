"""Weaken the clauses of each kind that declares them, one at a time: an example or a trial must notice every time.

The weakenings are a closed list (drop a clause, turn its strictness, move its bound, exempt what it promises), so no
table names a mutant: a kind is found in the table of kinds, its clauses in its judge.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from weighbridge.cards.card_checks import Example, examples
from weighbridge.cards.words import gate_card
from weighbridge.clauses.clause import Bounded, Clause, ClauseJudge, Each, Whole
from weighbridge.clauses.kind import Kind
from weighbridge.core.model import Outcome, TrialResult
from weighbridge.gates import KINDS
from weighbridge.judging.judging import falsify

DECLARED = [name for name, kind in KINDS.items() if isinstance(kind.judge, ClauseJudge)]
TURNED = {"at most": "below", "below": "at most", "at least": "above", "above": "at least"}
LOOSER = {"at most": 1, "below": 1, "at least": -1, "above": -1}
Weakening = Callable[[Sequence[Clause]], Sequence[Clause]]


def weakenings(clauses: Sequence[Clause]) -> Iterator[tuple[str, int, Clause | None]]:
    """Yield each weakening: what it is, which clause it changes, and what it puts there."""
    for at, clause in enumerate(clauses):
        yield f"{clause.code} dropped", at, None
        if isinstance(clause, (Bounded, Whole)):
            yield f"{clause.code} {TURNED[clause.must]}", at, dataclasses.replace(clause, must=TURNED[clause.must])
            step = 1 if isinstance(clause.bound, int) else abs(clause.bound) * 1e-9 or math.ulp(0.0)
            moved = clause.bound + LOOSER[clause.must] * step
            yield f"{clause.code} looser", at, dataclasses.replace(clause, bound=moved)
        if isinstance(clause, (Bounded, Each)):
            yield f"{clause.code} exempts all", at, dataclasses.replace(clause, exempt=("*",))


def weakened(kind: Kind[Any], at: int, change: Callable[[Clause], Clause | None]) -> Kind[Any]:
    judge = kind.judge
    assert isinstance(judge, ClauseJudge)
    inner = judge.clauses

    def clauses(limits: Any) -> Sequence[Clause]:
        return [new for i, one in enumerate(inner(limits)) if (new := change(one) if i == at else one) is not None]

    return dataclasses.replace(kind, judge=dataclasses.replace(judge, clauses=clauses))


def notices(kind: Kind[Any], weak: Kind[Any], example: Example) -> bool:
    """Tell whether an example is judged otherwise, or passes with a trial that survives."""
    before, after = kind.judge(example.evidence, example.limits), weak.judge(example.evidence, example.limits)
    if (before.outcome, before.code, len(before.offences)) != (after.outcome, after.code, len(after.offences)):
        return True
    if after.outcome is not Outcome.PASS:
        return False
    trials = falsify(weak, example.evidence, example.limits, after)
    return any(trial.result is TrialResult.SURVIVED for trial in trials)


@pytest.mark.slow
@pytest.mark.parametrize("name", DECLARED)
def test_every_weakened_clause_is_noticed(name: str) -> None:
    kind = KINDS[name]
    shown = list(examples(gate_card(name), kind))
    unnoticed = []
    judge = kind.judge
    assert isinstance(judge, ClauseJudge)
    seen: dict[str, bool] = {}
    for example in shown:
        for what, at, new in weakenings(judge.clauses(example.limits)):
            weak = weakened(kind, at, lambda _, new=new: new)  # type: ignore[misc]
            # The clause's bound is that of this example's limits: only this example can judge the weakening.
            seen[what] = seen.get(what, False) or notices(kind, weak, example)
    unnoticed = sorted(what for what, found in seen.items() if not found)
    assert unnoticed == []
