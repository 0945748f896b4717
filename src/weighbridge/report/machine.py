"""Findings as one JSON document: the sealed figures, with their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weighbridge.evidence.codec import finding_to_json
from weighbridge.exit_code import ExitCode
from weighbridge.model import Contract, Finding, Json, Measured
from weighbridge.report.lines import finding_text

SCHEMA = "weighbridge.report/v0"


def finding_json(finding: Finding, measured: Mapping[str, Measured]) -> dict[str, Json]:
    """Return a finding with its words."""
    said = finding_text(finding, measured)
    words: dict[str, Json] = {
        "says": said.lines,
        "uncounted_says": said.uncounted,
        "besides": said.besides,
        "enough_says": said.enough,
        "hint": "; ".join(said.hints),
        "trials_told": said.trials,
    }
    return finding_to_json(finding) | words


def contract_report(
    contract: Contract, findings: Sequence[Finding], measured: Mapping[str, Measured], code: ExitCode, bundle: str
) -> dict[str, Json]:
    """Return everything that one contract came to."""
    return {
        "schema": SCHEMA,
        "contract": contract.id,
        "version": contract.version,
        "exit_code": int(code),
        "bundle": bundle,
        "findings": [finding_json(finding, measured) for finding in findings],
    }
