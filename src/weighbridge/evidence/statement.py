"""The statement of a bundle: an in-toto Statement v1 whose digest is the bundle's id. Exact bytes, one form."""

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from weighbridge.contract.resolved import ContractRef
from weighbridge.core import BundleError, Json, Origin, SubjectKind, build, closed, dumps, loads, plain
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.model import LATER

FILE = "statement.json"
TYPE = "https://in-toto.io/Statement/v1"
BEFORE = "recorded before witnesses"
PREDICATE_TYPE = "urn:weighbridge:evidence:v0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """The tool that measured and judged, by the digest of its source; `commit` is empty where it ran from a wheel."""

    name: str = "weighbridge"
    version: str
    digest: str = ""
    commit: str = ""
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class SubjectFiles:
    """The files of a subject: the sha256 of each that was read, and the names of those beside a checkpoint's own."""

    digests: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = field(default=(), metadata={LATER: True})  # read or not; not sealed of other kinds

    def unlike(self, was: "SubjectFiles") -> dict[str, str]:
        """Return what is not as it `was`, by file: one read then, or one that would be read now and was not there.

        Where nothing is unlike, the same would be read again. Its own file may have another name, one beside it not.
        """
        own = {name: digest for name, digest in self.digests.items() if name not in self.beside}
        new = {name: digest for name, digest in own.items() if digest not in was.digests.values()}
        found = {name: f"sha256 {digest[:12]} here, not known there" for name, digest in new.items()}
        for name, digest in was.digests.items():
            here = (own if was.beside and name not in was.beside else self.digests).get(name)
            if here not in (None, digest):
                found[name] = f"sha256 {digest[:12]} there, {here[:12]} here"
            elif here is None and (name in was.beside or digest not in own.values()):
                found[name] = f"sha256 {digest[:12]} there, not known here"
        return found | {name: "not known there" for name in self.beside if name not in {*was.digests, *was.beside}}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSubject(SubjectFiles):
    """A subject as it was bound, its path redacted, by the sha256 of each file; `commit` is that of its program."""

    name: str
    instance: str
    kind: SubjectKind
    path: str
    origin: Origin
    size: int = 0
    started: str = ""  # when a recorded run began
    tensor_root: str = ""
    commit: str = ""
    dirty: bool | None = None  # whether the program's tree had changed
    # The digest of the witness's book that stands for a run or a trace, "" where none does; None of other kinds, and
    # in what was sealed before there were witnesses.
    book: str | None = field(default=None, metadata={LATER: True})

    @property
    def counts_as(self) -> Origin:
        """Return what it is to a status: a run or a trace that names no book was not witnessed, whatever it states."""
        needs = self.book is not None or self.kind in (SubjectKind.RUN, SubjectKind.TRACE)
        needs = needs or (self.kind is SubjectKind.MODEL and ":" not in self.path)  # a trace, in place of its model
        return Origin.REPORTED if self.origin is Origin.LIVE and needs and not self.book else self.origin

    @property
    def as_sealed(self) -> Origin:
        """Return what it counted as when it was sealed: before there were witnesses, what it states."""
        return self.origin if self.book is None else self.counts_as

    @property
    def unwitnessed(self) -> str:
        """Return why it is reported; empty where it is not."""
        why = "no book of a witness stands for it" if self.as_sealed is Origin.REPORTED else BEFORE
        return why if self.counts_as is Origin.REPORTED else ""

    @property
    def said(self) -> str:
        """Return its origin in words."""
        return ": ".join(filter(None, (self.counts_as, self.unwitnessed)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A file given beside the subjects, its name redacted; where `sealed`, its text is in `logs/ROLE.txt`, redacted."""

    role: str
    name: str
    sha256: str
    size: int
    sealed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """What is stated about the subjects; `manifest` is the digest that closes the bundle's folder."""

    contract: ContractRef
    manifest: str
    tool: Tool
    host: str
    subjects: tuple[BoundSubject, ...]
    instances: Mapping[str, tuple[str, ...]]
    started: str
    finished: str
    overridden: tuple[str, ...]
    command: tuple[str, ...]
    companions: tuple[Companion, ...] = ()


def to_bytes(predicate: Predicate) -> bytes:
    """Write a statement; the bundle's id is the sha256 of these bytes."""
    return dumps(of(predicate.subjects, PREDICATE_TYPE, plain(predicate), sealed=True))


def of(subjects: Iterable[BoundSubject], type_: str, predicate: Json, *, sealed: bool = False) -> dict[str, Json]:
    """Return a statement about every file of some subjects, as in-toto describes them, of what each counts as now."""
    resources: list[Json] = []
    for one in subjects:
        origin = one.origin if sealed else one.counts_as
        about = {"subject": one.name, "instance": one.instance, "origin": origin.value, "size": one.size}
        notes = about | ({"tensorRoot": one.tensor_root} if one.tensor_root else {})
        for name, digest in sorted(one.digests.items()):
            resources.append({"name": name, "digest": {"sha256": digest}, "annotations": notes})
    return {"_type": TYPE, "predicateType": type_, "subject": resources, "predicate": predicate}


def from_bytes(data: bytes) -> Predicate:
    """Read a statement back, or raise a BundleError where it is not exactly what `to_bytes` writes."""
    given = closed(loads(data, where=FILE), ("_type", "predicateType", "subject", "predicate"))
    if given["_type"] != TYPE or given["predicateType"] != PREDICATE_TYPE:
        what = f"is a statement of {given['predicateType']!r}, this version reads {PREDICATE_TYPE!r}"
        remedy = "read it with the version of weighbridge that wrote it"
        raise BundleError("bundle-version", what, where=FILE, remedy=remedy)
    predicate = build(Predicate, given["predicate"], at=("predicate",))
    if to_bytes(predicate) != data:
        raise BundleError("not-canonical", "is not in its one form", where=FILE)
    return predicate


CLOCK_SKEW_S = 300
DAY_S = 86_400


def utc(moment: datetime) -> str:
    """Write a moment: `2026-04-26T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """Read a moment, or raise `structure` where it is not of the one form."""
    with contextlib.suppress(ValueError):
        read = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        if utc(read) == text:
            return read
    raise BundleError("structure", f"{text[:40]!r} is no UTC time to the millisecond")
