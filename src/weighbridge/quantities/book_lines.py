"""The lines of a witness's book, one dataclass a kind of line, and their one form in JSON; `spec/watch.md` has them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from weighbridge.core import Json, build, dataclass, plain

SCHEMA = "weighbridge.watch/v0"
FOLDER, BOOK, SEAL, STOPPED = ".watch", "book.jsonl", "seal", "STOP.json"  # RUN.watch/book.jsonl, RUN/STOP.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A program as it lay on the disk."""

    name: str  # of the file, without its folder
    sha256: str  # "" where it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as it lay there."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A segment begins: the child was started, and stands still until this line is on the disk."""

    schema: str = SCHEMA
    tool: str
    run: str  # base name of RUN
    command: tuple[str, ...]  # redacted
    pid: int
    start_ticks: int  # with the pid, the one name of a process: /proc/PID/stat, field 22
    executable: Image
    host: str  # pseudonym, as in run.json
    commit: str
    dirty: bool | None  # None outside a repository
    grace_s: float
    contracts: Mapping[str, str]  # digest by id
    witnessed: tuple[str, ...]
    not_witnessed: Mapping[str, str]  # why, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the tree was seen for the first time."""

    pid: int
    start_ticks: int
    parent: int
    name: str
    inner_pid: int  # what it calls itself: the same pid but in a pid namespace of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A process of the tree is there no more; its end is known of one that was a child of the witness."""

    pid: int
    start_ticks: int
    code: int | None = None
    signal: int | None = None
    cpu_s: float | None = None
    max_rss_kib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the tree used, all processes together; of devices as NVML has it by pid."""

    processes: int
    cpu_s: float
    rss_kib: int
    device_memory_mib: Mapping[str, float]  # by PID@DEVICE
    device_files: Mapping[str, tuple[str, ...]]  # open accelerator files by pid


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """What one process has mapped, its own program included: digests by the name of the file."""

    pid: int
    libraries: Mapping[str, str]
    left_out: int  # beyond the number that is digested


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time of day jumped against the monotonic clock."""

    jump_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """How far a log had grown at this time, as lines and as bytes, and their digest; `kind` is `rows`."""

    file: str  # relative to RUN
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What cannot be seen from now on, or was not as it should be."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a gate came to, while the run went on or after it."""

    gate: str
    instance: str
    outcome: str
    code: str
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A required gate failed for good: the whole tree stands still."""

    gate: str
    instance: str
    code: str
    step: int | None = None
    confirmed: bool  # by the judge over the same rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The witness sent a signal to so many processes."""

    signal: str
    processes: int
    refused: int  # to which it may send none


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A person let the run go on: STOP.json as it lay in RUN."""

    reason: str
    stop: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A segment ends: no process of the tree is left, and this is what lies under RUN."""

    code: int | None = None  # of the child
    signal: int | None = None
    exit: int  # of the witness
    wall_s: float
    cpu_s: float
    max_rss_kib: int
    processes: int
    files: Mapping[str, FileState]  # by path relative to RUN; by its own name where RUN is a file
    write_roots: tuple[str, ...] = ()  # outermost folders of files that were seen open for writing
    witnessed: tuple[str, ...]
    not_witnessed: Mapping[str, str]


OWN = (Begin, Process, Gone, Sample, Libraries, Clock, Note, Finding, Stop, Signal, Release, End)
KINDS: Mapping[str, type[Any]] = MappingProxyType({one.__name__.lower(): one for one in OWN} | {"rows": RowCount})
NAMES = {form: kind for kind, form in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: when, in which segment, and what of."""

    time: str  # UTC
    monotonic_s: float
    segment: int
    body: Any  # one of KINDS

    def plain(self) -> dict[str, Any]:
        """Return the line as JSON has it: the fields of its kind beside `kind`, `time`, `monotonic_s`, `segment`."""
        shared = {"time": self.time, "monotonic_s": self.monotonic_s, "segment": self.segment}
        return {"kind": NAMES[type(self.body)], **shared, **plain(self.body)}


def line_of(data: Mapping[str, Any]) -> Line:
    """Return the line that `plain` wrote, or raise `structure` with what is not as it writes; a KeyError by kind."""
    fields = dict(data)
    form = KINDS[fields.pop("kind")]
    shared = {name: fields.pop(name) for name in ("time", "monotonic_s", "segment")}
    return Line(**shared, body=build(form, fields))
