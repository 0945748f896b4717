from __future__ import annotations

import pytest

from weighbridge.core.exit_code import Excuses, ExitCode
from weighbridge.core.exit_code import exit_code as code_of
from weighbridge.core.model import Finding, Outcome, Severity, Verdict


def finding(outcome: Outcome, *, gate: str = "G", code: str = "x", severity: Severity = Severity.REQUIRED) -> Finding:
    verdict = Verdict(outcome=outcome, code=code)
    return Finding(gate=gate, instance="default", kind="k", kind_version=1, severity=severity, verdict=verdict)


def exit_code(findings: list[Finding], expect_blocked: frozenset[str] = frozenset(), waived: str = "") -> ExitCode:
    """Fold findings of the contract `c`, of which gate G is waived for an outcome on its default instance."""
    excuses = Excuses(expect_blocked=expect_blocked, waived={("c", "G", "default", waived): "waived"})
    return code_of([("c", one) for one in findings], excuses)


PASS, FAIL = finding(Outcome.PASS), finding(Outcome.FAIL)
BLOCKED, ERROR = finding(Outcome.BLOCKED), finding(Outcome.ERROR)
NEEDS_CUDA = finding(Outcome.BLOCKED, gate="CUDA", code="requires")


def test_a_pass_alone_is_0() -> None:
    assert exit_code([PASS]) is ExitCode.PASSED


def test_a_pass_of_an_advisory_gate_alone_is_0() -> None:
    assert exit_code([finding(Outcome.PASS, severity=Severity.ADVISORY)]) is ExitCode.PASSED


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


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.BLOCKED])
def test_a_waiver_excuses_the_very_outcome_that_it_covers_and_shows_nothing_by_itself(outcome: Outcome) -> None:
    other = Outcome.BLOCKED if outcome is Outcome.FAIL else Outcome.FAIL
    passed = finding(Outcome.PASS, gate="H")
    assert exit_code([passed, finding(outcome)], waived=outcome) is ExitCode.PASSED
    assert exit_code([finding(outcome)], waived=outcome) is ExitCode.NOTHING_SHOWN
    assert exit_code([passed, finding(other)], waived=outcome) is not ExitCode.PASSED
    assert exit_code([passed, finding(outcome, gate="I")], waived=outcome) is not ExitCode.PASSED
    assert code_of([("d", passed), ("d", finding(outcome))], Excuses(waived={("c", "G", "default", outcome): "w"})) != 0


def test_no_waiver_excuses_an_error_or_a_gate_that_was_expected_to_be_blocked() -> None:
    assert exit_code([finding(Outcome.PASS, gate="H"), ERROR], waived="ERROR") is ExitCode.ERROR
    assert exit_code([finding(Outcome.PASS, gate="H"), FAIL], frozenset("G"), waived="FAIL") is ExitCode.FAILED


def test_a_gate_that_does_not_apply_counts_neither_way() -> None:
    unmeant = finding(Outcome.NOT_APPLICABLE, code="when-false")
    assert exit_code([unmeant]) is ExitCode.NOTHING_SHOWN
    assert exit_code([unmeant, finding(Outcome.FAIL, severity=Severity.ADVISORY)]) is ExitCode.NOTHING_SHOWN
    assert exit_code([PASS, unmeant]) is ExitCode.PASSED
    assert exit_code([PASS, unmeant, BLOCKED]) is ExitCode.BLOCKED
    assert exit_code([PASS, unmeant], frozenset({"G"})) is ExitCode.FAILED
    assert exit_code([unmeant], waived="NOT_APPLICABLE") is ExitCode.NOTHING_SHOWN
