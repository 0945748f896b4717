"""What the newest evidence of a lane that counts says of a gate that another lane needs, or why none counts."""

import datetime as dt
import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from weighbridge.clauses.kind import blocked
from weighbridge.contract.resolved import digests
from weighbridge.core import Contract, Fields, Finding, GateDecl, Outcome, Unmeasured, WeighbridgeError, loads
from weighbridge.core.frozen import dataclass, field, replace
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import BUNDLES, ID_SHOWN, Bundle
from weighbridge.evidence.review import other_versions
from weighbridge.evidence.statement import CLOCK_SKEW_S, BoundSubject, Predicate, SubjectFiles, moment
from weighbridge.gates import KINDS
from weighbridge.judging.requests import DEFAULT
from weighbridge.lanes.lanes import EVERYTHING, Project, uncommitted
from weighbridge.ledger.causes import UNRECORDED, Causes, LeftOut, bundle_evidence, place_of
from weighbridge.ledger.fold import REGRESSED, RETIRED, LedgerPlace, fold
from weighbridge.ledger.store import Ledger

SHOWN = 5  # files that differ, in a message
LANE, LANE_PATHS = "lane", "lane_paths"  # what `verify --lane` seals into a bundle's environment
UNCOMMITTED = "a file was changed since the commit, or it is in no git repository"


class Unfit(enum.StrEnum):
    """Why no evidence of a lane decides a gate."""

    NONE = "lane-no-evidence"
    INSTANCE = "lane-other-instance"
    CONTRACT = "lane-other-contract"
    TREE = "lane-other-tree"
    SUBJECT = "lane-other-subject"
    STALE = "lane-stale"
    ORIGIN = "lane-origin"
    STANDING = "lane-standing"
    UNPROVEN = "lane-unproven"
    UNDECIDED = "lane-undecided"


Sealed: TypeAlias = Fields | WeighbridgeError  # the environment of a bundle, or why it cannot be read


@dataclass(frozen=True, slots=True)
class Wanted:
    """One gate of a contract on one instance, the lane that is to have decided it, and the files it is to be of."""

    contract: Contract
    gate: GateDecl
    instance: str
    by: str
    files: Mapping[str, SubjectFiles]  # by the names of those subjects of which they are known


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A finding by evidence of a lane, and what it stands on or lacks."""

    finding: Finding
    says: str
    of: str = ""  # the files of its subjects
    lacking: Mapping[str, Unmeasured] = field(default_factory=dict)


@dataclass(kw_only=True)
class LaneEvidence:
    """The evidence beside a ledger, as one lane of a project looks at it at one moment."""

    project: Project
    lane: str
    now: dt.datetime
    causes: Causes
    trees: dict[str, Mapping[str, str]] = field(default_factory=dict)
    opened: dict[str, Bundle] = field(default_factory=dict)
    last: dict[tuple[str, str], dict[str, BoundSubject]] = field(default_factory=dict)

    def instances(self, contract: str, gate: str) -> tuple[str, ...]:
        """Return the instances of a gate that the ledger knows, those that are RETIRED left out."""
        mine = (item for item in self.causes.chains.items() if (item[0].contract, item[0].gate) == (contract, gate))
        known = [place for place, entries in mine if fold(entries).status is not RETIRED]
        return tuple(dict.fromkeys(DEFAULT if place.is_of_files else place.instance for place in known))

    def all(self) -> Iterator[tuple[Wanted, Decided]]:
        """Yield what every gate of the lane comes to, by its own evidence and that of the lanes which it accepts."""
        known = {name: one.contract for of in self.project.contracts.values() for name, one in of.items()}
        for contract in (known[name] for name in self.project.names(self.lane)):
            for gate in contract.gates:
                by = self.project.decider(self.lane, contract.id, gate.id)
                for instance in (self.instances(contract.id, gate.id) or (DEFAULT,)) if by else ():
                    asked = Wanted(contract, gate, instance, by, self.bound_last(contract, instance))
                    yield asked, self.decide(asked)

    @cached_property
    def left_out(self) -> Sequence[LeftOut]:
        """Return what no entry of the ledger says."""
        return tuple(self.causes.left_out(self.now))

    def bound_last(self, contract: Contract, instance: str) -> Mapping[str, SubjectFiles]:
        """Return the files of each subject as a lane bound it last, one that was not read then as when it was."""
        if (contract.id, instance) not in self.last:
            found = self.last[contract.id, instance] = {}
            for bundle, _, _ in self._sealed_by({self.lane, *self.project.lane(self.lane).accepts}, contract.id):
                for name, older in ((name, one) for name, one in self._files(bundle, instance).items() if one.digests):
                    last = found.get(name, older)  # gates of two files are not joined
                    read = {one: older.digests[one] for one in last.beside if one in older.digests}
                    found[name] = replace(last, digests={**read, **last.digests})
        return self.last[contract.id, instance]

    def _files(self, bundle: str, instance: str) -> dict[str, BoundSubject]:
        """Return the files of each subject of a bundle on an instance, where it was bound there or everywhere."""
        mine = [one for one in self.causes.stated[bundle].subjects if one.instance in (instance, DEFAULT)]
        mine.sort(key=lambda one: one.instance != DEFAULT)
        return {one.name: one for one in mine}

    def decide(self, asked: Wanted) -> Decided:
        """Return what the newest evidence of the lane that counts says of a gate, or BLOCKED with why none does."""
        for name, refused in self.causes.unread.items():
            why = f"what {self.causes.ledger.root.parent}/{BUNDLES}/{name} found cannot be known: it {refused.what}"
            return blocked_for(asked, Unfit.UNPROVEN, why, refused.remedy)
        gate, instance = asked.gate.id, asked.instance
        unfit: list[tuple[Unfit, str]] = []
        others: set[str] = set()
        for bundle, stated, lane in self._sealed_by({asked.by}, asked.contract.id):
            if instance not in (judged := stated.instances.get(gate, ())):
                others.update(judged)
                continue
            answer = self._finding(bundle, stated, lane, asked)
            if isinstance(answer, Decided):
                return answer
            unfit.append((answer[0], f"its bundle {bundle[:ID_SHOWN]} {answer[1]}"))
            if answer[0] in (Unfit.UNPROVEN, Unfit.STANDING):  # no older PASS may stand in for a damaged FAIL
                break
        if not unfit and others:
            unfit = [(Unfit.INSTANCE, f"it judged {gate} on {', '.join(sorted(others))}, not on {instance}")]
        elif not unfit:
            where = self.causes.ledger.root.parent
            unfit = [(Unfit.NONE, f"there is no evidence of it in {where} for {gate} of {asked.contract.id}")]
        (code, why), older = unfit[0], len(unfit) - 1
        return blocked_for(asked, code, f"{why}{f'; {older} older ones do not count either' if older else ''}")

    def _sealed_by(self, lanes: Collection[str], contract: str) -> Iterator[tuple[str, Predicate, Sealed]]:
        """Yield the bundles of a contract that one of the lanes sealed, or may have sealed, the newest first."""
        for bundle in reversed([known for known, one in self.causes.stated.items() if one.contract.id == contract]):
            environment: Sealed = {}
            try:
                data = loads(self.causes.sealed(bundle, manifest.ENVIRONMENT), where=manifest.ENVIRONMENT)
                environment = data if isinstance(data, Mapping) else environment
            except WeighbridgeError as refused:
                environment = refused
            if isinstance(environment, WeighbridgeError) or environment.get(LANE) in lanes:
                yield bundle, self.causes.stated[bundle], environment

    def _finding(self, bundle: str, stated: Predicate, lane: Sealed, asked: Wanted) -> Decided | tuple[Unfit, str]:
        """Return what a bundle says of a gate, or why it does not count; it is opened last, for that takes longest."""
        if isinstance(lane, WeighbridgeError):
            return Unfit.UNPROVEN, f"cannot be believed: {lane.where} {lane.what}"
        accepts, days = self.project.lane(self.lane).accepts.get(asked.by), asked.gate.max_age_days
        limits = [accepts.age if accepts else None, dt.timedelta(days=days) if days is not None else None]
        limit = min((one for one in limits if one is not None), default=None)
        other = _other_subject(stated, self._files(bundle, asked.instance), asked)
        other = other or self._other_tree(paths_read(lane), asked.by) or self._too_old(moment(stated.finished), limit)
        if other is not None:
            return other
        try:
            opened = self.opened.get(bundle) or self.opened.setdefault(bundle, self.causes.open(bundle[:ID_SHOWN]))
        except WeighbridgeError as refused:
            return Unfit.UNPROVEN, f"cannot be believed: {refused.what}"
        if others := other_versions(opened):
            return Unfit.UNPROVEN, f"was judged by {', '.join(others)}, which this version does not have"
        if stated.tool.dirty:
            return Unfit.UNPROVEN, "was sealed by a build of weighbridge with changes that no commit has"
        found = next(one for one in opened.findings if (one.gate, one.instance) == (asked.gate.id, asked.instance))
        came, seen = found.verdict.outcome, bundle_evidence(opened, found)
        at = seen.at
        if came not in (Outcome.PASS, Outcome.FAIL, Outcome.NOT_APPLICABLE):
            return Unfit.UNDECIDED, f"came to {came} ({found.verdict.code}) there"
        if came is not Outcome.FAIL and (why := self._discounted(place_of(opened, found), stated)):
            return Unfit.STANDING, f"came to {came}, but {why}"
        said = f"by lane {asked.by}: bundle {bundle[:ID_SHOWN]}, {_long(self.now - at)} old"
        said += "" if limit is None else f", at most {_long(limit)}"
        of = f"subjects that are {'reported' if seen.reported else 'no live ones'}"
        unlike = Unfit.ORIGIN, f"came to {came} on {of}, and only live ones are accepted"
        demanded = came is not Outcome.FAIL and accepts and accepts.origin  # a FAIL of any origin counts
        mine = [of for name, of in self._files(bundle, asked.instance).items() if name in asked.gate.subjects.values()]
        of = "; ".join(
            f"{one.name} {_listed({at: f'sha256 {by[:12]}' for at, by in one.digests.items()})}" for one in mine
        )
        decided = Decided(finding=found, says=said, of=of) if seen.live or not demanded else unlike
        return self._too_old(at, limit) or decided

    def _discounted(self, place: LedgerPlace, stated: Predicate) -> str:
        """Return why a verdict of a place other than FAIL does not count: its status, or what no entry says of it."""
        entries = self.causes.chains.get(place, {})
        standing = fold(entries)
        if standing.diverged or standing.status is REGRESSED:
            return f"the ledger has {place} as {'DIVERGED' if standing.diverged else REGRESSED}"
        for _, refused in self.causes.refuted(entries, entries, self.now):
            return f"{place} is UNVERIFIED in the ledger: {refused.code} {refused.what}"
        for at, bundle, why in self.left_out:
            if at == place and (why.code == UNRECORDED or self.causes.stated[bundle].finished > stated.finished):
                return f"{why.what}: {why.remedy}"
        return ""

    def _other_tree(self, was: Mapping[str, str], by: str) -> tuple[Unfit, str] | None:
        here = self.trees.get(by) or self.trees.setdefault(by, self.project.lane(by).trees())
        if was.keys() != here.keys():
            return Unfit.TREE, f"was measured when the paths of lane {by} were {', '.join(sorted(was))}"
        for path, digest in here.items():
            name = f"all that is tracked (the lane {by} has no paths)" if (path,) == EVERYTHING else path
            if not digest:
                return Unfit.TREE, f"cannot be compared with {name}: {uncommitted(path)}"
            if not was[path]:
                return Unfit.TREE, f"says nothing of {name}: there {UNCOMMITTED}"
            if was[path] != digest:
                what = f"was measured on other files: {name} is the tree {was[path][:12]} there, {digest[:12]} here"
                return Unfit.TREE, what
        return None

    def _too_old(self, at: dt.datetime, limit: dt.timedelta | None) -> tuple[Unfit, str] | None:
        if (self.now - at).total_seconds() < -CLOCK_SKEW_S:
            return Unfit.UNPROVEN, f"is from the future: {at:%Y-%m-%d %H:%M} UTC"
        if limit is not None and self.now - at > limit:
            return Unfit.STALE, f"is {_long(self.now - at)} old, at most {_long(limit)} is accepted"
        return None


def _other_subject(stated: Predicate, there: Mapping[str, SubjectFiles], asked: Wanted) -> tuple[Unfit, str] | None:
    if stated.overridden:
        return Unfit.CONTRACT, f"was judged with other parameters: {', '.join(stated.overridden)}"
    if stated.contract.whole != digests(asked.contract).whole:
        return Unfit.CONTRACT, f"was judged under another content of {stated.contract.id} ({stated.contract.version})"
    for name in (one for one in asked.gate.subjects.values() if one in asked.files):
        here, was = asked.files[name], there.get(name, SubjectFiles())
        gone = {one: "not here" for one in was.beside if one not in {*here.beside, *here.digests}}
        other = here.unlike(was) | ({} if here.digests else {"its files": "not known here"})
        if other := gone | other:
            return Unfit.SUBJECT, f"is of another {name} than is looked at here: {_listed(other)}"
    return None


def _listed(files: Mapping[str, str]) -> str:
    more = f", {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return ", ".join(f"{file} {said}" for file, said in list(files.items())[:SHOWN]) + more


def lane_evidence(project: Project, lane: str, ledger: Ledger, now: dt.datetime) -> LaneEvidence:
    """Return the evidence beside a whole ledger for a lane; raise `unknown-lane`."""
    project.lane(lane)
    return LaneEvidence(project=project, lane=lane, now=now, causes=Causes(ledger=ledger, chains=ledger.chains()))


def sealed(lane: str, trees: Mapping[str, str]) -> Fields:
    """Return what is sealed of a lane: its name, and the digests of its paths; those that are not known are empty."""
    return {LANE: lane, LANE_PATHS: ", ".join(f"{path}={digest}" for path, digest in sorted(trees.items()))}


def paths_read(environment: Fields) -> dict[str, str]:
    """Return the digests of a lane's paths from what was sealed."""
    paths = str(environment.get(LANE_PATHS, ""))
    return dict(part.rpartition("=")[::2] for part in paths.split(", ") if paths)


def blocked_for(asked: Wanted, code: Unfit, why: str, remedy: str = "") -> Decided:
    """Return that a gate is BLOCKED, for what is lacking."""
    key, kind = f"lane.{asked.gate.id}.{asked.instance}", KINDS[asked.gate.kind]
    finding = Finding(
        gate=asked.gate.id,
        instance=asked.instance,
        kind=kind.name,
        kind_version=kind.version,
        severity=asked.gate.severity,
        verdict=blocked(code, {"measurement": key}),
    )
    why = f"needs lane {asked.by}: {why}"
    remedy = remedy or f"run it there, and bring its evidence here: weighbridge verify --lane {asked.by} --record"
    return Decided(finding=finding, says=why, lacking={key: Unmeasured(code=code, why=why, remedy=remedy)})


def _long(span: dt.timedelta) -> str:
    if (hours := span.total_seconds() / 3600) < 1:
        return f"{max(hours, 0) * 60:.0f} minutes"
    return f"{hours:.3g} hours" if hours < 72 else f"{hours / 24:.3g} days"
