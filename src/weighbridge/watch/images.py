"""What processes work with: accelerator files and memory while they run, programs and libraries by their digests."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import WeighbridgeError, dataclass, field
from weighbridge.evidence.disk import digest_regular
from weighbridge.quantities.book_lines import Image, Libraries
from weighbridge.recorder.witnesses import device_files, matched, on_devices
from weighbridge.watch.processes import PROC, Seen

MAX_FILES, MAX_BYTES = 256, 1 << 30  # digested when all is over; of more, the smaller ones

Identity: TypeAlias = tuple[int, int, int, int]  # device, inode, size, time of change


def program(word: str) -> Image:
    """Return the program that a command names, as it lies there before it is started."""
    found = shutil.which(word)
    return Image(name=Path(word).name, sha256=_digest(os.path.realpath(found)) if found else "")


def _digest(path: str) -> str:
    try:
        return digest_regular(Path(path))
    except WeighbridgeError:
        return ""


def open_devices(processes: Iterable[Seen], proc: Path = PROC) -> dict[str, tuple[str, ...]]:
    """Return the accelerator files that each process holds open, by pid; none of a process that holds none."""
    asked = ((one.pid, device_files(proc / str(one.pid))[0]) for one in processes)
    return {str(pid): tuple(found[0]["files"]) for pid, found in asked if found and found[0]["files"]}


def device_memory(processes: Iterable[Seen], proc: Path = PROC) -> dict[str, float]:
    """Return the MiB that each process holds on each device, by PID@DEVICE."""
    listed = on_devices()
    known = [] if isinstance(listed, str) else listed
    found = ((one.pid, at) for one in processes for at in matched(known, proc / str(one.pid))[0])
    return {f"{pid}@{at['device']}": float(at["used_mib"]) for pid, at in found}


@dataclass(slots=True, kw_only=True)
class Mapped:
    """What processes were seen to map, each file by the first of them, and the folders that they wrote into."""

    first: dict[str, tuple[int, Identity]] = field(default_factory=dict)
    written: set[Path] = field(default_factory=set)
    proc: Path = PROC

    def look(self, processes: Iterable[Seen]) -> None:
        """Look at what is mapped to be executed now, and at what is open for writing."""
        for one in processes:
            self.written.update(_written(self.proc / str(one.pid) / "fd"))
            try:
                text = (self.proc / str(one.pid) / "maps").read_text(errors="replace")
            except OSError:
                continue
            lines = (line.split(maxsplit=5) for line in text.splitlines())
            for path in {parts[5] for parts in lines if len(parts) == 6 and "x" in parts[1] and parts[5][0] == "/"}:
                if path not in self.first and (identity := _identity(path)):
                    self.first[path] = one.pid, identity

    def lines(self, shown: Callable[[str], str]) -> Iterator[Libraries]:
        """Yield for each process what it was the first to map; what changed on the disk since has no digest."""
        by_size = sorted(self.first.items(), key=lambda item: item[1][1][2])
        total, kept = 0, dict[int, dict[str, str]]()
        left_out: dict[int, int] = {}
        for number, (path, (pid, identity)) in enumerate(by_size):
            total += identity[2]
            if number >= MAX_FILES or total > MAX_BYTES:
                left_out[pid] = left_out.get(pid, 0) + 1
                continue
            same = _identity(path) == identity
            kept.setdefault(pid, {})[shown(path)] = _digest(path) if same else ""
        for pid in sorted({*kept, *left_out}):
            yield Libraries(pid=pid, libraries=kept.get(pid, {}), left_out=left_out.get(pid, 0))

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


def seen_here(proc: Path = PROC) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return by name what can be witnessed on this machine, and of the rest why not."""
    names = ["exit", "rows", "clock", "files"]
    of_proc = ("processes", "memory", "device-files", "libraries", "write-roots")
    if not (proc / "self" / "stat").exists():
        return tuple(names), dict.fromkeys((*of_proc, "device-memory"), f"there is no {proc}")
    listed = on_devices()
    if isinstance(listed, str):
        return (*names, *of_proc), {"device-memory": listed}
    return (*names, *of_proc, "device-memory"), {}
