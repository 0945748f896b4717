"""What the newest evidence of a lane that counts says of a gate that another lane needs, or why none counts."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from weighbridge.clauses.kind import blocked
from weighbridge.contract.resolved import digests
from weighbridge.core import Contract, Fields, Finding, GateDecl, Outcome, Unmeasured, WeighbridgeError, loads
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import ID_SHOWN, Bundle
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.review import other_versions
from weighbridge.evidence.statement import CLOCK_SKEW_S, Predicate, moment
from weighbridge.gates import KINDS
from weighbridge.judging.requests import DEFAULT
from weighbridge.lanes.lanes import EVERYTHING, Project
from weighbridge.ledger.causes import Causes, bundle_evidence, causes_of
from weighbridge.ledger.fold import RETIRED, Chains, fold
from weighbridge.ledger.store import Ledger

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
    UNPROVEN = "lane-unproven"
    UNDECIDED = "lane-undecided"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One gate of a contract on one instance, and the lane that is to have decided it."""

    contract: Contract
    gate: GateDecl
    instance: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A finding by evidence of a lane, what it stands on or lacks, and the digests of each subject's files."""

    finding: Finding
    says: str
    lacking: Mapping[str, Unmeasured] = field(default_factory=dict)
    judged: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class LaneEvidence:
    """The evidence beside a ledger, as one lane of a project looks at it at one moment."""

    project: Project
    lane: str
    now: dt.datetime
    causes: Causes
    chains: Chains
    trees: dict[str, Mapping[str, str]] = field(default_factory=dict)
    opened: dict[str, Bundle] = field(default_factory=dict)

    def instances(self, contract: str, gate: str) -> tuple[str, ...]:
        """Return the instances of a gate that the ledger knows, those that are RETIRED left out."""
        mine = (item for item in self.chains.items() if (item[0].contract, item[0].gate) == (contract, gate))
        return tuple(place.instance for place, entries in mine if fold(entries).status is not RETIRED)

    def all(self) -> Iterator[tuple[Wanted, Decided]]:
        """Yield what every gate of the lane comes to, by its own evidence and that of the lanes which it accepts."""
        known = {name: one.contract for of in self.project.contracts.values() for name, one in of.items()}
        for contract in (known[name] for name in self.project.names(self.lane)):
            for gate in contract.gates:
                by = self.project.decider(self.lane, contract.id, gate.id)
                for instance in (self.instances(contract.id, gate.id) or (DEFAULT,)) if by else ():
                    asked = Wanted(contract, gate, instance, by)
                    yield asked, self.decide(asked)

    def decide(self, asked: Wanted) -> Decided:
        """Return what the newest evidence of the lane that counts says of a gate, or a BLOCKED that says why none does.

        What cannot be believed ends the search: an older PASS must not stand in for a FAIL that was damaged.
        """
        gate, instance = asked.gate.id, asked.instance
        unfit: list[tuple[Unfit, str]] = []
        others: set[str] = set()
        for bundle, stated, lane in self._sealed_by(asked):
            if instance not in stated.instances[gate]:
                others.update(stated.instances[gate])
                continue
            answer = self._finding(bundle, stated, lane, asked)
            if isinstance(answer, Decided):
                return answer
            unfit.append((answer[0], f"its bundle {bundle[:ID_SHOWN]} {answer[1]}"))
            if answer[0] is Unfit.UNPROVEN:
                break
        if not unfit and others:
            unfit = [(Unfit.INSTANCE, f"it judged {gate} on {', '.join(sorted(others))}, not on {instance}")]
        elif not unfit:
            where = self.causes.ledger.root.parent
            unfit = [(Unfit.NONE, f"there is no evidence of it in {where} for {gate} of {asked.contract.id}")]
        (code, why), older = unfit[0], len(unfit) - 1
        return blocked_for(asked, code, f"{why}{f'; {older} older ones do not count either' if older else ''}")

    def _sealed_by(self, asked: Wanted) -> Iterator[tuple[str, Predicate, Fields]]:
        """Yield the bundles that the lane sealed of a gate, the newest first, with their environments."""
        for bundle, stated in reversed(self.causes.stated.items()):
            if stated.contract.id == asked.contract.id and stated.instances.get(asked.gate.id):
                path = self.causes.folders[bundle[:ID_SHOWN]] / manifest.ENVIRONMENT
                with contextlib.suppress(WeighbridgeError):  # what is damaged is reported by `evidence verify`
                    environment = loads(read_regular(path, manifest.ENVIRONMENT, manifest.MAX_FILE))
                    if isinstance(environment, Mapping) and environment.get(LANE) == asked.by:
                        yield bundle, stated, environment

    def _finding(self, bundle: str, stated: Predicate, lane: Fields, asked: Wanted) -> Decided | tuple[Unfit, str]:
        """Return what a bundle says of a gate, or why it does not count; it is opened last, for that takes longest."""
        if stated.overridden:
            return Unfit.CONTRACT, f"was judged with other parameters: {', '.join(stated.overridden)}"
        if stated.contract.whole != digests(asked.contract).whole:
            content = f"{stated.contract.id} ({stated.contract.version})"
            return Unfit.CONTRACT, f"was judged under another content of {content}"
        accepts, days = self.project.lane(self.lane).accepts.get(asked.by), asked.gate.max_age_days
        limits = [accepts.age if accepts else None, dt.timedelta(days=days) if days is not None else None]
        limit = min((one for one in limits if one is not None), default=None)
        unfit = self._other_tree(paths_read(lane), asked.by) or self._too_old(moment(stated.finished), limit)
        if unfit is not None:
            return unfit
        try:
            opened = self.opened.get(bundle) or self.opened.setdefault(bundle, self.causes.open(bundle[:ID_SHOWN]))
        except WeighbridgeError as refused:
            return Unfit.UNPROVEN, f"cannot be believed: {refused.what}"
        if others := other_versions(opened):
            return Unfit.UNPROVEN, f"was judged by {', '.join(others)}, which this version does not have"
        if opened.statement.tool.dirty:
            return Unfit.UNPROVEN, "was sealed by a build of weighbridge with changes that no commit has"
        found = next(one for one in opened.findings if (one.gate, one.instance) == (asked.gate.id, asked.instance))
        if found.verdict.outcome not in (Outcome.PASS, Outcome.FAIL, Outcome.NOT_APPLICABLE):
            return Unfit.UNDECIDED, f"came to {found.verdict.outcome} ({found.verdict.code}) there"
        at, names = bundle_evidence(opened, found).at, (asked.instance, DEFAULT)
        own_last = sorted(stated.subjects, key=lambda one: one.instance != DEFAULT)
        judged = {one.name: frozenset(one.digests.values()) for one in own_last if one.instance in names}
        said = f"by lane {asked.by}: bundle {bundle[:ID_SHOWN]}, {_long(self.now - at)} old"
        said += "" if limit is None else f", at most {_long(limit)}"
        return self._too_old(at, limit) or Decided(finding=found, says=said, judged=judged)

    def _other_tree(self, was: Mapping[str, str], by: str) -> tuple[Unfit, str] | None:
        if by not in self.trees:
            self.trees[by] = self.project.lane(by).trees()
        if was.keys() != (here := self.trees[by]).keys():
            return Unfit.TREE, f"was measured when the paths of lane {by} were {', '.join(sorted(was))}"
        for path, digest in here.items():
            name = f"all that is tracked (the lane {by} has no paths)" if (path,) == EVERYTHING else path
            if not digest:
                return Unfit.TREE, f"cannot be compared with {name}: {UNCOMMITTED}"
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


def lane_evidence(project: Project, lane: str, ledger: Ledger, now: dt.datetime) -> LaneEvidence:
    """Return the evidence beside a whole ledger for a lane; raise `unknown-lane`."""
    project.lane(lane)
    chains = ledger.chains()
    return LaneEvidence(project=project, lane=lane, now=now, causes=causes_of(ledger, chains), chains=chains)


def sealed(lane: str, trees: Mapping[str, str]) -> Fields:
    """Return what is sealed of a lane: its name, and the digests of its paths; those that are not known are empty."""
    return {LANE: lane, LANE_PATHS: ", ".join(f"{path}={digest}" for path, digest in sorted(trees.items()))}


def paths_read(environment: Fields) -> dict[str, str]:
    """Return the digests of a lane's paths from what was sealed."""
    paths = str(environment.get(LANE_PATHS, ""))
    return dict(part.rpartition("=")[::2] for part in paths.split(", ") if paths)


def blocked_for(asked: Wanted, code: Unfit, why: str) -> Decided:
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
    remedy = f"run it there, and bring its evidence here: weighbridge verify --lane {asked.by} --record"
    return Decided(finding=finding, says=why, lacking={key: Unmeasured(code=code, why=why, remedy=remedy)})


def _long(span: dt.timedelta) -> str:
    hours = span.total_seconds() / 3600
    if hours < 1:
        return f"{max(hours, 0) * 60:.0f} minutes"
    return f"{hours:.3g} hours" if hours < 72 else f"{hours / 24:.3g} days"
