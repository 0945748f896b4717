"""Write a run directory: `run.json` once, whole; `steps.jsonl` and `events.jsonl` a whole line at a time.

Where the disk is full, half a line is taken back and rows wait. Nothing here may block on a device.
"""

import contextlib
import datetime as dt
import itertools
import json
import math
import os
import platform
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import __version__, git, torch
from weighbridge.core.local_files import OWN
from weighbridge.core.pseudonym import key_file, pseudonym
from weighbridge.quantities.book_lines import STOPPED

SCHEMA = "weighbridge.run/v0"
RUN, STEPS, EVENTS, LAYERS = "run.json", "steps.jsonl", "events.jsonl", "layers.jsonl"
DIAGNOSTICS = "diagnostics.jsonl"
ENCODED = json.JSONEncoder(separators=(",", ":")).encode
NUMBERS = {int, float}
MAX_WAITING = 10_000  # rows kept while the disk takes none
GIT_SECONDS = 5.0


class RowLog:
    """A file of JSON lines that this process alone writes; a file that is there is a FileExistsError."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | OWN, 0o644)
        self._waiting: list[str] = []
        self._whole = 0  # bytes of whole lines
        self._broken = False
        self._pid = os.getpid()
        self.problem: OSError | None = None  # why the last row could not be written
        self.lost = 0  # rows that were dropped

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row, after those that wait; a forked child writes none, for its parent has the file."""
        line = encoded(row) + "\n"
        if os.getpid() != self._pid:
            return
        if self._broken or len(self._waiting) >= MAX_WAITING:
            self.lost += 1
        else:
            self._waiting.append(line)
        self._flush()

    def _flush(self) -> None:
        if self._broken or not self._waiting:
            return
        rest = memoryview("".join(self._waiting).encode())
        size = len(rest)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as problem:
            self.problem = problem
            try:  # cut the file after its last whole line; where not even that can be done, write nothing behind it
                os.ftruncate(self._descriptor, self._whole)
            except OSError:
                self._broken = True
                self.lost += len(self._waiting)
                self._waiting.clear()
            return
        self._whole += size
        self._waiting.clear()
        self.problem = None

    def close(self) -> None:
        """Write what waits, count what cannot be written as lost, and let go of the file."""
        if os.getpid() == self._pid:
            self._flush()
            self.lost += len(self._waiting)
        os.close(self._descriptor)


def encoded(row: Mapping[str, Any]) -> str:
    """Return a row as JSON; one of finite numbers by plain names, as every step has one, needs no encoder."""
    values, names = row.values(), "".join(row)
    if {*map(type, values)} <= NUMBERS and names.isidentifier() and names.isascii() and math.isfinite(sum(values)):
        return "{" + ",".join(map('"%s":%r'.__mod__, row.items())) + "}"
    return ENCODED(row)


def claim(directory: Path) -> tuple[Path, int, RowLog]:
    """Claim a directory for a run, or where it holds one already `attempt-2`, `attempt-3`, … in it; raise OSError."""
    for attempt in itertools.count(1):
        own = directory if attempt == 1 else directory / f"attempt-{attempt}"
        own.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            if not (own / RUN).exists():
                return own, attempt, RowLog(own / STEPS)
    raise AssertionError


def refuse_stopped(directory: Path) -> None:
    """Raise an OSError where a witness stopped the run in a directory and nobody released it."""
    if os.path.lexists(directory / STOPPED):
        gate = f" by {gate}" if (gate := _of(directory / STOPPED, "gate")) else ""
        what = f"stopped: this run was ended{gate}; `weighbridge watch RUN --release REASON` lets it go on"
        raise FileExistsError(what)


def run_of(directory: Path) -> str:
    """Return the name that all attempts of a run share: of the first one's `run.json`, else a new one."""
    return _of(directory / RUN, "run") or secrets.token_hex(8)


def _of(file: Path, key: str) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(file.read_text("utf-8"))[key])
    return ""


def write_run(directory: Path, facts: Mapping[str, Any]) -> None:
    """Write `run.json`."""
    put(directory / RUN, json.dumps({"schema": SCHEMA, **facts}, indent=2, sort_keys=True) + "\n")


def put(path: Path, text: str) -> None:
    """Write a file in one move: the whole or none."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, "utf-8")
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def provenance() -> dict[str, Any]:
    """Collect what binds a run to a process, a host and a commit, and what ran; no name of a person or a machine."""
    built_for = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "weighbridge": __version__}
    return {
        "pid": os.getpid(),
        "host": host(),
        "commit": git.commit(Path(), GIT_SECONDS),
        "dirty": git.is_dirty(Path(), GIT_SECONDS),
        "started": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "versions": versions | {name: version for name, version in built_for.items() if version},
    }


def host() -> str:
    """Return this host's pseudonym, or "" where no key can be kept."""
    with contextlib.suppress(OSError, ValueError):
        key = key_file(os.environ)
        return pseudonym("host", socket.gethostname(), key) if key else ""
    return ""


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and how many there are: of torch.distributed, else as `torchrun` numbers them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def of_rank(directory: Path) -> Path:
    """Return the directory that this process writes."""
    rank, world = rank_and_world()
    return directory / f"rank-{rank}" if world > 1 else directory
