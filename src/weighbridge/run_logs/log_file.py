"""Open what a run was logged to, in blocks: regular files only. What is digested is what was read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from weighbridge.core import SubjectError
from weighbridge.core.local_files import READ

BLOCK = 1 << 20
MAX_LINE = 1 << 20
MAX_WHOLE = 64 << 20  # a JSON report is kept in memory; a longer log is JSONL


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines without their ends; `first` is the number of the first, from 1. Only the last may lack its end."""

    lines: list[str]
    first: int
    terminated: bool = True


def open_regular(path: Path) -> BinaryIO:
    """Open a file, and wait for no writer; refuse with `not-found`, `not-readable` or `not-a-file`."""
    try:
        handle = os.open(path, READ)
    except FileNotFoundError:
        remedy = "check the path that the subject is bound to"
        raise SubjectError("not-found", "there is no such file", where=str(path), remedy=remedy) from None
    except (OSError, ValueError):
        what, remedy = "the file cannot be opened", "check its permissions"
        raise SubjectError("not-readable", what, where=str(path), remedy=remedy) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        remedy = "bind a log file or a run directory, not a FIFO, socket or device"
        raise SubjectError("not-a-file", "this is not a regular file", where=str(path), remedy=remedy)
    return os.fdopen(handle, "rb")


def read_whole(path: Path, digests: dict[str, str], limit: int = MAX_WHOLE) -> bytes:
    """Read a whole file of at most `limit` bytes; refuse with `too-large` or `empty-file`."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        what, remedy = f"longer than {limit} bytes", "log one JSON row a line (JSONL)"
        raise SubjectError("too-large", what, where=str(path), remedy=remedy)
    if not data:
        raise empty(path)
    digests[path.name] = hashlib.sha256(data).hexdigest()
    return data


def empty(path: Path) -> SubjectError:
    """Return the error for a file that holds nothing."""
    return SubjectError("empty-file", "the file is empty", where=str(path), remedy="bind a log with at least one row")


def decoded(data: bytes, path: Path, first: int) -> str:
    """Decode UTF-8, naming the line of the first byte that is not; refuse with `not-utf8`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = first + data.count(b"\n", 0, problem.start)
        what = f"byte 0x{data[problem.start]:02x} is not UTF-8 text"
        remedy = "bind the log itself, not an archive or a binary file"
        raise SubjectError("not-utf8", what, where=f"{path}:{line}", remedy=remedy) from None


def batches(path: Path, digests: dict[str, str]) -> Iterator[Batch]:
    """Yield a file in batches of lines; refuse with `empty-file`, `line-too-long` or `not-utf8`."""
    digest = hashlib.sha256()
    rest, first = b"", 1
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
            whole, _, rest = (rest + block).rpartition(b"\n")
            if whole or block.find(b"\n") >= 0:
                yield Batch(decoded(whole, path, first).split("\n"), first)
                first += whole.count(b"\n") + 1
            if len(rest) > MAX_LINE:
                what, where = f"a line longer than {MAX_LINE} bytes", f"{path}:{first}"
                raise SubjectError("line-too-long", what, where=where, remedy="log one row a line")
    digests[path.name] = digest.hexdigest()
    if rest:  # a character cut in two by a crash is left off
        try:
            tail = rest.decode("utf-8")
        except UnicodeDecodeError as problem:
            torn = problem.reason == "unexpected end of data"
            tail = decoded(rest[: problem.start] if torn else rest, path, first)
        yield Batch([tail], first, terminated=False)
    elif digest.digest() == hashlib.sha256().digest():
        raise empty(path)
