"""Weaken the judges that are not made of clauses, one place of their source each: an example or a trial must notice.

Some mutants cannot be noticed: they change a figure that no example shows, or mean the same for all that can be
measured. How many these are is counted for each kind, exactly, so that a new one is read by a person. The two of
no-silent-cpu-fallback are `<=` in the place of `==` between a device and `auto` or `cpu`: no device's name sorts before
these, and the contract's schema allows none other than cpu, cuda, mps and auto.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.gates.mutation import called_by_judge, mutants

from weighbridge.cards import gate_card
from weighbridge.clauses.clause import ClauseJudge
from weighbridge.clauses.kind import Kind
from weighbridge.examples import Example, examples
from weighbridge.gates import KINDS
from weighbridge.judging import falsify
from weighbridge.limits import plain, read
from weighbridge.model import Outcome, TrialResult

FREE = [name for name, kind in KINDS.items() if not isinstance(kind.judge, ClauseJudge)]
SILENT: Mapping[str, int] = {
    "byte-identity": 0, "config-agreement": 0, "corpus-wrap-around": 0, "device-refusal": 3, "dtype-preservation": 3,
    "forward-parity": 79, "label-plausibility": 17, "no-silent-cpu-fallback": 2, "step-metrics": 0,
    "tensor-coverage": 0, "value-preservation": 18,
}  # fmt: skip


def module_of(kind: Kind[Any]) -> types.ModuleType:
    return sys.modules[kind.judge.__module__]


def noticed(kind: Kind[Any], weak: Kind[Any], shown: Sequence[Example]) -> bool:
    """Tell whether an example is judged otherwise, or passes with a trial that survives or with none that is caught."""
    return any(_differs(kind, weak, example) for example in shown)


def _differs(kind: Kind[Any], weak: Kind[Any], example: Example) -> bool:
    try:
        limits = read(weak.limits, plain(example.limits))
        before, after = kind.judge(example.evidence, example.limits), weak.judge(example.evidence, limits)
        if before != after:
            return True
        if after.outcome is not Outcome.PASS:
            return False
        trials = list(falsify(weak, example.evidence, limits, after))
    except Exception:
        return True
    falsified = any(trial.kind == "falsifier" and trial.result is TrialResult.CAUGHT for trial in trials)
    return not falsified or any(trial.result is TrialResult.SURVIVED for trial in trials)


def test_an_unchanged_judge_is_noticed_by_nothing() -> None:
    for name in FREE:
        assert not noticed(KINDS[name], KINDS[name], list(examples(gate_card(name), KINDS[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", FREE)
def test_a_weakened_judge_is_noticed(name: str) -> None:
    kind = KINDS[name]
    module, shown = module_of(kind), list(examples(gate_card(name), kind))
    weak = mutants(module, called_by_judge(module))
    silent = [what for what, mutant in weak if not noticed(kind, mutant.KIND, shown)]
    assert len(silent) == SILENT[name], silent
