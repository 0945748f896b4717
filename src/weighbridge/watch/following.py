"""Follow the files of a run as they grow: each byte is read once, and what is taken away or replaced is named."""

import contextlib
import csv
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weighbridge.core import Fields, SubjectError, dataclass, exists, field, is_folder
from weighbridge.quantities.book_lines import FileState, Note, RowCount
from weighbridge.run_logs.formats.csv_log import header
from weighbridge.run_logs.formats.recognition import SUFFIXES, reader_inside
from weighbridge.run_logs.json_log import ATTEMPT, EVENTS, HEAD, STEPS, joined, mappings, of_recorder, read_head
from weighbridge.run_logs.log_file import BLOCK, MAX_LINE, Batch, decoded, open_regular
from weighbridge.run_logs.log_table import EPOCH, NOT_OWED, NUMBER, STEP, UNREADABLE, Log, TableBuilder
from weighbridge.views.run import FINITE, GRAD_NORM, IDLE, SKIPPED, RunView, scales, view_of

STRANGE = "not-followed"
COARSEST_NS = 2_500_000_000  # what the clock of a file system may leave off
LOGS = (".jsonl", ".csv", ".json", ".log", ".txt")  # what is asked about often
COUNTED = (".jsonl", ".csv")
SCAN_SECONDS, FOLDERS_SECONDS, SCAN_SHARE = 0.5, 0.1, 100
DEEP, MOST = 3, 64  # folders: ranks, attempts; and logs, the newest
WHOLE = "it is judged as a whole, whenever it has grown by half"


@dataclass(slots=True)
class FollowedFile:
    """A file of lines: which it is, what befell it, how many bytes of whole lines were read, and their digest."""

    path: Path
    node: int = 0  # as it was last seen; 0: it was not there
    size: int = 0
    modified: int = 0
    befell: list[str] = field(default_factory=list)  # what no log does to itself, until somebody takes note
    file: int | None = None  # open, so that a look takes few calls
    of: int = 0  # the node that is read
    whole: int = 0
    lines: int = 0
    half: bytes = b""  # a line that has not ended
    head: bytes = b""  # the header of CSV, which may be written anew
    lost: bool = False  # lines that were read are there no more; a writer may take half a line back
    digest: Any = field(default_factory=hashlib.sha256)

    def changed(self) -> bool:
        """Look at it anew, and return whether it is as it was."""
        before = self.node, self.size, self.modified
        try:
            now = os.stat(self.path)  # noqa: PTH116 -- asked fifty times a second
        except OSError:
            self.befell += ["was taken away"] if self.node else []
            self.node, self.lost = 0, bool(self.whole)
            return bool(before[0])
        self.node, self.size, self.modified = now.st_ino, now.st_size, now.st_mtime_ns
        if before[0] and self.node != before[0]:
            self.befell.append("was replaced by another file")
        elif self.size < before[1]:
            self.befell.append("was shortened")
        elif self.head and self.file is not None and os.pread(self.file, len(self.head), 0) != self.head:
            self.befell.append("got another header")
            self.of, self.head = 0, b""
        self.lost = bool(self.whole) and (self.node != self.of or self.size < self.whole)
        return before != (self.node, self.size, self.modified)

    def begin_again(self) -> None:
        """Forget what was read."""
        if self.file is not None:
            os.close(self.file)
        self.file, self.of, self.whole, self.lines, self.half, self.head = None, 0, 0, 0, b"", b""
        self.digest, self.lost = hashlib.sha256(), False

    __del__ = begin_again

    def blocks(self) -> Iterator[bytes]:
        """Yield the lines that were ended, by its last look, without the last end; refuse one of a megabyte."""
        if not self.node or self.size == self.whole + len(self.half):
            return
        if self.file is None or (self.node != self.of and not self.whole):
            self.begin_again()
            with open_regular(self.path) as file:
                self.file = os.dup(file.fileno())
            self.of = os.fstat(self.file).st_ino
        at, self.half = self.whole, b""
        if self.node != self.of:
            return  # replaced since that look, which the next one sees
        while at < self.size and (block := os.pread(self.file, min(BLOCK, self.size - at), at)):
            at += len(block)
            ended, found, self.half = (self.half + block).rpartition(b"\n")
            if found:
                self.head = self.head if self.whole or self.path.suffix != ".csv" else ended.partition(b"\n")[0]
                self.digest.update(ended + found)
                self.lines += ended.count(b"\n") + 1
                self.whole += len(ended) + 1
                yield ended
            if len(self.half) > MAX_LINE:
                what, where = f"a line longer than {MAX_LINE} bytes", f"{self.path}:{self.lines + 1}"
                raise SubjectError("line-too-long", what, where=where, remedy="log one row a line")

    def more(self) -> Iterator[Batch]:
        """Yield the lines that were ended since; refuse what is no file, no UTF-8, or one line of a megabyte."""
        for ended in self.blocks():
            first = self.lines - ended.count(b"\n")
            yield Batch(decoded(ended, self.path, first).split("\n"), first)


@dataclass(slots=True)
class Names:
    """The numbered names in a folder; none where there is none (yet). It is listed only where it may have changed."""

    path: str
    numbered: re.Pattern[str]
    names: tuple[str, ...] = ()
    modified: int = 0  # 0: so lately that it may change again at the same time
    steady: bool = False  # nothing came to the folder, or left it, since the look before

    def __call__(self) -> tuple[str, ...]:
        """Return the names that are there now, in the order of their numbers."""
        now = _changed_at(self.path)
        self.steady = 0 < now == self.modified
        if not self.steady:
            self.modified, self.names = 0, ()
            with contextlib.suppress(OSError):
                found = filter(self.numbered.fullmatch, os.listdir(self.path))  # noqa: PTH208 -- asked fifty times a second
                self.names = tuple(sorted(found, key=lambda name: (len(name), name)))
                self.modified = now if now < time.time_ns() - COARSEST_NS else 0
        return self.names


class FollowedLog:
    """The rows and events of one run directory, or of one log that is a row a line: JSONL, or CSV with a header."""

    def __init__(self, path: Path, known: dict[Path, FollowedFile]) -> None:
        self.path, self.folder = path, is_folder(path) if exists(path) else path.suffix not in SUFFIXES
        paths = [path / STEPS, path / EVENTS] if self.folder else [path]
        self.files = [known.setdefault(one, FollowedFile(one)) for one in paths]
        self.steps, self.csv = self.files[0], SUFFIXES.get(paths[0].suffix) is SUFFIXES[".csv"]
        for file in self.files:
            file.begin_again()
        self.table, self.events = TableBuilder(str(path)), list[Fields]()
        self.names: list[str] = []  # of the columns of CSV
        self.units: Mapping[str, str] = {}

    def look(self) -> None:
        """Read what was written since; the events after the rows, as a wrap is logged before its step."""
        for batch in self.steps.more():
            if self.csv:
                self._csv(batch)
            else:
                self.table.add_mappings(mappings(batch, self.path))
        for file in self.files[1:]:
            for batch in file.more():
                self.events += mappings(batch, file.path)

    def _csv(self, batch: Batch) -> None:
        by = "\t" if self.steps.path.suffix == ".tsv" or ("\t" in batch.lines[0] and "," not in batch.lines[0]) else ","
        rows = [row for row in csv.reader(batch.lines, delimiter=by, skipinitialspace=True) if row]
        if rows and not self.names:
            headed, self.names, self.units = header(rows[0], self.path)
            self.table.open(dict.fromkeys(self.names), 0)
            rows = rows[1:] if headed else rows
        if any(len(row) != len(self.names) for row in rows):
            raise SubjectError("log-syntax", "a row of another length than the header", where=str(self.path))
        if rows:
            self.table.add_texts(self.names, rows)

    def log(self) -> Log:
        """Return what was read so far as a log; its columns go on growing."""
        log = Log(self.table.rows, self.table.columns, units=self.units)
        return of_recorder(log, read_head(self.path, {}), tuple(self.events)) if self.folder else log


class FollowedRun:
    """One run, or one rank of it, with its attempts: what changed of its past begins a new `generation`."""

    def __init__(self, path: Path, columns: Mapping[str, str], units: Mapping[str, str], lines: str = "") -> None:
        self.path, self.columns, self.units, self.lines = path, columns, units, lines
        self.files: dict[Path, FollowedFile] = {}
        self.logs, self.names = [FollowedLog(path, self.files)], Names(str(path), ATTEMPT)
        self.generation = 0
        self.notes: list[str] = []
        self.problem: SubjectError | None = None  # why it is not followed, but read whole
        self._scales: tuple[int, dict[str, tuple[str, float]]] = (-1, {})

    def look(self) -> bool:
        """Read what was written since; return whether there is more than before."""
        before = self.rows, len(self.logs[-1].events), self.generation, self.problem
        try:
            self._look()
        except SubjectError as problem:
            self.problem = problem
            self.notes.append(f"{problem.where or self.path} is not followed: {problem.what}; {WHOLE}")
        return before != (self.rows, len(self.logs[-1].events), self.generation, self.problem)

    def _look(self) -> None:
        if self.problem is not None and (self.problem.code != STRANGE or self._in_lines() is None):
            return
        self.problem = None  # or a log of lines came to a folder in which others had begun to write
        if not self.rows and exists(self.path):
            at = self._in_lines()
            if at is None:
                raise SubjectError(STRANGE, "its log is not one of JSON or CSV with a line a row", where=str(self.path))
            if (at, is_folder(at)) != (self.logs[0].path, self.logs[0].folder):
                self.logs = [FollowedLog(at, self.files)]
        names = self.names()
        for number, log in enumerate(self.logs):
            for file in log.files:
                if file.node or log.path != self.path or not self.names.steady:
                    file.changed()
            if any(file.lost for file in log.files):
                self.logs[number] = FollowedLog(log.path, self.files)
                self.generation += 1
        for name in names[len(self.logs) - 1 :]:
            self.logs.append(FollowedLog(self.path / name, self.files))
            self.generation += 1
        for log in self.logs:
            log.look()

    def _in_lines(self) -> Path | None:
        """Return what of it is a row a line: a recorder's folder, or the one log; None where all is read as a whole."""
        found = reader_inside(self.path) if is_folder(self.path) else (None, self.path)
        at = self.path if found is None else found[1]
        return at if not self.lines and (found is None or at.suffix in SUFFIXES) else None

    @property
    def rows(self) -> int:
        """Return how many rows the latest attempt has so far."""
        return self.logs[-1].table.rows

    def view(self) -> RunView:
        """Return the run as a reader of its files would see it, as far as it was followed."""
        parts = [one.log() for one in self.logs]
        log = joined(parts, self.path) if len(parts) > 1 else parts[0]
        return view_of(log, self.path, {}, self.columns, self.units)

    def of_events(self, events: Sequence[Fields]) -> RunView:
        """Return a view of these events, without a row."""
        log = of_recorder(Log(0, {}), read_head(self.logs[-1].path, {}), tuple(events))
        return view_of(log, self.path, {}, self.columns, self.units)

    def numbers(self, row: int) -> dict[str, float]:
        """Return the numbers of a row of the latest attempt, by standard name."""
        log = self.logs[-1]
        columns, scale = log.table.columns, self._scales[1]
        if self._scales[0] != len(columns):
            scale = scales(log.log(), self.path, self.columns, self.units)
            self._scales = len(columns), scale
        all_of = scale.items()
        found = {name: by * one.values[row] for name, (at, by) in all_of if (one := columns[at]).state[row] == NUMBER}
        if STEP not in scale:
            found[STEP] = found[EPOCH] if found.get(EPOCH, 0.5).is_integer() else float(row)
        if log.folder:
            _update(found, columns, row)
        return found

    def size(self) -> int:
        """Return how many bytes lie there."""
        files = [self.path] if not is_folder(self.path) else [one for one in self.path.rglob("*") if one.is_file()]
        return sum(one.stat().st_size for one in files if exists(one))


def _update(found: dict[str, float], columns: Mapping[str, Any], row: int) -> None:
    """Add whether a step of a recorder made no update, and whether although no gradient forbade it."""
    norm, skipped = columns.get(GRAD_NORM), columns.get(SKIPPED)
    out = norm is None or norm.state.find(NUMBER, 0, row + 1) < 0 or norm.state[row] == NOT_OWED
    if not out and skipped is not None and GRAD_NORM not in found:
        out = bool(skipped.state[row] == UNREADABLE and skipped.values[row] == 1.0)
    if out or GRAD_NORM in found:
        found[SKIPPED] = float(out)
        found[IDLE] = float(out and found.get(FINITE) != 0)


# --- All files of a run, as a witness sees them grow ------------------------------------------------------------------


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
        """Look for new logs, often where a folder changed; return what was done to one that none does to itself."""
        self.begun = False
        due = now_s >= self.next_scan
        if not due and now_s >= self.free_at:
            self.free_at = now_s + FOLDERS_SECONDS
            due = any(_changed_at(folder) != before for folder, before in self.folders.items())
        if due:
            self.next_scan = now_s + SCAN_SECONDS
            self.scan()
            self.free_at = now_s + max(FOLDERS_SECONDS, SCAN_SHARE * (time.monotonic() - now_s))
        for log in self.own:
            log.changed()
        return self._befell()

    def _befell(self) -> Iterator[Note]:
        for log in self.logs.values():
            while log.befell:
                done = log.befell.pop(0)
                if log.path.suffix in COUNTED:  # what is written whole is written anew
                    yield Note(what=self.name(log.path), why=f"{done} while the run went on")

    def scan(self) -> None:
        """Look for logs that are new."""
        self.folders = {str(self.run): _changed_at(str(self.run))}
        files = [self.run] if self.run.is_file() else self._files(str(self.run), DEEP)
        found = [path for path in files if path.suffix in LOGS or path == self.run]
        newest = sorted(found, key=lambda path: -_changed_at(str(path)))[:MOST]
        fresh, judged = [path for path in newest if path not in self.logs], self.judged()
        self.logs |= {path: FollowedFile(path) for path in fresh} | judged
        mine = (log for path, log in self.logs.items() if path.suffix in COUNTED and path not in judged)
        self.own = [log for log in mine if log.node or exists(log.path)]  # not what others once awaited
        self.begun = any(path.name == HEAD for path in fresh)

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
