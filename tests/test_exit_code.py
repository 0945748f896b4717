from __future__ import annotations

import pytest

from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.model import Finding, Outcome, Severity, Verdict


def finding(outcome: Outcome, *, gate: str = "G", code: str = "x", severity: Severity = Severity.REQUIRED) -> Finding:
    verdict = Verdict(outcome=outcome, code=code)
    return Finding(gate=gate, instance="default", kind="k", kind_version=1, severity=severity, verdict=verdict)


PASS, FAIL = finding(Outcome.PASS), finding(Outcome.FAIL)
BLOCKED, ERROR = finding(Outcome.BLOCKED), finding(Outcome.ERROR)
NEEDS_CUDA = finding(Outcome.BLOCKED, gate="CUDA", code="requires")


def test_a_pass_alone_is_0() -> None:
    assert exit_code([PASS]) is ExitCode.PASSED


def test_nothing_judged_is_5() -> None:
    assert exit_code([]) is ExitCode.NOTHING_SHOWN


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.BLOCKED])
def test_an_advisory_gate_never_sets_the_code(outcome: Outcome) -> None:
    advisory = finding(outcome, severity=Severity.ADVISORY)
    assert exit_code([PASS, advisory]) is ExitCode.PASSED
    assert exit_code([advisory]) is ExitCode.NOTHING_SHOWN


def test_an_error_always_sets_the_code() -> None:
    assert exit_code([PASS, finding(Outcome.ERROR, severity=Severity.ADVISORY)]) is ExitCode.ERROR


def test_error_comes_before_fail_before_blocked() -> None:
    assert exit_code([PASS, BLOCKED, FAIL, ERROR]) is ExitCode.ERROR
    assert exit_code([PASS, BLOCKED, FAIL]) is ExitCode.FAILED
    assert exit_code([PASS, BLOCKED]) is ExitCode.BLOCKED


def test_an_expected_block_is_excused_but_shows_nothing_by_itself() -> None:
    assert exit_code([PASS, NEEDS_CUDA], frozenset({"CUDA"})) is ExitCode.PASSED
    assert exit_code([NEEDS_CUDA], frozenset({"CUDA"})) is ExitCode.NOTHING_SHOWN


def test_only_a_missing_requirement_is_excused() -> None:
    assert (
        exit_code([PASS, finding(Outcome.BLOCKED, gate="CUDA", code="unbound")], frozenset({"CUDA"}))
        is ExitCode.BLOCKED
    )


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL])
def test_a_gate_that_was_expected_to_be_blocked_and_was_not_is_1(outcome: Outcome) -> None:
    assert exit_code([PASS, finding(outcome, gate="CUDA")], frozenset({"CUDA"})) is ExitCode.FAILED
