"""Open what a run was logged to, as UTF-8 in blocks: regular files only. The digest is of the file as it lies there."""

import codecs
import hashlib
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from weighbridge.core import SubjectError, dataclass
from weighbridge.core.local_files import READ, where_else

BAD_LINE = "mend or remove the line"
BLOCK = 1 << 20
MAX_LINE = 1 << 20
MAX_WHOLE = 64 << 20  # a JSON report is kept in memory; a longer log is JSONL
MAX_UNPACKED = 8 << 30
SHOWN = 12  # names in a message
NO_STEP = "no-rows", "empty-file"  # what is said of a log in which no step stands
GZIP = b"\x1f\x8b\x08"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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
        remedy = where_else(str(path), "check the path")
        raise SubjectError("not-found", "there is no such file", where=str(path), remedy=remedy) from None
    except (OSError, ValueError):
        what, remedy = "the file cannot be opened", "check its permissions"
        raise SubjectError("not-readable", what, where=str(path), remedy=remedy) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        remedy = "bind a log file or a run directory, not a FIFO, socket or device"
        raise SubjectError("not-a-file", "this is not a regular file", where=str(path), remedy=remedy)
    return os.fdopen(handle, "rb")


def suffix(path: Path) -> str:
    """Return the suffix that tells what a log is: that of what is inside, where it is packed."""
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def read_whole(path: Path, digests: dict[str, str], limit: int = MAX_WHOLE) -> bytes:
    """Read a whole text of at most `limit` bytes; refuse with `too-large` or `empty-file`."""
    found, size = list[bytes](), 0
    for block in blocks(path, digests):
        found.append(block)
        size += len(block)
        if size > limit:
            what, remedy = f"longer than {limit} bytes", "log one JSON row a line (JSONL)"
            raise SubjectError("too-large", what, where=str(path), remedy=remedy)
    if not size:
        raise empty(path)
    return b"".join(found)


def raw_blocks(path: Path, digests: dict[str, str], size: int = 0) -> Iterator[bytes]:
    """Yield the bytes that a file has as it is opened: a writer may be faster than its reader."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        left = os.fstat(file.fileno()).st_size
        while block := file.read(min(size or BLOCK, left)):
            left -= len(block)
            digest.update(block)
            yield block
    digests[path.name] = digest.hexdigest()


def blocks(path: Path, digests: dict[str, str]) -> Iterator[bytes]:
    """Yield a text as UTF-8 without a mark: unpacked where it is gzip, decoded where its mark says UTF-16."""
    from_disk = raw_blocks(path, digests)
    first = next(from_disk, b"")
    unpacked: Iterator[bytes] = chain([first], from_disk)
    if first.startswith(GZIP):
        unpacked = _unpacked(unpacked, path)
        first = next(unpacked, b"")
        unpacked = chain([first], unpacked)
    if first.startswith(UTF_16):
        yield from _from_utf_16(unpacked, path)
        return
    yield next(unpacked).removeprefix(codecs.BOM_UTF8)
    yield from unpacked


def _unpacked(packed: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Unpack gzip, at most a block at a time; refuse with `gzip` what is damaged, cut short or grows without end."""
    stream, given = zlib.decompressobj(31), 0
    remedy = "fetch the file again, or unpack it and bind what is in it"
    for block in packed:
        rest, full = block, False
        while rest or full:
            if stream.eof:
                stream = zlib.decompressobj(31)
            try:
                out = stream.decompress(rest, BLOCK)
            except zlib.error as problem:
                what = f"the gzip stream is damaged behind {given} unpacked bytes: {problem}"
                raise SubjectError("gzip", what, where=str(path), remedy=remedy) from None
            given += len(out)
            if given > MAX_UNPACKED:
                raise SubjectError("gzip", f"more than {MAX_UNPACKED} bytes unpacked", where=str(path), remedy=remedy)
            if out:
                yield out
            rest, full = stream.unused_data if stream.eof else stream.unconsumed_tail, len(out) == BLOCK
    if not stream.eof:
        what = f"the gzip stream breaks off behind {given} unpacked bytes"
        raise SubjectError("gzip", what, where=str(path), remedy=remedy)


def _from_utf_16(blocks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Write UTF-16 as UTF-8; a unit cut in two at the end is left off."""
    decoder = codecs.getincrementaldecoder("utf-16")()
    line = 1
    try:
        for block in blocks:
            text = decoder.decode(block)
            line += text.count("\n")
            yield text.encode()
    except UnicodeDecodeError as problem:
        what, remedy = f"this is not UTF-16 text: {problem.reason}", "save the log as UTF-8"
        raise SubjectError("not-utf8", what, where=f"{path}:{line}", remedy=remedy) from None


def empty(path: Path) -> SubjectError:
    """Return the error for a file that holds nothing."""
    return SubjectError("empty-file", "the file is empty", where=str(path), remedy="bind a log with at least one row")


def bad_line(path: Path, line: int, what: str, text: str = "", remedy: str = BAD_LINE) -> SubjectError:
    """Return the error for a line that is no row; of a text that a Trainer printed, where its rows are."""
    if "{'" in text and "loss': " in text:
        what, remedy = "a dict as Python prints it, no row of JSON", "bind the trainer_state.json that a Trainer saves"
    return SubjectError("log-syntax", what, where=f"{path}:{line}", remedy=remedy)


def no_rows(path: Path) -> SubjectError:
    """Return the error for a log that holds no row."""
    return SubjectError("no-rows", "the log has no row", where=str(path), remedy="bind a log with at least one step")


def several_runs(path: Path, names: Sequence[str], remedy: str = "bind one of them") -> SubjectError:
    """Return the error for a place that holds more than one run."""
    what = f"{len(names)} runs: {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}"
    return SubjectError("several-runs", what, where=str(path), remedy=remedy)


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
    rest, first, begun = b"", 1, False
    for block in blocks(path, digests):
        begun = begun or bool(block)
        whole, _, rest = (rest + block).rpartition(b"\n")
        if whole or block.find(b"\n") >= 0:
            yield Batch(decoded(whole, path, first).split("\n"), first)
            first += whole.count(b"\n") + 1
        if len(rest) > MAX_LINE:
            what, where = f"a line longer than {MAX_LINE} bytes", f"{path}:{first}"
            raise SubjectError("line-too-long", what, where=where, remedy="log one row a line")
    if rest:  # a character cut in two by a crash is left off
        try:
            tail = rest.decode("utf-8")
        except UnicodeDecodeError as problem:
            tail = decoded(rest[: problem.start] if problem.reason == "unexpected end of data" else rest, path, first)
        yield Batch([tail], first, terminated=False)
    elif not begun:
        raise empty(path)
