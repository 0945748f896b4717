"""Findings for a terminal: one block a gate, the tally, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from weighbridge.exit_code import ExitCode
from weighbridge.model import Contract, Finding, Measured, Outcome, Severity, Status
from weighbridge.printable import printable
from weighbridge.report.lines import ENOUGH, UNCOUNTED, capped, finding_text

COLOURS = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.BLOCKED: "yellow", Outcome.ERROR: "magenta"}
STATUS_WORDS = {status: status.value for status in Status} | {
    Status.PARTIAL_ALGORITHM_LEVEL: "fixture only",
    Status.ACTIVE_WITH_LIVE_EVIDENCE: "live",
}
WIDTH = 8
INDENT = " " * 4


def heading(contract: Contract, subjects: Sequence[str]) -> str:
    """Return the line that names a contract and its subjects."""
    name = click.style(f"{contract.id} {contract.version}", bold=True)
    return f"{name}   {'  '.join(map(printable, subjects))}".rstrip()


def block(finding: Finding, title: str, position: str, measured: Mapping[str, Measured]) -> list[str]:
    """Return the lines of a finding: outcome, gate and title, what was found, what would have passed, and hints."""
    said = finding_text(finding, measured)
    outcome = click.style(f"{finding.verdict.outcome:<{WIDTH}}", fg=COLOURS[finding.verdict.outcome], bold=True)
    advisory = " (advisory)" if finding.severity is Severity.ADVISORY else ""
    lines = [f"{outcome} {gate_name(finding)}{advisory}  {printable(title)}"]
    lines += [f"{INDENT}{line}" for line in capped(said.lines)]
    if finding.uncounted is not None:
        otherwise = click.style(str(finding.uncounted.outcome), fg=COLOURS[finding.uncounted.outcome])
        lines += [f"{INDENT}{UNCOUNTED} {otherwise} {line}" for line in capped(said.uncounted, 2)]
    lines += [f"{INDENT}{said.besides}"] if said.besides else []
    lines += [f"{INDENT}{ENOUGH}: {said.enough}"] if said.enough else []
    lines += [f"{INDENT}{click.style(hint, dim=True)}" for hint in said.hints]
    if finding.verdict.outcome is Outcome.PASS:
        lines += [f"{INDENT}{click.style(f'trials: {said.trials}', dim=True)}"]
    elif position:
        lines += [f"{INDENT}{click.style(printable(position), dim=True)}"]
    return lines


def gate_name(finding: Finding) -> str:
    """Return a gate's name, with its instance where it has one."""
    return finding.gate if finding.instance == "default" else f"{finding.gate}[{finding.instance}]"


def tally(findings: Sequence[Finding], code: ExitCode) -> str:
    """Return how many findings came to which outcome, and the exit code."""
    counts = Counter(finding.verdict.outcome for finding in findings)
    words = {Outcome.ERROR: "errored", Outcome.FAIL: "failed", Outcome.BLOCKED: "blocked", Outcome.PASS: "passed"}
    told = ", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome])
    return f"{told or 'nothing judged'} of {len(findings)} -> exit {code.value} ({code.name.lower().replace('_', ' ')})"
