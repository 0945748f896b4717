"""A child and all that came of it, as /proc has them, and what they work with: devices, programs and libraries."""

import contextlib
import os
import resource
import shutil
import signal
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import WeighbridgeError, dataclass, field, printable
from weighbridge.evidence.disk import digest_regular
from weighbridge.quantities.book_lines import Gone, Image, Libraries
from weighbridge.recorder.witnesses import device_files, matched, namespace_pids, on_devices

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024 if hasattr(os, "sysconf") else 4
ROUNDS = 100  # of signals: one that may not be stopped could fork for ever
MAX_FILES, MAX_BYTES = 256, 1 << 30  # digested when all is over; of more, the smaller ones

Key: TypeAlias = tuple[int, int]  # pid and start time: a pid alone is given again
Identity: TypeAlias = tuple[int, int, int, int]  # device, inode, size, time of change


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


def read_process(pid: int) -> Seen | None:
    """Return a process as it is now, None where there is none of that pid."""
    text = _stat(pid)
    return _seen(pid, text) if text else None


def _stat(pid: int | str) -> bytes:
    with contextlib.suppress(OSError):  # it ended
        handle = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY)
        try:
            return os.read(handle, 4096)
        finally:
            os.close(handle)
    return b""


def _seen(pid: int, text: bytes) -> Seen:
    head, _, rest = text.rpartition(b") ")  # a name may hold anything, brackets too
    parts = rest.split()
    return Seen(
        pid=pid, start_ticks=int(parts[19]), parent=int(parts[1]), state=parts[0].decode(),
        name=printable(head.partition(b" (")[2].decode(errors="replace")),
        cpu_s=(int(parts[11]) + int(parts[12])) / TICKS, rss_kib=int(parts[21]) * PAGE_KIB,
    )  # fmt: skip


def descendants(of: int, foreign: set[str] | None = None) -> Iterator[Seen]:
    """Yield all that came of a process, ended ones that nobody has waited for among them; an OSError without /proc.

    What is in `foreign` came of another one, and is not asked again as long as it is there.
    """
    children: dict[int, list[tuple[int, bytes]]] = {}
    foreign = set() if foreign is None else foreign
    listed = {name for name in os.listdir(PROC) if name[0] in "123456789"}  # noqa: PTH208 -- once a second
    foreign &= listed
    for name in listed - foreign:
        if text := _stat(name):
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


def inner_pid(pid: int) -> int:
    """Return the pid by which a process knows itself: another one in a pid namespace of its own."""
    pids = namespace_pids(PROC / str(pid))
    return pid if pids == (os.getpid(),) else pids[-1]


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal."""
    try:
        text = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return False
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigIgn:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def _send(one: Seen, number: int) -> None:
    """Send a signal to this very process and to no later one of its pid."""
    try:
        handle = os.pidfd_open(one.pid)
    except OSError:
        return  # gone: nothing is refused
    try:
        now = read_process(one.pid)
        if now is not None and now.key == one.key:
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def how_ended(code: int | None) -> dict[str, int | None]:
    """Return as a book has it what a process ended with: its own code, or the signal; neither where none is known."""
    return {"code": None if code is None or code < 0 else code, "signal": -code if code and code < 0 else None}


@dataclass(slots=True, kw_only=True)
class Tree:
    """The child of this process and all that came of it, whoever their parents are by now."""

    child: int
    known: dict[Key, Seen] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)  # until all are asked anew: a number may be given again
    status: int | None = None  # of the child, as wait4 gives it
    max_rss_kib: int = 0
    copied_kib: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    @property
    def blind(self) -> bool:
        """Return whether nothing but the child and its process group can be seen."""
        return not (PROC / "self" / "stat").exists()

    def alive(self) -> list[Seen]:
        """Return every process of the tree that has not ended."""
        with contextlib.suppress(OSError):
            if not self.blind:
                found = [one for one in descendants(os.getpid(), self.foreign) if one.state not in "ZX"]
                self.max_rss_kib = max(self.max_rss_kib, *(one.rss_kib for one in found), 0)
                return found
        only = Seen(pid=self.child, start_ticks=0, parent=os.getpid(), state="?", name="", cpu_s=0.0, rss_kib=0)
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
        with contextlib.suppress(ProcessLookupError):
            try:
                if self.blind:  # of the child, which nobody has waited for: its number is not given again
                    os.killpg(one.pid, number)
                else:
                    _send(one, number)
            except PermissionError:
                return False
        return True

    def reap(self) -> Iterator[tuple[Seen | None, Gone]]:
        """Wait for every process that ended and is ours to wait for; yield what it was where that was not known."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                yield self._buried(ended.si_pid)

    def _buried(self, pid: int) -> tuple[Seen | None, Gone]:
        before = read_process(pid)
        _, status, used = os.wait4(pid, 0)
        mine = pid == self.child  # which began as a copy of this process, of that size
        self.status = status if mine else self.status
        known = used.ru_maxrss if not mine or used.ru_maxrss > self.copied_kib else None
        self.max_rss_kib = max(self.max_rss_kib, known or 0)
        new = before if before is not None and self.known.pop(before.key, None) is None else None
        began, cpu_s = before.start_ticks if before else 0, used.ru_utime + used.ru_stime
        code = how_ended(os.waitstatus_to_exitcode(status))
        return new, Gone(pid=pid, start_ticks=began, **code, cpu_s=cpu_s, max_rss_kib=known)

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


# --- What they work with ----------------------------------------------------------------------------------------------


def program(word: str) -> Image:
    """Return the program that a command names, as it lies there before it is started."""
    found = shutil.which(word)
    return Image(name=Path(word).name, sha256=_digest(os.path.realpath(found)) if found else "")


def _digest(path: str) -> str:
    try:
        return digest_regular(Path(path))
    except WeighbridgeError:
        return ""


def open_devices(processes: Iterable[Seen]) -> dict[str, tuple[str, ...]]:
    """Return the accelerator files that each process holds open, by pid; none of a process that holds none."""
    asked = ((one.pid, device_files(PROC / str(one.pid))[0]) for one in processes)
    return {str(pid): tuple(found[0]["files"]) for pid, found in asked if found and found[0]["files"]}


def device_memory(processes: Iterable[Seen]) -> dict[str, float]:
    """Return the MiB that each process holds on each device, by PID@DEVICE."""
    listed = on_devices()
    known = [] if isinstance(listed, str) else listed
    found = ((one.pid, at) for one in processes for at in matched(known, PROC / str(one.pid))[0])
    return {f"{pid}@{at['device']}": float(at["used_mib"]) for pid, at in found}


@dataclass(slots=True, kw_only=True)
class Mapped:
    """What processes were seen to map, each file by the first of them, and the folders that they wrote into."""

    first: dict[str, tuple[int, Identity]] = field(default_factory=dict)
    written: set[Path] = field(default_factory=set)

    def look(self, processes: Iterable[Seen]) -> None:
        """Look at what is mapped to be executed now, and at what is open for writing."""
        for one in processes:
            self.written.update(_written(PROC / str(one.pid) / "fd"))
            try:
                text = (PROC / str(one.pid) / "maps").read_text(errors="replace")
            except OSError:
                continue
            lines = (line.split(maxsplit=5) for line in text.splitlines())
            for path in {parts[5] for parts in lines if len(parts) == 6 and "x" in parts[1] and parts[5][0] == "/"}:
                if path not in self.first and (identity := _identity(path)):
                    self.first[path] = one.pid, identity

    def lines(self, shown: Callable[[str], str]) -> Iterator[Libraries]:
        """Yield for each process what it was the first to map; what changed on the disk since has no digest."""
        by_size = sorted(self.first.items(), key=lambda item: item[1][1][2])
        total, kept, left_out = 0, defaultdict[int, dict[str, str]](dict), Counter[int]()
        for number, (path, (pid, identity)) in enumerate(by_size):
            total += identity[2]
            if number >= MAX_FILES or total > MAX_BYTES:
                left_out[pid] += 1
                continue
            kept[pid][shown(path)] = _digest(path) if _identity(path) == identity else ""
        for pid in sorted({*kept, *left_out}):
            yield Libraries(pid=pid, libraries=kept[pid], left_out=left_out[pid])

    def write_roots(self) -> tuple[str, ...]:
        """Return the outermost of the folders that were written into, `MAX_FILES` at most."""
        roots = list[Path]()
        for folder in sorted(self.written):  # a folder stands before what it holds
            if not roots or not folder.is_relative_to(roots[-1]):
                roots.append(folder)
        return tuple(map(str, roots[:MAX_FILES]))


def _written(opened: Path) -> Iterator[Path]:
    """Yield the folders of the regular files that a process holds open for writing."""
    with contextlib.suppress(OSError):  # it ended, or is another user's
        for one in opened.iterdir():
            with contextlib.suppress(OSError):  # closed since it was listed
                if one.lstat().st_mode & stat.S_IWUSR and stat.S_ISREG(one.stat().st_mode):
                    path = one.readlink()
                    if not str(path).startswith("/memfd:"):
                        yield path.parent


def _identity(path: str) -> Identity | None:
    try:
        at = os.stat(path)  # noqa: PTH116 -- of hundreds of files
    except OSError:
        return None
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns


def seen_here() -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return by name what can be witnessed on this machine, and of the rest why not."""
    names = ["exit", "rows", "clock", "files"]
    of_proc = ("processes", "memory", "device-files", "libraries", "write-roots")
    if not (PROC / "self" / "stat").exists():
        return tuple(names), dict.fromkeys((*of_proc, "device-memory"), f"there is no {PROC}")
    listed = on_devices()
    if isinstance(listed, str):
        return (*names, *of_proc), {"device-memory": listed}
    return (*names, *of_proc, "device-memory"), {}
