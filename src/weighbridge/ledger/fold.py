"""Where a gate stands on an instance: what evidence moves it, and how moves fold into a status; no disk, no clock."""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from weighbridge.core import STATUS_ORDER, LedgerError, Outcome, Status, Trial, TrialResult, printable
from weighbridge.core.frozen import dataclass, replace
from weighbridge.evidence.statement import CLOCK_SKEW_S, DAY_S, moment
from weighbridge.judging.requests import DEFAULT

SCHEMA = "weighbridge.ledger/v0"
WATCH = "start it with `weighbridge watch RUN -- CMD`"
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # an instance that has a name; any other is the files that were bound
DRAFT, PARTIAL, ACTIVE = Status.DRAFT, Status.PARTIAL_ALGORITHM_LEVEL, Status.ACTIVE_WITH_LIVE_EVIDENCE
DISCHARGED, REGRESSED, RETIRED = Status.DISCHARGED, Status.REGRESSED, Status.RETIRED


class LedgerStep(enum.StrEnum):
    """What an entry does."""

    DECLARE = "declare"
    MOVE = "move"
    RENEW = "renew"
    DISCHARGE = "discharge"
    RETIRE = "retire"
    RECONCILE = "reconcile"


# The whole table. A renewal puts newer evidence under a status. What was discharged under another contract or kind is
# ACTIVE again, for the section that did it does not speak of this one.
EDGES: Mapping[LedgerStep, set[tuple[Status | None, Status]]] = {
    LedgerStep.DECLARE: {(None, DRAFT)},
    LedgerStep.MOVE: {(DRAFT, PARTIAL), (DRAFT, ACTIVE), (PARTIAL, ACTIVE), (REGRESSED, ACTIVE)}
    | {(status, REGRESSED) for status in (DRAFT, PARTIAL, ACTIVE, DISCHARGED)},
    LedgerStep.RENEW: {(ACTIVE, ACTIVE), (DISCHARGED, DISCHARGED), (DISCHARGED, ACTIVE), (REGRESSED, REGRESSED)},
    LedgerStep.DISCHARGE: {(ACTIVE, DISCHARGED)},
    LedgerStep.RETIRE: {(status, RETIRED) for status in STATUS_ORDER if status is not RETIRED},
    LedgerStep.RECONCILE: {(status, status) for status in STATUS_ORDER},
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LedgerPlace:
    """One gate of one contract on one instance: what has a status."""

    contract: str
    gate: str
    instance: str

    def __str__(self) -> str:
        return printable(f"{self.contract}/{self.gate}[{self.instance}]")

    @property
    def names(self) -> tuple[str, ...]:
        """Return what a successor may be called by."""
        gate = f"{self.contract}/{self.gate}"
        return self.gate, gate, f"{gate}/{self.instance}"

    @property
    def is_of_files(self) -> bool:
        """Return whether its instance has no name, but is the files that were bound."""
        return NAMED.fullmatch(self.instance) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One move. `cause` is the id of a bundle or an amendment, or the digest of a contract; times are UTC."""

    schema: str = SCHEMA
    step: LedgerStep
    place: LedgerPlace
    seq: int
    parents: tuple[str, ...]
    before: Status | None
    after: Status
    cause: str
    contract_digest: str
    evidence_at: str = ""  # when the run began that the evidence is of, or else when the evidence was finished
    outcome: Outcome | None = None  # what it came to there, judged by the gate's kind in `kind_version`
    kind_version: int = 0
    reason: str = ""
    recorded_at: str


Entries: TypeAlias = Mapping[str, LedgerEntry]  # by digest
Chains: TypeAlias = Mapping[LedgerPlace, Entries]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an instance stands, None before it was declared; `bundle` is the one that moved it last."""

    status: Status | None = None
    heads: tuple[str, ...] = ()
    seq: int = 0
    diverged: bool = False
    causes: frozenset[str] = frozenset()
    bundle: str = ""
    contract_digest: str = ""
    kind_version: int = 0
    evidence_at: datetime | None = None
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleEvidence:
    """What a bundle shows of one gate on one instance, as far as a status is concerned."""

    bundle: str
    outcome: Outcome
    live: bool
    reported: bool = False  # every subject is live but for runs and traces that recorded themselves
    live_then: bool = False  # whether it was live as it counted when it was sealed
    trials: tuple[Trial, ...]
    at: datetime
    contract_digest: str
    kind_version: int = 0
    dirty: bool = False
    overridden: tuple[str, ...] = ()
    max_age_days: float | None = None
    stale_on: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Return whether it is a live PASS by a tool without changes, under the contract as it is written."""
        return self.outcome is Outcome.PASS and self.live and not self.dirty and not self.overridden

    @property
    def as_sealed(self) -> "BundleEvidence":
        """Return it as it counted when it was sealed, for what the ledger recorded of it then."""
        return replace(self, live=self.live_then)

    def discharges(self, standing: Standing, landed: datetime) -> bool:
        """Return whether a section that cites it, and landed then, moves what stands so to DISCHARGED."""
        later = standing.failed_at is None or self.at > standing.failed_at
        same = self.contract_digest == standing.contract_digest and self.kind_version >= standing.kind_version
        active = standing.status is ACTIVE and not standing.diverged
        return active and self.sound and later and same and self.fresh(landed)

    def fresh(self, now: datetime) -> bool:
        """Return whether it is no older than its gate allows."""
        return self.max_age_days is None or (now - self.at).total_seconds() <= self.max_age_days * DAY_S


def declared_alone(place: LedgerPlace, chains: Chains) -> bool:
    """Return whether a place is a gate as it was declared before its files were bound, which they have been since."""
    others = (one for one in chains if (one.contract, one.gate) == (place.contract, place.gate))
    alone = all(entry.step is LedgerStep.DECLARE for entry in chains[place].values())
    return place.instance == DEFAULT and alone and any(one.is_of_files for one in others)


def fold(entries: Entries) -> Standing:
    """Fold entries, by digest, into a standing. Two heads count as the lower."""
    after = history(entries)
    parents = {parent for entry in entries.values() for parent in entry.parents}
    standing = join([after[digest] for digest in sorted(entries) if digest not in parents])
    return replace(standing, causes=frozenset(entry.cause for entry in entries.values()))


def history(entries: Entries) -> dict[str, Standing]:
    """Return where each entry led, `causes` left out; an entry's parents have lower numbers than itself."""
    after: dict[str, Standing] = {}
    for digest, entry in sorted(entries.items(), key=lambda item: item[1].seq):
        before = stood(entry, after)
        at = moment(entry.evidence_at) if entry.evidence_at else before.evidence_at
        failed = at is not None and entry.outcome is Outcome.FAIL
        after[digest] = Standing(
            status=entry.after,
            heads=(digest,),
            seq=entry.seq,
            bundle=entry.cause if entry.step in (LedgerStep.MOVE, LedgerStep.RENEW) else before.bundle,
            contract_digest=entry.contract_digest,
            kind_version=entry.kind_version or before.kind_version,
            evidence_at=at,
            failed_at=max(filter(None, (before.failed_at, at))) if failed else before.failed_at,
        )
    return after


def stood(entry: LedgerEntry, after: Mapping[str, Standing]) -> Standing:
    """Return where an instance stood before an entry, from where the other entries led."""
    return join([after[parent] for parent in entry.parents if parent in after])


def join(standings: Sequence[Standing]) -> Standing:
    """Return the lowest of several standings, as one that has diverged."""
    if len(standings) < 2:
        return standings[0] if standings else Standing()
    low = min(standings, key=lambda one: rank(one.status or DRAFT))
    return replace(
        low,
        heads=tuple(head for one in standings for head in one.heads),
        seq=max(one.seq for one in standings),
        diverged=True,
        failed_at=max((one.failed_at for one in standings if one.failed_at), default=None),
    )


rank = STATUS_ORDER.index


def lowest(statuses: Iterable[Status]) -> Status:
    """Return the status that a gate shows for all its instances."""
    return min(statuses, key=rank)


def advance(
    standing: Standing, evidence: "BundleEvidence", *, now: datetime, contract_digest: str
) -> tuple[LedgerStep, Status]:
    """Return the entry that the evidence earns, or raise what is missing; `contract_digest` is the contract's now."""
    status = standing.status or DRAFT
    _demand_movable(standing, evidence, now)
    if evidence.outcome is Outcome.FAIL:
        if not (evidence.live or evidence.reported):  # or not watching would be a way never to regress
            raise LedgerError("not-live", "a FAIL on a fixture, a synthetic subject or a log without provenance")
        if status is not REGRESSED:
            return LedgerStep.MOVE, REGRESSED
        if standing.failed_at is not None and evidence.at <= standing.failed_at:
            raise LedgerError("already-there", "it stands at REGRESSED for a FAIL as late as this one")
        return LedgerStep.RENEW, REGRESSED
    survivor = next((trial.name for trial in evidence.trials if trial.result is TrialResult.SURVIVED), "")
    if survivor or not any(trial.result is TrialResult.CAUGHT for trial in evidence.trials):
        raise LedgerError("trials", f"a PASS that was not shown able to fail: {survivor or 'none was caught'}")
    if not evidence.live:
        if status is not DRAFT:
            of, remedy = ("of a reported run or trace", WATCH) if evidence.reported else ("without live evidence", "")
            raise LedgerError("not-live", f"a PASS {of} moves nothing from {status}", remedy=remedy)
        return LedgerStep.MOVE, PARTIAL
    _demand_current(standing, evidence, now, contract_digest)
    if (status, ACTIVE) in EDGES[LedgerStep.MOVE]:
        return LedgerStep.MOVE, ACTIVE
    # Newer evidence keeps a gate from being STALE: under another contract or kind, or where the gate says when.
    other = (evidence.contract_digest, evidence.kind_version) != (standing.contract_digest, standing.kind_version)
    later = standing.evidence_at is None or evidence.at > standing.evidence_at
    later = later or (other and evidence.at == standing.evidence_at)
    if later and (other or evidence.max_age_days is not None or evidence.stale_on):
        return LedgerStep.RENEW, ACTIVE if other else status
    raise LedgerError("already-there", f"it stands at {status}, and this evidence adds nothing to it")


def _demand_movable(standing: Standing, evidence: "BundleEvidence", now: datetime) -> None:
    if standing.diverged:
        what = f"{len(standing.heads)} entries are each the newest; the lower counts"
        raise LedgerError("diverged", what, remedy="name both in one: weighbridge ledger reconcile")
    if standing.status is RETIRED:
        raise LedgerError("retired", "it is RETIRED, and nothing moves it from there", remedy="declare a new gate")
    if evidence.bundle in standing.causes:
        raise LedgerError("already-recorded", f"bundle {evidence.bundle[:12]} has moved it already")
    if evidence.outcome not in (Outcome.PASS, Outcome.FAIL):
        code = f"verdict-{evidence.outcome.lower().replace('_', '-')}"
        raise LedgerError(code, f"{evidence.outcome} is no evidence either way")
    if evidence.overridden:
        raise LedgerError("overridden-params", f"{', '.join(evidence.overridden)} overridden: that is not the contract")
    if evidence.at > now + timedelta(seconds=CLOCK_SKEW_S):
        raise LedgerError("future", "the evidence is from the future", remedy="set the clocks of both machines")


def _demand_current(standing: Standing, evidence: "BundleEvidence", now: datetime, contract_digest: str) -> None:
    if evidence.dirty:
        raise LedgerError("dirty-tool", "the tool had uncommitted changes", remedy="commit them, run again")
    if evidence.contract_digest != contract_digest:
        raise LedgerError("contract-changed", "the contract has changed since", remedy="run verify again")
    if not evidence.fresh(now):
        what = f"the evidence is older than {evidence.max_age_days:g} days"
        raise LedgerError("stale", what, remedy="run verify again")
    if standing.failed_at is not None and evidence.at <= standing.failed_at:
        what = "the PASS is not later than the last FAIL"
        raise LedgerError("older-than-fail", what, remedy="verify again; of a run, one that ended later")
