from __future__ import annotations

import math
from typing import Any

import pytest

from weighbridge.gates.device_refusal import KIND, Limits, Measure, check, judge
from weighbridge.judging import falsify
from weighbridge.limits import LimitsError, read
from weighbridge.model import Measurement, Outcome, Record, TrialResult, Verdict

REFUSED: dict[str, Any] = {
    "exit_code": 3,
    "timed_out": False,
    "wall_seconds": 2.0,
    "stdout": "",
    "stderr": "DEVICE_UNAVAILABLE: no cuda\n",
    "left": [],
}
LIMITS = Limits(within_s=2.0, names=("DEVICE_UNAVAILABLE",))


def evidence(**changes: Any) -> dict[str, Measurement]:
    value = Record({**REFUSED, **changes})
    return {"outcome": Measurement(quantity="command_outcome", value=value, by="test", examined=1, total=1)}


def told(verdict: Verdict) -> list[tuple[str, str]]:
    return [(offence.place, offence.code) for offence in verdict.offences]


def test_a_refusal_at_its_very_time_limit_passes_and_every_trial_is_caught() -> None:
    verdict = judge(evidence(), LIMITS)
    assert (verdict.outcome, verdict.measured, verdict.limit) == (Outcome.PASS, 2.0, 2.0)
    trials = list(falsify(KIND, evidence(), LIMITS, verdict))
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    assert {trial.code for trial in trials if trial.result is TrialResult.CAUGHT} >= set(KIND.codes) - {"not-run"}


@pytest.mark.parametrize(
    ("changes", "offences"),
    [
        ({"exit_code": 0}, [("exit", "exits-zero")]),
        ({"exit_code": -9}, [("exit", "wrong-exit")]),
        ({"wall_seconds": math.nextafter(2.0, 3.0)}, [("time", "too-late")]),
        ({"wall_seconds": math.nan}, [("time", "too-late")]),
        ({"exit_code": None, "timed_out": True}, [("time", "too-late")]),
        ({"stderr": "device_unavailable\n"}, [("output", "says-nothing")]),
        ({"left": [{"path": "runs/a", "what": "run-directory"}]}, [("leftovers", "left-behind")]),
        (
            {"exit_code": 0, "wall_seconds": 9.0, "stderr": "", "left": [{"path": "r", "what": "run-directory"}]},
            [("exit", "exits-zero"), ("time", "too-late"), ("output", "says-nothing"), ("leftovers", "left-behind")],
        ),
    ],
)
def test_each_thing_that_is_no_refusal_is_told(changes: dict[str, Any], offences: list[tuple[str, str]]) -> None:
    verdict = judge(evidence(**changes), LIMITS)
    assert (verdict.outcome, told(verdict)) == (Outcome.FAIL, offences)
    assert (verdict.counted, verdict.of) == (4 - len(offences), 4)


def test_an_exit_code_that_was_named_is_the_only_one() -> None:
    named = Limits(exit=3, within_s=2.0, names=("DEVICE_UNAVAILABLE",))
    assert judge(evidence(), named).outcome is Outcome.PASS
    assert told(judge(evidence(exit_code=1), named)) == [("exit", "wrong-exit")]


def test_a_word_counts_in_either_stream() -> None:
    assert judge(evidence(stdout="DEVICE_UNAVAILABLE", stderr=""), LIMITS).outcome is Outcome.PASS


def test_only_what_the_contract_names_may_not_be_left() -> None:
    log = [{"path": "trainer.log", "what": "file"}]
    assert judge(evidence(left=log), LIMITS).outcome is Outcome.PASS
    strict = Limits(within_s=2.0, names=("DEVICE_UNAVAILABLE",), leaves_no=("run-directory", "file"))
    assert told(judge(evidence(left=log), strict)) == [("leftovers", "left-behind")]


def test_a_command_that_was_not_run_blocks() -> None:
    empty = {"outcome": Measurement(quantity="command_outcome", value=Record(None), by="test", examined=0, total=1)}
    assert (judge(empty, LIMITS).outcome, judge(empty, LIMITS).code) == (Outcome.BLOCKED, "not-run")


@pytest.mark.parametrize(
    "limits",
    [
        {"within_s": 2, "names": []},
        {"within_s": 0, "names": ["X"]},
        {"within_s": 2, "names": ["X"], "exit": 0},
        {"within_s": 2, "names": ["X"], "exit": 256},
        {"within_s": 2, "names": ["X"], "exit": "zero"},
        {"within_s": 2, "names": ["X"], "leaves_no": ["anything"]},
    ],
)
def test_limits_that_are_no_refusal_are_lint_errors(limits: dict[str, Any]) -> None:
    with pytest.raises(LimitsError):
        read(Limits, limits)


def test_limits_that_no_command_could_meet_are_told() -> None:
    assert check(Limits(exit=True, within_s=30.0, names=(" ",)), Measure()) == [
        "exit: True is neither nonzero nor a whole number",
        "names: an empty word is in every output",
        "timeout_s: 30 s would stop the command before the 30 s are over",
    ]
    assert check(LIMITS, Measure()) == []
