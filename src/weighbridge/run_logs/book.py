"""The book of a witness beside what it watched: whether it stands, and whether it saw these very files."""

import datetime as dt
import hmac
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from weighbridge.core import Fields, SubjectError, WeighbridgeError, bare, dataclass, is_folder, lexists, loads, sha256
from weighbridge.core.local_files import read_regular_file
from weighbridge.core.pseudonym import kept_key, seal_of
from weighbridge.quantities import book_lines
from weighbridge.quantities.book_lines import SCHEMA, Begin, End, Line, Process, Sample, Stop

MAX_BOOK = 256 << 20
DECIDE = (Begin, Process, Sample, Stop, End)
CUDA, UNSEEN = "cuda", "the witness saw no process of it hold an accelerator open"
PART = re.compile(r"(?:rank-(?:0|[1-9][0-9]*)|attempt-[1-9][0-9]*)")  # of one run, a folder in its own
SLEWED = 1.0  # s: by how far two clocks of one machine may differ
NO_KEY = "its seal cannot be checked: your own key is not on this machine"
NO_BOOK = "no book of a witness: start it with `weighbridge watch {} -- CMD`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What a witness saw from one start of the command to the end of its last process."""

    begin: Begin
    end: End
    from_: dt.datetime
    until: dt.datetime
    pids: frozenset[int]  # as each process calls itself
    on_devices: frozenset[int]  # of them, those with an accelerator's file open
    stopped: bool  # by the witness, for a gate that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """A book beside a run or a trace, and `why` it does not stand, if so; `inside` leads from RUN to what is read."""

    why: str = ""
    digest: str = ""
    inside: str = ""
    segments: tuple[Segment, ...] = ()

    def doubt(self, digests: Mapping[str, str], heads: Sequence[Fields] = (), device: str = "") -> str:
        """Return why files with these digests, each `run.json` and a device were not witnessed; "" where they were."""
        return self.why or next(self._doubts(digests, heads, device), "")

    def elsewhen(self, times: Sequence[float]) -> str:
        """Return which of these times of rows, in seconds, lies in no segment; "" where all lie in one."""
        spans = [(one.from_.timestamp() - SLEWED, one.until.timestamp() + SLEWED) for one in self.segments]
        other = (at for at in times if not any(begin <= at <= end for begin, end in spans))
        return "".join(f"a row is of {utc(at)}, when the witness watched no run" for at in [*other][:1])

    def _doubts(self, digests: Mapping[str, str], heads: Sequence[Fields], device: str) -> Iterator[str]:
        last = self.segments[-1]
        for name, digest in digests.items():
            seen = last.end.files.get(self.inside + name)
            if seen is None or seen.sha256 != digest:
                yield f"{name} is {'not' if seen is None else 'no longer as'} what the witness saw at the end"
        if not digests:
            yield "no file was read that the witness could have seen"
        if last.end.code != 0 and not last.stopped:
            came = f"signal {last.end.signal}" if last.end.code is None else f"code {last.end.code}"
            yield f"the command that the witness watched ended with {came}"
        for head in heads:
            began, of_it = moment_of(head.get("started")), (one for one in self.segments if head.get("pid") in one.pids)
            segment = next((one for one in of_it if began is not None and one.from_ <= began <= one.until), None)
            if segment is None:
                yield f"the witness saw no process {head.get('pid')} that began to record at {head.get('started')}"
            elif segment.begin.commit != head.get("commit"):
                yield f"run.json says commit {head.get('commit')}, the witness saw {segment.begin.commit or 'none'}"
            elif str(head.get("resolved_device")).startswith(CUDA) and head.get("pid") not in segment.on_devices:
                yield f"run.json says {head.get('resolved_device')}, and {UNSEEN}"
        if device.startswith(CUDA) and not any(one.on_devices for one in self.segments):
            yield f"it says {device}, and {UNSEEN}"
        for one in self.segments:
            if one.begin.dirty is not False:
                yield f"the tree {'had changes' if one.begin.dirty else 'is not known'} when the witness began"


def read_book(target: Path) -> Book:
    """Read the book beside a run, a part of one, or a file; a book that does not stand says why, and raises nothing."""
    path, run, inside = Path(os.path.realpath(target)), target, ""
    while not lexists(folder := path.with_name(path.name + book_lines.FOLDER)) and PART.fullmatch(path.name):
        path, run, inside = path.parent, run.parent, f"{path.name}/{inside}"
    if not lexists(folder):
        return Book(why=NO_BOOK.format(bare(str(run))))
    try:
        data, seal = _bytes(folder, book_lines.BOOK, MAX_BOOK), _bytes(folder, book_lines.SEAL, 1 << 10)
        segments = tuple(_segments(_lines(data)))
        key = kept_key()
    except (WeighbridgeError, OSError, ValueError) as problem:
        what = problem.what if isinstance(problem, WeighbridgeError) else NO_KEY
        return Book(why=f"the book {bare(folder.name)} does not stand: {what}")
    if key is None or not hmac.compare_digest(seal.strip(), seal_of(data, SCHEMA, key).encode()):
        what = "its seal is of another key, or of another book" if key else NO_KEY
        return Book(why=f"the book {bare(folder.name)} does not stand: {what}")
    return Book(digest=sha256(data), inside=inside, segments=segments)


def _bytes(folder: Path, name: str, limit: int) -> bytes:
    if folder.is_symlink() or not is_folder(folder) or (folder / name).is_symlink():
        raise SubjectError("book", "a link, or no folder, lies in its place")
    try:
        return read_regular_file(folder / name, limit, SubjectError)
    except SubjectError as problem:
        raise SubjectError("book", f"{name} {problem.what}") from None


def _lines(data: bytes) -> Iterator[Line]:
    """Yield the lines that decide; all are parsed."""
    *lines, rest = data.split(b"\n")
    if rest or not lines:
        raise SubjectError("book", "its last line is torn")
    for number, text in enumerate(lines, start=1):
        try:
            fields = loads(text)
            if book_lines.KINDS[fields["kind"]] in DECIDE:
                yield book_lines.line_of(fields)
        except (WeighbridgeError, KeyError, TypeError) as problem:
            raise SubjectError("book", f"line {number} is none of a book: {problem}") from None


def _segments(lines: Iterator[Line]) -> Iterator[Segment]:
    """Yield what was seen from each `begin` to its `end`."""
    open_: list[Line] = []
    count = 0
    for line in lines:
        first = isinstance(line.body, Begin)
        count += first
        if first is bool(open_) or line.segment != count:
            raise SubjectError("book", f"segment {line.segment} does not follow what stands before it")
        open_.append(line)
        if isinstance(line.body, End):
            yield _segment(open_)
            open_ = []
    if open_ or not count:
        raise SubjectError("book", f"it has no end of segment {count}: the witness did not see the run end")


def _segment(lines: Sequence[Line]) -> Segment:
    begin, end, bodies = lines[0].body, lines[-1].body, [line.body for line in lines]
    inner = {begin.pid: begin.pid} | {one.pid: one.inner_pid for one in bodies if isinstance(one, Process)}
    opened = {pid for one in bodies if isinstance(one, Sample) for pid, files in one.device_files.items() if files}
    from_, until = moment_of(lines[0].time), moment_of(lines[-1].time)
    if begin.schema != SCHEMA or from_ is None or until is None:
        raise SubjectError("book", f"it is of {begin.schema!r}, or its times are none; this version reads {SCHEMA!r}")
    pids, on_devices = frozenset(inner.values()), frozenset(own for pid, own in inner.items() if str(pid) in opened)
    stopped = any(isinstance(one, Stop) and one.confirmed for one in bodies)
    return Segment(begin=begin, end=end, from_=from_, until=until, pids=pids, on_devices=on_devices, stopped=stopped)


def utc(seconds: float) -> str:
    """Return a time of day in UTC, as books write it; what no calendar holds as its seconds."""
    try:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(text: object) -> dt.datetime | None:
    """Return a moment to the millisecond, as books and `run.json` write it; None where it tells no zone."""
    try:
        moment = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    known = moment is not None and moment.utcoffset() is not None
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000) if moment and known else None
