"""A report in the Test Anything Protocol, version 14; `# SKIP` counts as ok, and is for NOT_APPLICABLE alone."""

from __future__ import annotations

import json
import re

from weighbridge.core import Outcome
from weighbridge.report import Level, gate_name
from weighbridge.report.rows import Report

TODO = (Level.WARNING, Level.NOTICE)  # shown, and nobody fails on it


def points(report: Report) -> str:
    """Return a test point for each finding, and one more that is not ok where no gate passed."""
    rows = report.rows
    lines = ["TAP version 14", f"1..{len(rows) + bool(report.nothing_shown)}"]
    for number, (suite, row) in enumerate(rows, start=1):
        name = _escaped(f"{suite.contract} {gate_name(row.finding)} {row.title}")
        unmeant = row.outcome is Outcome.NOT_APPLICABLE and row.level is Level.NOTICE
        why = row.said.lines[0] if unmeant else "advisory" if row.level is Level.WARNING else row.excused
        directive = f" # {'SKIP' if unmeant else 'TODO'} {_escaped(why)}" if why and row.level in TODO else ""
        lines.append(f"{'ok' if unmeant or row.level is Level.NONE else 'not ok'} {number} - {name}{directive}")
        diagnostic: dict[str, object] = {"outcome": row.outcome, "severity": row.finding.severity}
        diagnostic |= {"checked": suite.checked, "at": f"{row.file}:{row.line}"}
        diagnostic |= {"duration_ms": round(row.seconds * 1000)}
        diagnostic |= {"found": row.lines(), "hints": row.said.hints}
        said = (f"  {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in diagnostic.items())
        lines += ["  ---", *said, "  ..."]
    if report.nothing_shown:
        lines.append(f"not ok {len(rows) + 1} - {report.nothing_shown}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\#])", r"\\\1", text)
