"""What a process tells its caller: one code from all findings, with fixed precedence, and what excuses a finding."""

import enum
from collections.abc import Iterable, Mapping

from weighbridge.core.frozen import dataclass, field
from weighbridge.core.model import Finding, Outcome, Severity

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
    """What excuses a finding from setting the code: a block that was expected on this host, or a waiver."""

    expect_blocked: frozenset[str] = frozenset()
    # In words which waiver, by contract, gate, instance and the outcome that it covers, which is never an ERROR.
    waived: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)

    def of(self, contract: str, finding: Finding) -> str:
        """Return what excuses a finding of a contract, or "" where nothing does."""
        outcome, code = finding.verdict.outcome, finding.verdict.code
        if finding.gate in self.expect_blocked and outcome is Outcome.BLOCKED and code == "requires":
            return EXPECTED
        return self.waived.get((contract, finding.gate, finding.instance, outcome), "")


NONE = Excuses()


def unblocked(finding: Finding, excuses: Excuses) -> bool:
    """Return whether a finding came to something though its gate was expected to be blocked."""
    return finding.gate in excuses.expect_blocked and finding.verdict.outcome is not Outcome.BLOCKED


def exit_code(findings: Iterable[tuple[str, Finding]], excuses: Excuses = NONE) -> ExitCode:
    """Fold findings, each with the id of its contract, into one code: ERROR before FAIL before BLOCKED."""
    found = tuple(findings)
    outcomes = [one.verdict.outcome for _, one in found]
    if Outcome.ERROR in outcomes:
        return ExitCode.ERROR
    required = ((contract, one) for contract, one in found if one.severity is Severity.REQUIRED)
    counted = {one.verdict.outcome for contract, one in required if not excuses.of(contract, one)}
    if Outcome.FAIL in counted or any(unblocked(one, excuses) for _, one in found):
        return ExitCode.FAILED
    if Outcome.BLOCKED in counted:
        return ExitCode.BLOCKED
    return ExitCode.PASSED if Outcome.PASS in outcomes else ExitCode.NOTHING_SHOWN
