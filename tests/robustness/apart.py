"""Cases that are tried in a process of their own, so that one which dies or never ends is counted and not suffered."""

from __future__ import annotations

import enum
import gc
import json
import os
import select
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

SECONDS = 20.0
RAISED = 70


class Told(enum.StrEnum):
    """What became of a case: as it should, a change that nobody saw, a state that is neither old nor new, no end."""

    HELD = "held"
    UNDETECTED = "undetected"
    CORRUPTED = "corrupted"
    HUNG = "hung"


Tally = Counter[Told]


def forked(work: Callable[[], object]) -> int:
    """Run something in a copy of this process that ends with it, by 0 or, with what it raised on stderr, by RAISED."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which the copy does not use
        child = os.fork()
    if child:
        return child
    gc.disable()  # a collection would copy every page of the parent
    try:
        work()
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        os._exit(RAISED)
    os._exit(0)


def apart(cases: Callable[[], Iterable[Told]], folder: Path, seconds: float = SECONDS) -> Tally:
    """Return what became of cases that were tried in a copy of this process, working in a folder.

    A copy that dies counts as one corrupted case more, one that does not end as one hung case alone.
    """
    reader, writer = os.pipe()

    def work() -> None:
        os.chdir(folder)
        os.write(writer, json.dumps(Counter(cases())).encode())

    child = forked(work)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    printed = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    os.waitpid(child, 0)
    if not ready:
        return Counter({Told.HUNG: 1})
    return Counter(
        {Told(name): count for name, count in json.loads(printed).items()} if printed else {Told.CORRUPTED: 1}
    )


def refused(work: Callable[[], object], *errors: type[Exception]) -> Told:
    """Return whether something refuses what it is given, by an error that has a name."""
    try:
        work()
    except errors:
        return Told.HELD
    return Told.UNDETECTED
