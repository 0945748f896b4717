"""Write a run directory: `run.json` once, whole; `steps.jsonl` and `events.jsonl` by whole lines.

A process that is killed leaves whole lines and at most one torn last line, never a broken file. Nothing here may block
on a device, and nothing is written by a process other than the one that opened the log.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = "weighbridge.run/v0"
RUN, STEPS, EVENTS = "run.json", "steps.jsonl", "events.jsonl"
MAX_ROWS = 64
MAX_SECONDS = 2.0


class RowLog:
    """An append-only file of JSON lines, written when `max_rows` wait or `max_seconds` have passed."""

    def __init__(self, path: Path, *, max_rows: int = MAX_ROWS, max_seconds: float = MAX_SECONDS) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._max_rows = max_rows
        self._max_seconds = max_seconds
        self._lines: list[str] = []
        self._flushed = -math.inf
        self._pid = os.getpid()

    def append(self, row: Mapping[str, Any], *, now: bool = False) -> None:
        """Add one row, and write what waits when it is time or `now`."""
        self._lines.append(json.dumps(row, separators=(",", ":")))
        if now or len(self._lines) >= self._max_rows or time.monotonic() - self._flushed >= self._max_seconds:
            self.flush()

    def flush(self) -> None:
        """Write every waiting row. A forked child inherits rows that are its parent's to write, and drops them."""
        lines, self._lines = self._lines, []
        self._flushed = time.monotonic()
        if not lines or os.getpid() != self._pid:
            return
        rest = memoryview(("\n".join(lines) + "\n").encode())
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def close(self) -> None:
        """Write every waiting row and let go of the file."""
        self.flush()
        os.close(self._descriptor)


def write_run(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write `run.json` in one move: the whole file or none."""
    fresh = directory / f".{RUN}.{os.getpid()}"
    fresh.write_text(json.dumps({"schema": SCHEMA, **facts}, indent=2, sort_keys=True) + "\n", "utf-8")
    fresh.replace(directory / RUN)
