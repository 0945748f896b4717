"""What a process tells its caller: one code from all findings, with fixed precedence, and what excuses a finding."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from weighbridge.model import Finding, Outcome, Severity

EXPECTED = "expected: this host lacks what the gate requires (--expect-blocked)"


class ExitCode(enum.IntEnum):
    """The exit codes of `verify`; other verbs use the first ones in the same sense."""

    PASSED = 0
    FAILED = 1
    INVALID = 2
    BLOCKED = 3
    ERROR = 4
    NOTHING_SHOWN = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Excuses:
    """What excuses a finding from setting the code: a block that was expected on this host, or a waiver.

    `waived` gives in words which waiver, by contract, gate, instance and the outcome that it covers. No waiver covers
    an ERROR.
    """

    expect_blocked: frozenset[str] = frozenset()
    waived: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)

    def of(self, contract: str, finding: Finding) -> str:
        """Return what excuses a finding of a contract, or "" where nothing does."""
        outcome, code = finding.verdict.outcome, finding.verdict.code
        if finding.gate in self.expect_blocked and outcome is Outcome.BLOCKED and code == "requires":
            return EXPECTED
        return self.waived.get((contract, finding.gate, finding.instance, outcome), "")


NONE = Excuses()


def exit_code(findings: Iterable[tuple[str, Finding]], excuses: Excuses = NONE) -> ExitCode:
    """Fold findings, each with the id of its contract, into one code: ERROR before FAIL before BLOCKED."""
    found = tuple(findings)
    outcomes = [(finding.gate, finding.verdict.outcome) for _, finding in found]
    if any(outcome is Outcome.ERROR for _, outcome in outcomes):
        return ExitCode.ERROR
    unblocked = any(gate in excuses.expect_blocked and outcome is not Outcome.BLOCKED for gate, outcome in outcomes)
    counted = {
        one.verdict.outcome
        for contract, one in found
        if one.severity is Severity.REQUIRED and not excuses.of(contract, one)
    }
    if unblocked or Outcome.FAIL in counted:
        return ExitCode.FAILED
    if Outcome.BLOCKED in counted:
        return ExitCode.BLOCKED
    return ExitCode.PASSED if any(outcome is Outcome.PASS for _, outcome in outcomes) else ExitCode.NOTHING_SHOWN
