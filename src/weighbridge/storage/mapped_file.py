"""A folder here, and a regular file, mapped and read in constant memory; never writes, and never waits."""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from weighbridge.core import SubjectError, dataclass, is_file, is_folder, lexists, local_path
from weighbridge.core.local_files import KINDS, READ, where_else
from weighbridge.storage.readable import WINDOW, Place

CAN_ADVISE = hasattr(mmap, "MADV_DONTNEED")  # Windows gives pages back when it wants to
MAX_BELOW = 1 << 14  # files and folders
FAULT_AROUND = 1 << 20  # the kernel maps up to this much around a touched page (large folios); give all of it back


class MappedFile:
    """One open, mapped file; `name` is what messages call it."""

    def __init__(self, path: str | os.PathLike[str], name: str = "") -> None:
        self._fd = -1
        self.name = name or os.fspath(path)
        try:
            # Without O_NONBLOCK, opening a FIFO waits for a writer that may never come.
            self._fd = os.open(path, READ)
        except (OSError, ValueError) as problem:
            raise _unreadable(problem, self.name) from None
        found = os.fstat(self._fd)
        self._identity = _identity(found)
        self.size = found.st_size
        if not stat.S_ISREG(found.st_mode):
            what = f"is {KINDS.get(stat.S_IFMT(found.st_mode), 'special')}, not a regular file"
            remedy = "bind a checkpoint file, or its directory or index"
            raise SubjectError("file-kind", what, where=self.name, remedy=remedy)
        if found.st_size == 0:
            remedy = "write the checkpoint again; this one is lost"
            raise SubjectError("empty-file", "the file has no bytes", where=self.name, remedy=remedy)
        try:
            self._map = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
        except OSError as problem:  # it takes a descriptor of its own
            raise _unreadable(problem, self.name) from None
        except ValueError:  # the file is shorter by now
            raise _changed(self.name) from None
        if CAN_ADVISE:
            self._map.madvise(mmap.MADV_SEQUENTIAL)  # read ahead, and keep no record of what was used
        self._view = memoryview(self._map)

    @property
    def version(self) -> str:
        """Return the time of its last change, since the epoch, when it was opened."""
        seconds, ns = divmod(self._identity[3], 10**9)
        return f"changed at {seconds}.{ns:09d} s"

    @property
    def identity(self) -> str:
        """Return its device and inode."""
        return f"{self._identity[0]}:{self._identity[1]}"

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone at the interpreter's end
        if self._fd >= 0:
            close(self._fd)

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop` without copying; the caller has checked that they lie in the file."""
        return self._view[start:stop]

    gather = read

    def release(self, start: int, stop: int) -> None:
        """Drop the pages of these bytes from this process; looking again brings them back."""
        first = start // FAULT_AROUND * FAULT_AROUND
        last = min(-(-stop // FAULT_AROUND) * FAULT_AROUND, self.size)
        if last > first and CAN_ADVISE:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield bytes `start` to `stop` in steps of `size`, giving back what lies behind."""
        behind = start
        for at in range(start, stop, size):
            if at == start or at - behind >= WINDOW:
                self.require_unchanged()
                self.release(behind, at)
                behind = at
            yield self._view[at : min(at + size, stop)]
        self.release(behind, stop)
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise where the inode, size or time of change is another than when it was opened; a rename alone is none."""
        now = os.fstat(self._fd)
        kept = _identity(now) if now.st_nlink else (*_identity(now)[:-1], self._identity[-1])
        if kept != self._identity:
            raise _changed(self.name)


@dataclass(frozen=True, slots=True)
class _LocalFolder:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def home(self) -> str:
        return str(self.path.resolve())

    def holds(self, name: str) -> bool:
        """Return whether there is something of this name, were it a link that leads nowhere."""
        return lexists(self.path / name)

    is_visible = holds  # what may not be read here is an error, never nothing

    def leads_out(self, name: str) -> bool:
        return (self.path / name).resolve().parent != self.path.resolve()

    def names(self) -> list[str]:
        return [path.name for path in self.path.glob("*") if is_file(path)]

    def below(self) -> Iterator[str]:
        """Yield the path of every file in it and below, behind links, too; refuse with `folder-…` what has no end."""
        seen = 0

        def refuse(problem: OSError) -> NoReturn:
            what = f"{Path(problem.filename).name} in it cannot be listed"
            raise SubjectError("folder-unreadable", what, where=self.name, remedy="check its permissions") from None

        for folder, folders, names in os.walk(self.path, onerror=refuse, followlinks=True):
            real = os.path.realpath(folder)
            # A link to what it lies in would lead round for ever.
            below = {one: Path(folder, one).resolve() for one in sorted(folders)}
            folders[:] = [one for one, leads_to in below.items() if not f"{real}/".startswith(f"{leads_to}/")]
            seen += len(names) + len(folders)
            if seen > MAX_BELOW:
                what = f"more than {MAX_BELOW} files lie in it and below, and not all of them are looked at"
                raise SubjectError("folder-size", what, where=self.name, remedy="bind the file that is meant")
            yield from (Path(folder, name).relative_to(self.path).as_posix() for name in sorted(names))

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def open(self, name: str) -> MappedFile:
        return MappedFile(self.path / name)


def is_open_folder(path: Path) -> bool:
    """Return whether a path is a folder; refuse with `file-unreadable` one that may not be listed: to globs, empty."""
    if is_folder(path):
        try:
            os.scandir(path).close()
        except OSError as problem:
            raise _unreadable(problem, str(path)) from None
    return is_folder(path)


def locate(target: str) -> Place:
    """Return the folder that a path or URL names, and the file, opened; refuse what cannot be read here."""
    if (path := local_path(target)) is None:
        from weighbridge.storage import remote_file  # nothing of what lies elsewhere is loaded for what lies here

        return remote_file.locate(target)
    return Place(_LocalFolder(path)) if is_open_folder(path) else Place(_LocalFolder(path.parent), MappedFile(path))


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Return what no writer leaves as it was: the time of the content can be set back, that of the inode cannot."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _changed(name: str) -> SubjectError:
    what = "the file was written to while it was being read"
    return SubjectError("subject-changed", what, where=name, remedy="wait until its writer is done, then measure again")


def _unreadable(problem: OSError | ValueError, name: str) -> SubjectError:
    if isinstance(problem, (FileNotFoundError, NotADirectoryError)):
        remedy = where_else(name, "check the path")
        return SubjectError("file-missing", "there is no such file", where=name, remedy=remedy)
    number = problem.errno if isinstance(problem, OSError) else None
    remedy = "raise the limit of open files (ulimit -n)" if number == errno.EMFILE else "make it readable for this user"
    reason = os.strerror(number) if number else "not a usable path"
    return SubjectError("file-unreadable", f"cannot be opened: {reason}", where=name, remedy=remedy)
