"""The processes that a command started and left running, whatever session, group or environment they moved to."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from weighbridge.core import is_file

ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
GRACE_S = 1.0  # how long what ends by itself may take
PAUSE_S = 0.01
PROC = Path("/proc")
ROUNDS = 100  # of ending what is there: each may have started more


def can_adopt() -> bool:
    """Return whether this system lets what a command left running be found: Linux does."""
    return is_file(PROC / "self" / "stat")


@contextlib.contextmanager
def adopted() -> Iterator[set[int]]:
    """Adopt orphans, as their nearest ancestor that does, to the end of the block; yield earlier descendants."""
    control = ctypes.CDLL(None).prctl
    control(ADOPT_ORPHANS, 1, 0, 0, 0)
    try:
        yield descendants()
    finally:
        control(ADOPT_ORPHANS, 0, 0, 0, 0)


def descendants() -> set[int]:
    """Return all processes that descend from this one and have not ended."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                children.setdefault(int(parent), []).append(pid)
    found, waiting = set[int](), [os.getpid()]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found.update(mine)
        waiting += mine
    return found


def end_all_but(before: set[int]) -> int:
    """End every descendant that was not there before; return how many had not ended by themselves."""
    until = time.monotonic() + GRACE_S
    while (left := descendants() - before) and time.monotonic() < until:
        time.sleep(PAUSE_S)
    running = len(left)
    for _ in range(ROUNDS):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = descendants() - before
        if not left:
            break
        time.sleep(PAUSE_S)
    return running
