"""Ask about and read files that may be anything: never hang on a FIFO, never read a device, never exceed a limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NoReturn

from weighbridge.errors import WeighbridgeError
from weighbridge.urls import scheme_of

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
LOCAL_SCHEMES = frozenset({"file", "local"})


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; one that the system refuses to answer for, as a name too long, is none."""
    return os.path.isdir(path)  # noqa: PTH112 -- Path.is_dir raises what the system refuses


def is_file(path: Path) -> bool:
    """Tell whether a path is a regular file; one that the system refuses to answer for is none."""
    return os.path.isfile(path)  # noqa: PTH113 -- Path.is_file raises what the system refuses


def exists(path: Path) -> bool:
    """Tell whether something is at a path; where the system refuses to answer, nothing is."""
    return os.path.exists(path)  # noqa: PTH110 -- Path.exists raises what the system refuses


def lexists(path: Path) -> bool:
    """Tell whether something is at a path, were it a link that leads nowhere."""
    return os.path.lexists(path)


def local_path(target: str) -> Path | None:
    """Give the path that a word names; None where it is a URL of elsewhere.

    What exists under a name that looks like a URL is that file.
    """
    scheme, path = scheme_of(target), Path(target)
    if not scheme or exists(path):
        return path
    return Path(target[len(scheme) + 3 :]) if scheme in LOCAL_SCHEMES else None


def read_regular_file(path: Path, limit: int, error: type[WeighbridgeError]) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Raises:
        WeighbridgeError: of the class `error`: `file-missing`, `file-kind` (a directory, FIFO, socket or device),
            `file-size`, or `file-unreadable`.
    """
    try:
        data = _read(path, limit, error)
    except (OSError, ValueError) as problem:
        _refuse_unreadable(path, problem, error)
    if len(data) > limit:
        raise error("file-size", f"more than {limit} bytes", where=str(path), remedy="give a smaller file")
    return data


def _read(path: Path, limit: int, error: type[WeighbridgeError]) -> bytes:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        _refuse_kind(path, mode, error)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode  # it may have been replaced since
        if not stat.S_ISREG(mode):
            _refuse_kind(path, mode, error)
        return file.read(limit + 1)


def _refuse_kind(path: Path, mode: int, error: type[WeighbridgeError]) -> NoReturn:
    what = next((name for test, name in _KINDS if test(mode)), "something else")
    raise error("file-kind", f"{what}, not a regular file", where=str(path), remedy="give a regular file")


def _refuse_unreadable(path: Path, problem: Exception, error: type[WeighbridgeError]) -> NoReturn:
    if isinstance(problem, (FileNotFoundError, NotADirectoryError)):
        raise error("file-missing", "no such file", where=str(path), remedy="check the path") from None
    why = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else "not a path"
    raise error(
        "file-unreadable", f"cannot be read: {why}", where=str(path), remedy="check path and permissions"
    ) from None
