"""Writes that leave the old state or the new one, and reads that nothing on a disk can trick; knows no bundles."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from weighbridge.core import BundleError, dataclass
from weighbridge.core.local_files import OWN, READ

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Windows opens no folder and knows no flag that refuses a link: there, a link is asked about before.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | OWN
OLD_FILE = READ | NO_LINK
FOLDER = READ | os.O_DIRECTORY if hasattr(os, "O_DIRECTORY") else None
CHUNK = 1 << 20
MAX_DEPTH = 3
STAGE = ".stage-"
LINK = ".tmp-"


def write_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that must not exist, and make it durable; on an OSError nothing half-written is left."""
    handle = os.open(path, NEW_FILE, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make what was created, linked or renamed in a folder durable, where the system lets a folder be opened."""
    if FOLDER is None:
        return
    handle = os.open(path, FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if path.is_dir():
        return
    make_folders(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def write_folder(into: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Write a folder of files as one step: after a crash or an OSError it is all there or not there."""
    make_folders(into)
    with _writing_into(into):
        stage, target = into / f"{STAGE}{os.urandom(8).hex()}", into / name
        folders = sorted({(stage / file).parent for file in files} | {stage})
        try:
            for folder in folders:
                folder.mkdir()
            for file, data in files.items():
                write_new(stage / file, data)
            for folder in folders:
                sync_folder(folder)
            os.rename(stage, target)  # noqa: PTH104 -- one system call, named as such in the crash tests
        except BaseException:
            _remove(stage)
            raise
        sync_folder(into)
        return target


def _remove(folder: Path) -> None:
    import shutil  # loads three compressors, and hardly anything is ever left behind

    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _writing_into(folder: Path) -> Iterator[None]:
    """Lock a folder as one of its writers; whoever finds no other there removes what dead ones left."""
    if FOLDER is None:  # where fcntl is lacking, too
        yield
        return
    handle = os.open(folder, FOLDER)
    try:
        with contextlib.suppress(OSError):  # another writes, or the disk knows no locks: then nothing is removed
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(f"{STAGE}*"):
                _remove(left)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that died; whoever calls this holds the lock under which they are written."""
    for left in folder.glob(f"{LINK}*"):
        left.unlink(missing_ok=True)


def link_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file under its name in one step, or raise an OSError: a file of that name is never replaced."""
    _place(path, data, mode, os.link)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step, or leave it as it is; a link leads to the file, a pipe or device is written."""
    target = path.resolve()
    if target.exists() and not (target.is_file() or target.is_dir()):
        target.write_bytes(data)
    else:
        _place(target, data, 0o644, os.replace)


def _place(target: Path, data: bytes, mode: int, by: Callable[[Path, Path], None]) -> None:
    """Write a file beside its name, and give it that by one system call."""
    draft = target.with_name(f"{LINK}{os.urandom(8).hex()}")
    try:
        write_new(draft, data, mode)
        by(draft, target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    sync_folder(target.parent)


def open_regular(path: Path, shown: str, limit: int) -> IO[bytes]:
    """Open a regular file of at most `limit` bytes, or raise a BundleError; follow no link, and wait on no pipe."""
    try:
        if not NO_LINK and path.is_symlink():
            raise BundleError("not-regular", "is a symbolic link", where=shown)
        handle = os.open(path, OLD_FILE)
    except FileNotFoundError:
        raise BundleError("missing-file", "is missing", where=shown) from None
    except OSError as problem:
        if path.is_symlink():
            raise BundleError("not-regular", "is a symbolic link", where=shown) from None
        raise BundleError("unreadable", f"cannot be read ({_name(problem)})", where=shown) from None
    state = os.fstat(handle)
    regular = stat.S_ISREG(state.st_mode)
    if regular and state.st_size <= limit:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if not regular:
        raise BundleError("not-regular", "is not a regular file", where=shown)
    raise BundleError("too-large", f"has {state.st_size} bytes, at most {limit} are read", where=shown)


def read_regular(path: Path, shown: str, limit: int) -> bytes:
    """Return the bytes of a file as `open_regular` opens it, or raise `changed-while-read`."""
    with open_regular(path, shown, limit) as file:
        before = os.fstat(file.fileno())
        data = b"".join(iter(lambda: os.read(file.fileno(), CHUNK), b""))
        after = os.fstat(file.fileno())
    if len(data) != before.st_size or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise BundleError("changed-while-read", "changed while it was read", where=shown, remedy="read it again")
    return data


def digest_regular(path: Path) -> str:
    """Return the sha256 of a regular file of any size, which a link may lead to; wait on no pipe."""
    try:
        with os.fdopen(os.open(path, READ), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise BundleError("not-regular", "is not a regular file", where=str(path))
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
    except (OSError, ValueError) as problem:
        why = _name(problem) if isinstance(problem, OSError) else "no path"
        raise BundleError("unreadable", f"cannot be read ({why})", where=str(path)) from None
    if (before.st_size, before.st_ctime_ns) != (after.st_size, after.st_ctime_ns):
        raise BundleError("changed-while-read", "changed while it was read", where=str(path), remedy="read it again")
    return digest


def _name(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, "unknown error")


def disk_error(problem: OSError, what: str, where: Path) -> BundleError:
    """Return the system's refusal as an error of ours that names what was written; nothing half-written is left."""
    what = f"{what} was not written: {os.strerror(problem.errno or 0)} ({_name(problem)})"
    remedy = "nothing half-written is left behind; make room or permission there, or choose a folder that you can write"
    return BundleError("disk", what, where=str(where), remedy=remedy)


@contextlib.contextmanager
def disk_errors(what: str, where: Path) -> Iterator[None]:
    """Raise an OSError inside as `disk_error` says it."""
    try:
        yield
    except OSError as problem:
        raise disk_error(problem, what, where) from None


@dataclass(frozen=True, slots=True)
class DiskFolder:
    """A folder on this disk; links in it are neither followed nor read."""

    path: Path

    @property
    def name(self) -> str:
        """Return its own name, were it reached through a link."""
        return self.path.resolve().name

    def read(self, name: str, limit: int) -> bytes:
        """Return a regular file in it, or raise as `read_regular` does."""
        return read_regular(self.path / name, name, limit)

    def names(self, below: str = "") -> Iterator[tuple[str, bool]]:
        """Yield the name of everything in it that is no folder, and whether it is a regular file."""
        with os.scandir(self.path / below) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
        for entry in inside:
            name = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False) and below.count("/") < MAX_DEPTH:
                yield from self.names(f"{name}/")
            else:
                yield name, entry.is_file(follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class PackedFolder:
    """A folder inside an archive, or one to be packed: its own name, and its files by name."""

    name: str
    files: Mapping[str, bytes]

    def read(self, name: str, limit: int) -> bytes:
        """Return a file, or raise `missing-file` or `too-large`."""
        if name not in self.files:
            raise BundleError("missing-file", "is missing", where=name)
        if len(self.files[name]) > limit:
            raise BundleError("too-large", f"has more than {limit} bytes", where=name)
        return self.files[name]

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield every name, and that it is a file's: what is none was refused with the archive."""
        yield from ((name, True) for name in sorted(self.files))
