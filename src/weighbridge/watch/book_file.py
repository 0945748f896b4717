"""Write a book: begun before the child, a line at a time, durable where it counts, and sealed when all is over."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import SubjectError, UsageError, dumps, exists, lexists, loads, sha256
from weighbridge.core.local_files import OWN, read_regular_file
from weighbridge.core.pseudonym import passing_key, seal_of
from weighbridge.evidence.disk import digest_regular, disk_errors, replace_file, sync_folder
from weighbridge.evidence.redact import own_key
from weighbridge.quantities.book_lines import BOOK, FOLDER, SCHEMA, SEAL, STOPPED, FileState, Line, Note, Release
from weighbridge.run_logs.book import MAX_BOOK, read_book, utc

MAX_STOP = 1 << 20
BEGINS = b'"kind":"begin"'
MAX_WAITING = 10_000  # lines kept while the disk takes none


def book_of(run: Path) -> Path:
    """Return the folder of the book of a run."""
    return run.with_name(run.name + FOLDER)


def stop_of(run: Path) -> Path | None:
    """Return where it is written that a run was stopped and not released since."""
    return next((at for folder in (run, book_of(run)) if lexists(at := folder / STOPPED)), None)


def demand_contracts(run: Path, mine: Mapping[str, str]) -> None:
    """Refuse to go on by default with a run whose book, sealed or not, was begun under other contracts."""
    at = book_of(run) / BOOK
    lines = read_regular_file(at, MAX_BOOK, SubjectError).split(b"\n") if exists(at) else []
    begun = next((loads(line)["contracts"] for line in reversed(lines) if BEGINS in line), mine)
    if begun != mine:
        named = (", ".join(f"{name} ({digest[:12]})" for name, digest in one.items()) for one in (begun, mine))
        what = "it was begun under {}, and {} would judge it by default".format(*named)
        raise UsageError(
            "other-contract", what, where=str(run), remedy="name that contract by --contract, and its --param"
        )


def now_text() -> str:
    """Return the time of day, in UTC as bundles write it."""
    return utc(time.time())


class Book:
    """A book that this process alone writes."""

    def __init__(self, folder: Path, segment: int, *, made: bool = False) -> None:
        self.folder, self.segment, self._made = folder, segment, made
        self.unsealed = ""  # why no seal may be set
        self.problem: OSError | None = None  # why the last line could not be written
        self._descriptor = os.open(folder / BOOK, os.O_RDWR | os.O_CREAT | os.O_APPEND | OWN, 0o644)
        self._waiting: list[bytes] = []
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            remedy = "wait for it to end"
            raise UsageError("watched", "another witness writes this book", where=str(folder), remedy=remedy) from None
        self._whole = self._before = os.fstat(self._descriptor).st_size
        self._written = hashlib.sha256(os.pread(self._descriptor, self._whole, 0))  # what lies there, others may write

    def add(self, body: Any, *, durable: bool = False) -> None:
        """Write a line, after those that wait; where the disk takes none, it waits."""
        line = Line(time=now_text(), monotonic_s=round(time.monotonic(), 6), segment=self.segment, body=body)
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(dumps(line.plain()))
        else:
            self.unsealed = f"more than {MAX_WAITING} lines could not be written"
        try:
            self._flush()
            if durable:
                os.fsync(self._descriptor)
            self.problem = None
        except OSError as problem:
            self.problem = problem
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._whole)  # half a line is taken back

    def note(self, what: str, why: str) -> None:
        """Write what cannot be seen, or was not as it should be."""
        self.add(Note(what=what, why=why))

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._written.update(data)
        self._whole += len(data)
        self._waiting.clear()

    def digest(self) -> str:
        """Return the digest of what is written so far."""
        return self._written.hexdigest()

    def seal(self) -> str:
        """Seal what is written, last of all; return why not, or ""."""
        if self.problem or self._waiting:
            why = os.strerror(self.problem.errno or 0) if self.problem else "lines wait"
            return f"the book could not be written: {why}"
        if self.unsealed:
            return self.unsealed
        key = own_key()
        if key == passing_key():
            return "no key of yours can be kept here, and one that passes seals nothing"
        data = os.pread(self._descriptor, self._whole, 0)
        if sha256(data) != self.digest():
            return "a line of the book was changed while the command ran"
        try:
            replace_file(self.folder / SEAL, f"{seal_of(data, SCHEMA, key)}\n".encode())
        except OSError as problem:
            return f"the seal could not be written: {os.strerror(problem.errno or 0)}"
        return ""

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def unmake(self) -> None:
        """Remove the segment: nothing was started."""
        os.ftruncate(self._descriptor, self._before)
        os.close(self._descriptor)
        if self._made:
            shutil.rmtree(self.folder)


def begin_book(run: Path, *, resume: bool) -> Book:
    """Begin a book, or a segment of one; refuse a run that is there or was stopped, and a disk that takes none."""
    folder = book_of(run)
    if stopped := stop_of(run):
        remedy = f"see {stopped}; let it go on by `weighbridge watch {run} --release REASON`"
        raise UsageError("stopped", "a gate stopped this run", where=str(run), remedy=remedy)
    there = next((path for path in (run, folder) if lexists(path)), None)
    if there and not resume:
        remedy = "name another, or add a segment to its book by --resume"
        raise UsageError("run-exists", "is there already", where=str(there), remedy=remedy)
    with disk_errors("the book", folder):
        if not exists(folder):
            run.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            sync_folder(folder.parent)
            book, doubt = Book(folder, 1, made=True), "what lay in the run before was not witnessed" if there else ""
        else:
            earlier = read_book(run)
            book = Book(folder, len(earlier.segments) + 1)
            doubt = earlier.why or _changed(run, earlier.segments[-1].end.files)
    book.unsealed = doubt
    return book


def _changed(run: Path, files: Any) -> str:
    """Return what was done to a run between two segments, or ""."""
    now = states(run)
    apart = [name for name in sorted({*now, *files} - {STOPPED}) if now.get(name) != files.get(name)]
    return f"between two segments {apart[0]} changed" if apart else ""


def states(run: Path) -> dict[str, FileState]:
    """Return every regular file of a run as it lies there, by its path in it; of a file, by its own name."""
    found = sorted(path for path in ([run] if run.is_file() else run.rglob("*")) if not path.is_symlink())
    files = ((path.name if path == run else path.relative_to(run).as_posix(), path) for path in found if path.is_file())
    return {name: FileState(sha256=digest_regular(path), size=path.stat().st_size) for name, path in files}


def release(run: Path, reason: str) -> None:
    """Move STOP.json into the book, whose seal, where it stood, is set again."""
    at = stop_of(run)
    if at is None:
        remedy = "nothing keeps it from going on: `weighbridge watch RUN --resume -- CMD`"
        raise UsageError("not-stopped", "no gate stopped this run", where=str(run), remedy=remedy)
    earlier = read_book(run)
    content = loads(read_regular_file(at, MAX_STOP, SubjectError), where=str(at))
    with disk_errors("the book", book_of(run)):
        book = Book(book_of(run), max(len(earlier.segments), 1))
        book.add(Release(reason=reason, stop=content), durable=True)
        if book.problem:
            raise book.problem
        if not earlier.why:
            book.seal()
        at.unlink()
        book.close()
