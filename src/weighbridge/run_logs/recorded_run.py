"""Read the run directory that a recorder writes: `run.json`, `steps.jsonl`, `events.jsonl` (spec/run-directory.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from weighbridge.canonical import loads
from weighbridge.errors import SubjectError, WeighbridgeError
from weighbridge.model import Fields
from weighbridge.run_logs.json_log import read_events, read_jsonl
from weighbridge.run_logs.log_file import read_whole
from weighbridge.run_logs.log_table import Log
from weighbridge.storage.local_files import exists

SCHEMA = "weighbridge.run/v0"
HEAD, STEPS, EVENTS = "run.json", "steps.jsonl", "events.jsonl"
MAX_HEAD = 1 << 20
SHOWN = 64


def read_run_directory(path: Path, digests: dict[str, str]) -> Log:
    """Read a run directory; `run.json` and `events.jsonl` may be absent, `steps.jsonl` may not.

    Raises:
        SubjectError: `not-a-run`, `run-schema`, `log-syntax`, or what reading a file raises.
    """
    if not exists(path / STEPS):
        ranks = sorted(entry.name for entry in path.glob("rank-*"))[:SHOWN]
        if ranks:
            what = f"a run of {len(ranks)} ranks: {', '.join(ranks)}"
            raise SubjectError("not-a-run", what, where=str(path), remedy="bind one rank's directory at a time")
        remedy = "bind a run directory that a recorder wrote, or a log file"
        raise SubjectError("not-a-run", f"a directory without {STEPS}", where=str(path), remedy=remedy)
    head = _head(path / HEAD, digests) if exists(path / HEAD) else {}
    log = read_jsonl(path / STEPS, digests)
    events = read_events(path / EVENTS, digests) if exists(path / EVENTS) else ()
    return dataclasses.replace(log, facts=head, events=events, traced=complete(head))


def complete(head: Fields) -> bool:
    """Return whether provenance is complete: schema, process, host, device and commit are all there."""
    pid = head.get("pid")
    words = (head.get("host"), head.get("resolved_device"), head.get("commit"))
    named = all(isinstance(word, str) and word for word in words)
    return head.get("schema") == SCHEMA and type(pid) is int and pid > 0 and named


def _head(path: Path, digests: dict[str, str]) -> Fields:
    try:
        head = loads(read_whole(path, digests, MAX_HEAD), where=str(path))
    except SubjectError:
        raise
    except WeighbridgeError as problem:
        raise SubjectError("log-syntax", problem.what, where=str(path), remedy="write run.json again") from None
    if not isinstance(head, Mapping):
        raise SubjectError("log-syntax", "run.json must be an object, {…}", where=str(path))
    if head.get("schema") != SCHEMA:
        what = f"schema {str(head.get('schema'))[:60]!r} is not known"
        raise SubjectError("run-schema", what, where=str(path), remedy=f"this version reads {SCHEMA}")
    return head
