"""Files that may be anything, asked about and read: never hang on a FIFO, read a device, or exceed a limit."""

import functools
import hashlib
import operator
import os
import stat
from pathlib import Path
from typing import Final

from weighbridge.core.errors import WeighbridgeError
from weighbridge.core.printable import scheme_of

KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}
# Windows has none of the first three; there, without the last, what looks like a line end is changed.
_FLAGS = ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
READ: Final = functools.reduce(operator.or_, (getattr(os, flag, 0) for flag in _FLAGS), os.O_RDONLY)
OWN: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # of a file that is written
LOCAL_SCHEMES = frozenset({"file", "local"})


# Unlike those of Path, these answer no, and raise nothing, where the system refuses an answer, as for a name too long.
is_folder, is_file, exists, lexists = os.path.isdir, os.path.isfile, os.path.exists, os.path.lexists


def local_path(target: str) -> Path | None:
    """Return the path that a word names, though it look like a URL if it is there; None for a URL of elsewhere."""
    scheme, path = scheme_of(target), Path(target)
    if not scheme or exists(path):
        return path
    return Path(target[len(scheme) + 3 :]) if scheme in LOCAL_SCHEMES else None


def is_here(target: str) -> bool:
    """Return whether a target lies on this machine, so that it can be looked at."""
    path = local_path(target.removeprefix("hf:"))
    return path is not None and exists(path)


def where_else(target: str, remedy: str) -> str:
    """Return what to do about a path that is not there: two words may be a repository of a hub."""
    folder, _, name = target.partition("/")
    of_hub = folder and name and "/" not in name and not folder.startswith((".", "~")) and not exists(folder)
    return f"{remedy}; a repository of the Hugging Face hub is named hf://{target}" if of_hub else remedy


def files_sha256(path: Path) -> str:
    """Hash a file, or what lies in a folder, by relative names; an OSError where there is neither."""
    if path.is_file():
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    inside = sorted(one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file())
    if not inside:
        raise FileNotFoundError("there is no file")
    lines = (f"{(name,)} {files_sha256(path / name)!r}\n" for name in inside)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_regular_file(path: Path, limit: int, error: type[WeighbridgeError]) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes, or raise an `error`.

    Its code is `file-missing`, `file-kind` (a directory, FIFO, socket or device), `file-size`, or `file-unreadable`.
    """
    data = b""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            descriptor = os.open(path, READ)
            with os.fdopen(descriptor, "rb") as file:
                mode = os.fstat(descriptor).st_mode  # it may have been replaced since
                data = file.read(limit + 1) if stat.S_ISREG(mode) else b""
    except (FileNotFoundError, NotADirectoryError):
        raise error("file-missing", "no such file", where=str(path), remedy="check the path") from None
    except (OSError, ValueError) as problem:
        why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else "not a path"
        what, remedy = f"cannot be read: {why}", "check path and permissions"
        raise error("file-unreadable", what, where=str(path), remedy=remedy) from None
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        raise error("file-kind", f"{kind}, not a regular file", where=str(path), remedy="give a regular file")
    if len(data) > limit:
        raise error("file-size", f"more than {limit} bytes", where=str(path), remedy="give a smaller file")
    return data
