"""Weaken the judges that are not made of clauses, one place of their source each: an example or a trial must notice.

Some mutants cannot be noticed: they change a figure that no example shows, or mean the same for all that can be
measured. How many these are is counted for each kind, exactly, so that a new one is read by a person. Two of
no-silent-cpu-fallback are `<=` in the place of `==` between a device and `auto` or `cpu`: no device's name sorts before
these, and the contract's schema allows none other than cpu, cuda, mps and auto; three more take one row without a
probe for all, and a run that nothing probed has one row.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from tests.gates.mutation import called_by_judge, mutants

from weighbridge.cards.card_checks import Example, examples
from weighbridge.cards.words import gate_card
from weighbridge.clauses.clause import ClauseJudge
from weighbridge.clauses.kind import Kind
from weighbridge.core.model import Outcome, Trial, TrialResult, Verdict
from weighbridge.gates import KINDS
from weighbridge.judging.judging import falsify

FREE = [name for name, kind in KINDS.items() if not isinstance(kind.judge, ClauseJudge)]
SILENT: Mapping[str, int] = {
    "byte-identity": 0, "config-agreement": 0, "corpus-wrap-around": 0, "device-refusal": 3, "dtype-preservation": 3,
    "forward-parity": 29, "label-plausibility": 17, "no-silent-cpu-fallback": 5, "step-metrics": 0,
    "tensor-coverage": 0, "value-preservation": 25,
}  # fmt: skip


def module_of(kind: Kind[Any]) -> types.ModuleType:
    return sys.modules[kind.judge.__module__]


def shown(kind: Kind[Any]) -> Sequence[tuple[Example, Verdict]]:
    return [(example, kind.judge(example.evidence, example.limits)) for example in examples(gate_card(kind.name), kind)]


def noticed(weak: Kind[Any], judged: Sequence[tuple[Example, Verdict]]) -> bool:
    """Tell whether an example is judged otherwise, or passes with a trial that survives or with none that is caught."""
    try:
        if any(weak.judge(example.evidence, example.limits) != verdict for example, verdict in judged):
            return True
        passed = [(example, verdict) for example, verdict in judged if verdict.outcome is Outcome.PASS]
        return any(_survives(falsify(weak, one.evidence, one.limits, verdict)) for one, verdict in passed)
    except Exception:
        return True


def _survives(trials: Iterable[Trial]) -> bool:
    falsified = False
    for trial in trials:
        if trial.result is TrialResult.SURVIVED:
            return True
        falsified |= trial.kind == "mutation" and trial.result is TrialResult.CAUGHT
    return not falsified


@pytest.mark.exhaustive
def test_an_unchanged_judge_is_noticed_by_nothing() -> None:
    for name in FREE:
        assert not noticed(KINDS[name], shown(KINDS[name]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FREE)
def test_a_weakened_judge_is_noticed(name: str) -> None:
    module, judged = module_of(KINDS[name]), shown(KINDS[name])
    weak = mutants(module, called_by_judge(module))
    silent = [what for what, mutant in weak if not noticed(mutant.KIND, judged)]
    assert len(silent) == SILENT[name], silent
