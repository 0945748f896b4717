"""The files of a run as they grow: whether any did, how many rows each log has, and what was done to it besides."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weighbridge.core import dataclass, field
from weighbridge.quantities.book_lines import Note, RowCount
from weighbridge.run_logs.json_log import HEAD, STEPS

LOGS = (".jsonl", ".csv", ".json", ".log", ".txt")  # what is asked about often
COUNTED = (".jsonl", ".csv")
SCAN_SECONDS = 0.5
DEEP = 3  # folders: ranks, attempts
MOST = 64  # logs, the newest
SCAN_SHARE = 100
CHUNK = 1 << 20


@dataclass(slots=True, kw_only=True)
class _Log:
    """One log: which file it is, and how far it was read."""

    path: Path
    inode: int = 0
    size: int = 0
    modified: int = 0
    of: int = 0  # the inode that was read
    read: int = 0
    booked: int = 0
    rows: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def changed(self) -> tuple[bool, str]:
        """Return whether it changed, and what was done to it that no log does to itself."""
        try:
            now = os.stat(self.path)  # noqa: PTH116 -- asked fifty times a second
        except OSError:
            gone, self.inode = bool(self.inode), 0
            return gone, "was taken away" if gone else ""
        before = self.inode, self.size
        same = now.st_ino == self.inode and now.st_size == self.size and now.st_mtime_ns == self.modified
        self.inode, self.size, self.modified = now.st_ino, now.st_size, now.st_mtime_ns
        if before[0] and now.st_ino != before[0]:
            return True, "was replaced by another file"
        return not same, "was shortened" if now.st_size < before[1] else ""

    def count(self) -> None:
        """Read what is new; from the beginning where it is another file, or shorter."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            now = os.fstat(file.fileno())
            if now.st_size < self.read or now.st_ino != self.of:
                self.of, self.read, self.rows, self.digest = now.st_ino, 0, 0, hashlib.sha256()
            file.seek(self.read)
            while data := file.read(CHUNK):
                self.digest.update(data)
                self.read += len(data)
                self.rows += data.count(b"\n")


@dataclass(slots=True, kw_only=True)
class Growth:
    """The logs of a run, or the one file that it is."""

    run: Path
    logs: dict[Path, _Log] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)  # when each changed last
    next_scan: float = 0.0
    free_at: float = 0.0  # a scan may take a hundredth of the time
    begun: bool = False  # a `run.json` is new: whose process it names is there now

    def changed(self, now_s: float) -> tuple[bool, list[Note]]:
        """Return whether anything grew, appeared or went, and what was done to a log that no log does to itself."""
        any_changed = self.begun = False
        if now_s >= self.next_scan or (now_s >= self.free_at and self._folder_changed()):
            self.next_scan = now_s + SCAN_SECONDS
            any_changed = self._scan()
            self.free_at = now_s + SCAN_SHARE * (time.monotonic() - now_s)
        notes = []
        for log in self.logs.values():
            changed, done = log.changed()
            any_changed |= changed
            if done and log.path.suffix in COUNTED:  # what is written whole is written anew
                notes.append(Note(what=self.name(log.path), why=f"{done} while the run went on"))
        return any_changed, notes

    def _scan(self) -> bool:
        """Look for logs that are new, and return whether there is one."""
        self.folders = {str(self.run): _changed_at(str(self.run))}
        files = [self.run] if self.run.is_file() else self._files(str(self.run), DEEP)
        found = [path for path in files if path.suffix in LOGS or path == self.run]
        newest = sorted(found, key=lambda path: -_changed_at(str(path)))[:MOST]
        fresh = [path for path in newest if path not in self.logs]
        self.logs |= {path: _Log(path=path) for path in fresh}
        self.begun = any(path.name == HEAD for path in fresh)
        return bool(fresh)

    def _folder_changed(self) -> bool:
        return any(_changed_at(folder) != before for folder, before in self.folders.items())

    def _files(self, folder: str, deep: int) -> Iterator[Path]:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and deep > 1:
                    if len(self.folders) < MOST:
                        self.folders[entry.path] = _changed_at(entry.path)
                    yield from self._files(entry.path, deep - 1)
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)

    def name(self, path: Path) -> str:
        """Return a file's path in the run."""
        return path.name if path == self.run else path.relative_to(self.run).as_posix()

    def rows(self) -> dict[Path, int]:
        """Return how many rows each log of steps has; events may still be logged when training is over."""
        mine = [log for log in self.logs.values() if log.path.name == STEPS or log.path.suffix == ".csv"]
        for log in mine:
            log.count()
        return {log.path: log.rows for log in mine}

    def counts(self) -> Iterator[RowCount]:
        """Yield of each log that has rows how many it has by now."""
        for log in (log for log in self.logs.values() if log.path.suffix in COUNTED):
            log.count()
            if log.read != log.booked:
                log.booked = log.read
                yield RowCount(file=self.name(log.path), rows=log.rows, bytes=log.read, sha256=log.digest.hexdigest())


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 -- asked fifty times a second
    except OSError:
        return 0
