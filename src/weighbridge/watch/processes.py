"""A child and all that came of it, as /proc has them: found by parents, known by pid and start time."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import dataclass, field, printable
from weighbridge.quantities.book_lines import Gone
from weighbridge.recorder.witnesses import namespace_pids

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024 if hasattr(os, "sysconf") else 4
ROUNDS = 100  # of signals: one that may not be stopped could fork for ever

Key: TypeAlias = tuple[int, int]  # pid and start time: a pid alone is given again


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A process as it was seen."""

    pid: int
    start_ticks: int
    parent: int
    state: str
    name: str
    cpu_s: float
    rss_kib: int

    @property
    def key(self) -> Key:
        """Return what it alone has."""
        return self.pid, self.start_ticks


def read_process(pid: int | str, proc: Path = PROC) -> Seen | None:
    """Return a process as it is now, None where there is none of that pid."""
    text = _stat(f"{proc}/{pid}/stat")
    return _seen(int(pid), text) if text else None


def _stat(path: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(handle, 4096)
    except OSError:  # it ended
        return b""
    finally:
        os.close(handle)


def _seen(pid: int, text: bytes) -> Seen:
    head, _, rest = text.rpartition(b") ")  # a name may hold anything, brackets too
    parts = rest.split()
    return Seen(
        pid=pid,
        start_ticks=int(parts[19]),
        parent=int(parts[1]),
        state=parts[0].decode(),
        name=printable(head.partition(b" (")[2].decode(errors="replace")),
        cpu_s=(int(parts[11]) + int(parts[12])) / TICKS,
        rss_kib=int(parts[21]) * PAGE_KIB,
    )


def descendants(of: int, proc: Path = PROC, foreign: set[str] | None = None) -> Iterator[Seen]:
    """Yield all that came of a process, ended ones that nobody has waited for among them; an OSError without /proc.

    What is in `foreign` came of another one, and is not asked again as long as it is there.
    """
    children: dict[int, list[tuple[int, bytes]]] = {}
    foreign = set() if foreign is None else foreign
    listed = {name for name in os.listdir(proc) if name[0] in "123456789"}  # noqa: PTH208 -- once a second
    foreign &= listed
    for name in listed - foreign:
        if text := _stat(f"{proc}/{name}/stat"):
            children.setdefault(int(text[text.rindex(b")") + 4 :].split(None, 1)[0]), []).append((int(name), text))
    waiting = [of]
    while waiting:
        for pid, text in children.pop(waiting.pop(), ()):
            yield _seen(pid, text)
            waiting.append(pid)
    waiting = [0, *map(int, foreign)]  # what lost its parent meanwhile is of none of them, and may be of this one
    while waiting:
        for pid, _ in children.pop(waiting.pop(), ()):
            foreign.add(str(pid))
            waiting.append(pid)
    foreign -= {str(of)}


def inner_pid(pid: int, proc: Path = PROC) -> int:
    """Return the pid by which a process knows itself: another one in a pid namespace of its own."""
    pids = namespace_pids(proc / str(pid))
    return pid if pids == (os.getpid(),) else pids[-1]


def ignores(pid: int, number: int, proc: Path = PROC) -> bool:
    """Return whether a process ignores a signal."""
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return False
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigIgn:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def send(one: Seen, number: int, proc: Path = PROC) -> bool:
    """Send a signal to this very process and to no later one of its pid; return whether that is allowed."""
    try:
        handle = os.pidfd_open(one.pid)
    except OSError:
        return True  # gone: nothing is refused
    try:
        now = read_process(one.pid, proc)
        if now is not None and now.key == one.key:
            signal.pidfd_send_signal(handle, number)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
    return True


@dataclass(slots=True, kw_only=True)
class Tree:
    """The child of this process and all that came of it, whoever their parents are by now."""

    child: int
    proc: Path = PROC
    known: dict[Key, Seen] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)  # until all are asked anew: a number may be given again
    status: int | None = None  # of the child, as wait4 gives it
    max_rss_kib: int = 0
    copied_kib: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    @property
    def blind(self) -> bool:
        """Return whether nothing but the child and its process group can be seen."""
        return not (self.proc / "self" / "stat").exists()

    def alive(self) -> list[Seen]:
        """Return every process of the tree that has not ended."""
        with contextlib.suppress(OSError):
            if not self.blind:
                found = [one for one in descendants(os.getpid(), self.proc, self.foreign) if one.state not in "ZX"]
                self.max_rss_kib = max(self.max_rss_kib, *(one.rss_kib for one in found), 0)
                return found
        shared = {"state": "?", "name": "", "cpu_s": 0.0, "rss_kib": 0}
        only = Seen(pid=self.child, start_ticks=0, parent=os.getpid(), **shared)  # type: ignore[arg-type]
        return [only] if self.child and self.status is None else []

    def childless(self) -> bool:
        """Return whether nothing came of the child that still is there, ended or not.

        Walking over /proc misses what is forked meanwhile by one that ends. The kernel knows: whose parents end are
        children of this process.
        """
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def send(self, number: int) -> tuple[int, int]:
        """Send a signal to every process, those that appear meanwhile, too; return how many took and refused it."""
        done: dict[Key, bool] = {}
        self.foreign.clear()
        for _ in range(ROUNDS):
            fresh = [one for one in self.alive() if one.key not in done]
            if not fresh:
                break
            done |= {one.key: self.send_to(one, number) for one in fresh}
        return sum(done.values()), len(done) - sum(done.values())

    def send_to(self, one: Seen, number: int) -> bool:
        """Send a signal to one process, without /proc to its group; return whether that is allowed."""
        if not self.blind:
            return send(one, number, self.proc)
        with contextlib.suppress(ProcessLookupError):
            try:
                os.killpg(one.pid, number)  # of the child, which nobody has waited for: its number is not given again
            except PermissionError:
                return False
        return True

    def reap(self) -> Iterator[tuple[Seen | None, Gone]]:
        """Wait for every process that ended and is ours to wait for; yield what it was where that was not known."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            before = read_process(ended.si_pid, self.proc)
            _, status, used = os.wait4(ended.si_pid, 0)
            mine = ended.si_pid == self.child  # which began as a copy of this process, of that size
            self.status = status if mine else self.status
            known = used.ru_maxrss if not mine or used.ru_maxrss > self.copied_kib else None
            self.max_rss_kib = max(self.max_rss_kib, known or 0)
            new = before if before is not None and self.known.pop(before.key, None) is None else None
            code = os.waitstatus_to_exitcode(status)
            yield (
                new,
                Gone(
                    pid=ended.si_pid,
                    start_ticks=before.start_ticks if before else 0,
                    code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    cpu_s=used.ru_utime + used.ru_stime,
                    max_rss_kib=known,
                ),
            )

    def kill(self, seconds: float, reap: Callable[[], object]) -> list[Seen]:
        """Kill every process, wait for them, and return those that are there all the same after so many seconds."""
        until = time.monotonic() + seconds
        while (left := self.alive()) or not self.childless():
            self.send(signal.SIGKILL)
            reap()
            if time.monotonic() > until:
                return left
            time.sleep(0.01)
        return []
