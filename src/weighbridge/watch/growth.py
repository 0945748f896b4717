"""The files of a run as they grow: whether any did, how many rows each log has, and what was done to it besides."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from weighbridge.core import SubjectError, dataclass, field
from weighbridge.quantities.book_lines import FileState, Note, RowCount
from weighbridge.run_logs.json_log import HEAD, STEPS
from weighbridge.watch.following import FollowedFile

LOGS = (".jsonl", ".csv", ".json", ".log", ".txt")  # what is asked about often
COUNTED = (".jsonl", ".csv")
SCAN_SECONDS = 0.5
DEEP = 3  # folders: ranks, attempts
MOST = 64  # logs, the newest
SCAN_SHARE = 100


@dataclass(slots=True, kw_only=True)
class Growth:
    """The logs of a run, or the one file that it is."""

    run: Path
    judged: Callable[[], dict[Path, FollowedFile]] = dict  # by others, who read these
    logs: dict[Path, FollowedFile] = field(default_factory=dict)
    own: list[FollowedFile] = field(default_factory=list)  # those that nobody else reads
    booked: dict[Path, int] = field(default_factory=dict)  # so many bytes
    folders: dict[str, int] = field(default_factory=dict)  # when each changed last
    next_scan: float = 0.0
    free_at: float = 0.0  # a scan may take a hundredth of the time
    begun: bool = False  # a `run.json` is new: whose process it names is there now

    def look(self, now_s: float) -> Iterator[Note]:
        """Look for new logs, often where a folder changed; yield what was done to one that none does to itself."""
        self.begun = False
        if now_s >= self.next_scan or (now_s >= self.free_at and self._folder_changed()):
            self.next_scan = now_s + SCAN_SECONDS
            self._scan()
            self.free_at = now_s + SCAN_SHARE * (time.monotonic() - now_s)
        for log in self.own:
            log.changed()
        yield from self._befell()

    def _befell(self) -> Iterator[Note]:
        for log in self.logs.values():
            while log.befell:
                done = log.befell.pop(0)
                if log.path.suffix in COUNTED:  # what is written whole is written anew
                    yield Note(what=self.name(log.path), why=f"{done} while the run went on")

    def _scan(self) -> None:
        """Look for logs that are new."""
        self.folders = {str(self.run): _changed_at(str(self.run))}
        files = [self.run] if self.run.is_file() else self._files(str(self.run), DEEP)
        found = [path for path in files if path.suffix in LOGS or path == self.run]
        newest = sorted(found, key=lambda path: -_changed_at(str(path)))[:MOST]
        fresh = [path for path in newest if path not in self.logs]
        self.logs |= {path: FollowedFile(path) for path in fresh}
        self.logs |= self.judged()
        self.own = [log for path, log in self.logs.items() if path.suffix in COUNTED and path not in self.judged()]
        self.begun = any(path.name == HEAD for path in fresh)

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
        return {log.path: self._read(log).lines for log in mine}

    def counts(self) -> Iterator[RowCount]:
        """Yield of each log that has rows how many it has by now, and their digest."""
        for log in [self._read(log) for log in self.logs.values() if log.path.suffix in COUNTED]:
            if log.whole != self.booked.get(log.path, 0):
                self.booked[log.path], digest = log.whole, log.digest.hexdigest()
                yield RowCount(file=self.name(log.path), rows=log.lines, bytes=log.whole, sha256=digest)

    def _read(self, log: FollowedFile) -> FollowedFile:
        """Read what is new of a log that nobody else reads; from the beginning where it is another one, or shorter."""
        if log.path not in self.judged():
            log.changed()
            if log.lost:
                log.begin_again()
            with contextlib.suppress(SubjectError):
                for _ in log.blocks():
                    pass
        return log

    def rewritten(self, files: Mapping[str, FileState]) -> Iterator[Note]:
        """Yield, last of all, of each log that is as long as it was read, by these states, that it is another one."""
        yield from self._befell()
        for log in self.logs.values():
            digest = log.digest.copy()
            digest.update(log.half)
            now, size = files.get(self.name(log.path)), log.whole + len(log.half)
            if now and log.whole and now.size == size and now.sha256 != digest.hexdigest():
                yield Note(what=self.name(log.path), why="was written anew where its rows had been judged")


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 -- asked fifty times a second
    except OSError:
        return 0
