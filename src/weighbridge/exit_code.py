"""What a process tells its caller: one code from all findings, with fixed precedence."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from weighbridge.model import Finding, Outcome, Severity


class ExitCode(enum.IntEnum):
    """The exit codes of `verify`; other verbs use the first ones in the same sense."""

    PASSED = 0
    FAILED = 1
    INVALID = 2
    BLOCKED = 3
    ERROR = 4
    NOTHING_SHOWN = 5
    INTERRUPTED = 130


def expected(finding: Finding, expect_blocked: frozenset[str]) -> bool:
    """Return whether a finding is blocked as expected: for want of a requirement on this host, and nothing else."""
    return (
        finding.gate in expect_blocked
        and finding.verdict.outcome is Outcome.BLOCKED
        and finding.verdict.code == "requires"
    )


def unblocked(finding: Finding, expect_blocked: frozenset[str]) -> bool:
    """Return whether a finding came to something though its gate was expected to be blocked."""
    return finding.gate in expect_blocked and finding.verdict.outcome is not Outcome.BLOCKED


def exit_code(findings: Iterable[Finding], expect_blocked: frozenset[str] = frozenset()) -> ExitCode:
    """Fold findings into one code: ERROR before FAIL before BLOCKED before nothing shown."""
    all_findings = tuple(findings)
    required = [f for f in all_findings if f.severity is Severity.REQUIRED]
    if any(f.verdict.outcome is Outcome.ERROR for f in all_findings):
        return ExitCode.ERROR
    contrary = any(unblocked(f, expect_blocked) for f in all_findings)
    if contrary or any(f.verdict.outcome is Outcome.FAIL for f in required):
        return ExitCode.FAILED
    if any(f.verdict.outcome is Outcome.BLOCKED and not expected(f, expect_blocked) for f in required):
        return ExitCode.BLOCKED
    if not any(f.verdict.outcome is Outcome.PASS for f in all_findings):
        return ExitCode.NOTHING_SHOWN
    return ExitCode.PASSED
