"""What a recorded training left: its rows, its events, and what the gates of a training run say of it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import weighbridge


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "steps.jsonl").read_text().splitlines()]


def events(path: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def passed_the_gates(path: Path) -> bool:
    """Judge the run by `builtin:training-run`, but for the wall time, which is a matter of the host."""
    judged = weighbridge.verify("builtin:training-run", subjects={"run": path}, evidence=path.parent / "evidence")
    said = {one.gate: one.verdict.outcome.name for one in judged.findings if one.gate != "GATE-RUN-004"}
    assert {said[f"GATE-RUN-00{number}"] for number in (1, 2, 3)} == {"PASS"}, said
    assert set(said.values()) <= {"PASS", "NOT_APPLICABLE"}, said
    return True


def typed(command: str, folder: Path) -> tuple[int, str]:
    """Type a command in a folder; return how it ended and what it printed."""
    words = [sys.executable, "-m", *shlex.split(command)]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def as_inspect_says(name: str, folder: Path) -> tuple[int, str]:
    """Look at a recorded run, type the command that is named as the next, and return how that ended."""
    code, printed = typed(f"weighbridge inspect {name}", folder)
    assert (code, "  looks wrong        nothing\n" in printed) == (0, True), printed
    return typed(printed.splitlines()[-1].removeprefix("  next ").strip(), folder)
