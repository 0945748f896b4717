"""A report format: a line a gate, with tabs between its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weighbridge.report.formats import ReportFormat


def write(rows: Sequence[Any]) -> bytes:
    """Return the report; `rows` are the contracts as `weighbridge verify --json` prints them."""
    found = [(one["contract"], gate["gate"], gate["outcome"]) for one in rows for gate in one["findings"]]
    return "".join("\t".join(line) + "\n" for line in found).encode()


TSV = ReportFormat("tsv", write)
