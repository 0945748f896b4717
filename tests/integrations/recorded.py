"""What a recorded training left: its rows, its events, and what the gates of a training run say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import weighbridge


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "steps.jsonl").read_text().splitlines()]


def events(path: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def outcomes(path: Path) -> dict[str, str]:
    """Judge the run by `builtin:training-run`, but for the wall time, which is a matter of the host."""
    judged = weighbridge.verify("builtin:training-run", subjects={"run": path}, evidence=path.parent / "evidence")
    return {one.gate: one.verdict.outcome.name for one in judged.findings if one.gate != "GATE-RUN-004"}


PASSED = {"GATE-RUN-001": "PASS", "GATE-RUN-002": "PASS", "GATE-RUN-003": "PASS"}
