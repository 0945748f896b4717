"""A report as GitLab Code Quality: what did not pass, at the line of its gate."""

from __future__ import annotations

import json

from weighbridge.report import Level, gate_name
from weighbridge.report.rows import Report

SEVERITIES = {Level.ERROR: "critical", Level.WARNING: "minor", Level.NOTICE: "info"}


def issues(report: Report) -> str:
    """Return the list of issues; GitLab shows a description on one line."""
    found = [
        {
            "check_name": row.finding.kind,
            "description": f"{row.outcome} {gate_name(row.finding)}: {row.title}: {row.lines()[0]}",
            "fingerprint": suite.fingerprint(row),
            "severity": SEVERITIES[row.level],
            "location": {"path": row.file, "lines": {"begin": max(row.line, 1)}},
        }
        for suite, row in report.rows
        if row.level is not Level.NONE
    ]
    return json.dumps(found, indent=2) + "\n"
