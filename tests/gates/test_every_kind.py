"""Every kind of gate keeps the same promises: its card's passes pass, and no damage of one survives."""

from __future__ import annotations

from tests.gates.runs import passing

import pytest
from weighbridge.clauses.faults import derived
from weighbridge.core.limits import read
from weighbridge.core.model import Outcome, TrialResult
from weighbridge.gates import KINDS
from weighbridge.judging.trials import falsify

# Codes of measurements that are empty as a whole, which judging tries of every kind; and those that a point which has
# diverged may come to instead, by what was made from it: they stand in examples.
OF_NOTHING = {
    "corpus-wrap-around": {"no-passes"},
    "device-refusal": {"not-run"},
    "forward-parity": {"capture-mismatch", "other-basis"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_trial_of_a_pass_survives_each_is_caught_somewhere_and_every_code_has_one(kind: str) -> None:
    caught: set[str] = set()
    broken = {falsifier.code for falsifier in KINDS[kind].falsifiers}
    for name, (given, evidence) in passing(kind).items():
        limits = read(KINDS[kind].limits, given)
        verdict = KINDS[kind].judge(evidence, limits)
        assert (name, verdict.outcome) == (name, Outcome.PASS)
        trials = list(falsify(KINDS[kind], evidence, limits, verdict))
        assert (name, [trial.name for trial in trials if trial.result is TrialResult.SURVIVED]) == (name, [])
        found = {trial.name for trial in trials if trial.result is TrialResult.CAUGHT}
        assert (name, bool(found)) == (name, True)
        caught |= found
        broken |= {falsifier.code for falsifier in derived(evidence, limits)}
    assert {falsifier.name for falsifier in KINDS[kind].falsifiers} <= caught
    assert set(KINDS[kind].codes) - broken == OF_NOTHING.get(kind, set())
    assert broken <= set(KINDS[kind].codes)
