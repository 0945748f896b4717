"""Every kind of gate keeps the same promises: its card's passes pass, and no damage of one survives."""

from __future__ import annotations

import pytest
from tests.gates.runs import passing

from weighbridge.clauses.mutations import of_limits
from weighbridge.core.limits import read
from weighbridge.core.model import Outcome, TrialResult
from weighbridge.gates import KINDS
from weighbridge.gates.families.run_columns import INVENTING
from weighbridge.judging.judging import falsify

# Codes of measurements that are empty as a whole, which judging tries of every kind; and those that a point which has
# diverged may come to instead, by what was made from it: they stand in examples.
OF_NOTHING = {
    "checkpoint-retention": {"no-checkpoints"},
    "corpus-wrap-around": {"no-passes"},
    "device-refusal": {"not-run"},
    "forward-parity": {"capture-mismatch", "other-basis"},
    "optimizer-digest": {"no-digest"},
    "sealed-probes": {"no-probes"},
    "snapshot-cadence": {"no-analysis"},
}


# What several kinds ask of a column is broken in the examples of one of them.
SHARED = {one.name for one in INVENTING} & {one.name for one in KINDS["wall-time-budget"].mutations}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_trial_of_a_pass_survives_each_is_caught_somewhere_and_every_code_has_one(kind: str) -> None:
    caught: set[str] = set()
    broken = {one.code for one in KINDS[kind].mutations}
    for name, (given, evidence) in passing(kind).items():
        limits = read(KINDS[kind].limits, given)
        verdict = KINDS[kind].judge(evidence, limits)
        assert (name, verdict.outcome) == (name, Outcome.PASS)
        trials = list(falsify(KINDS[kind], evidence, limits, verdict))
        assert (name, [trial.name for trial in trials if trial.result is TrialResult.SURVIVED]) == (name, [])
        found = {trial.name for trial in trials if trial.result is TrialResult.CAUGHT}
        assert (name, bool(found)) == (name, True)
        caught |= found
        broken |= {mutation.code for mutation in of_limits(limits)}
    shared = SHARED if kind != "wall-time-budget" else set()
    assert {one.name for one in KINDS[kind].mutations} <= caught | shared
    assert set(KINDS[kind].codes) - broken == OF_NOTHING.get(kind, set())
    assert broken <= set(KINDS[kind].codes)
