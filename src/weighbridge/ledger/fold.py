"""Where a gate stands on an instance: what evidence moves it, and how a chain of moves folds into one status.

No disk, no clock, no git: entries in, status out. What is not in the table is refused, and the refusal names what is
missing. Nothing here can be told a status; it can only be shown evidence.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from weighbridge.errors import LedgerError
from weighbridge.evidence.statement import CLOCK_SKEW_S, DAY_S, moment
from weighbridge.model import STATUS_ORDER, GateDecl, Outcome, Status, Trial, TrialResult

SCHEMA = "weighbridge.ledger/v0"
DRAFT, PARTIAL, ACTIVE = Status.DRAFT, Status.PARTIAL_ALGORITHM_LEVEL, Status.ACTIVE_WITH_LIVE_EVIDENCE
DISCHARGED, REGRESSED, RETIRED = Status.DISCHARGED, Status.REGRESSED, Status.RETIRED


class Step(enum.StrEnum):
    """What an entry does."""

    DECLARE = "declare"
    MOVE = "move"
    RENEW = "renew"
    DISCHARGE = "discharge"
    RETIRE = "retire"
    RECONCILE = "reconcile"


# The whole table. A renewal keeps the status and puts newer evidence under it.
EDGES: Mapping[Step, frozenset[tuple[Status | None, Status]]] = {
    Step.DECLARE: frozenset({(None, DRAFT)}),
    Step.MOVE: frozenset(
        {(DRAFT, PARTIAL), (DRAFT, ACTIVE), (PARTIAL, ACTIVE), (REGRESSED, ACTIVE)}
        | {(status, REGRESSED) for status in (DRAFT, PARTIAL, ACTIVE, DISCHARGED)}
    ),
    Step.RENEW: frozenset({(ACTIVE, ACTIVE), (REGRESSED, REGRESSED)}),
    Step.DISCHARGE: frozenset({(ACTIVE, DISCHARGED)}),
    Step.RETIRE: frozenset((status, RETIRED) for status in STATUS_ORDER if status is not RETIRED),
    Step.RECONCILE: frozenset((status, status) for status in STATUS_ORDER),
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """One gate of one contract on one instance: what has a status."""

    contract: str
    gate: str
    instance: str

    def __str__(self) -> str:
        return f"{self.contract}/{self.gate}[{self.instance}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One move. `cause` is the id of a bundle or an amendment, or the digest of a contract; times are UTC.

    `evidence_at` is when the evidence was finished, empty where there is none; `outcome` is what it came to there.
    """

    schema: str = SCHEMA
    step: Step
    place: Place
    seq: int
    parents: tuple[str, ...]
    before: Status | None
    after: Status
    cause: str
    contract_digest: str
    evidence_at: str = ""
    outcome: Outcome | None = None
    reason: str = ""
    recorded_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an instance stands, folded from its entries; `None` before it was declared."""

    status: Status | None = None
    heads: tuple[str, ...] = ()
    seq: int = 0
    diverged: bool = False
    causes: frozenset[str] = frozenset()
    contract_digest: str = ""
    evidence_at: datetime | None = None
    failed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleEvidence:
    """What a bundle shows of one gate on one instance, as far as a status is concerned."""

    bundle: str
    outcome: Outcome
    live: bool
    trials: tuple[Trial, ...]
    at: datetime
    contract_digest: str
    dirty: bool = False
    overridden: tuple[str, ...] = ()
    max_age_days: float | None = None


def fold(entries: Mapping[str, Entry]) -> Standing:
    """Fold entries, by digest, into a standing. Two heads count as the lower."""
    if not entries:
        return Standing()
    parents = {parent for entry in entries.values() for parent in entry.parents}
    heads = tuple(sorted(digest for digest in entries if digest not in parents))
    failures = (moment(one.evidence_at) for one in entries.values() if one.outcome is Outcome.FAIL and one.evidence_at)
    lowest = entries[min(heads, key=lambda digest: rank(entries[digest].after))]
    return Standing(
        status=lowest.after,
        heads=heads,
        seq=max(entries[digest].seq for digest in heads),
        diverged=len(heads) > 1,
        causes=frozenset(entry.cause for entry in entries.values()),
        contract_digest=lowest.contract_digest,
        evidence_at=moment(lowest.evidence_at) if lowest.evidence_at else None,
        failed_at=max(failures, default=None),
    )


rank = STATUS_ORDER.index


def lowest(statuses: Iterable[Status]) -> Status:
    """Return the status that a gate shows for all its instances."""
    return min(statuses, key=rank)


# --- What evidence moves ----------------------------------------------------------------------------------------------


def advance(
    standing: Standing, evidence: BundleEvidence, *, now: datetime, contract_digest: str
) -> tuple[Step, Status]:
    """Return the entry that the evidence earns; `contract_digest` is that of the contract as it is now.

    Raises:
        LedgerError: where it earns none, with a code that names what is missing.
    """
    status = standing.status or DRAFT
    _demand_movable(standing, evidence, now)
    if evidence.outcome is Outcome.FAIL:
        if not evidence.live:
            raise LedgerError("not-live", "a FAIL on a fixture, a synthetic subject or a log without provenance")
        if status is not REGRESSED:
            return Step.MOVE, REGRESSED
        if standing.failed_at is not None and evidence.at <= standing.failed_at:
            raise LedgerError("already-there", "it stands at REGRESSED for a FAIL as late as this one")
        return Step.RENEW, REGRESSED
    survivor = next((trial.name for trial in evidence.trials if trial.result is TrialResult.SURVIVED), "")
    if survivor or not any(trial.result is TrialResult.CAUGHT for trial in evidence.trials):
        raise LedgerError("trials", f"a PASS that was not shown able to fail: {survivor or 'none was caught'}")
    if not evidence.live:
        if status is not DRAFT:
            raise LedgerError("not-live", f"a PASS without live evidence moves nothing from {status}")
        return Step.MOVE, PARTIAL
    _demand_current(standing, evidence, now, contract_digest)
    if (status, ACTIVE) in EDGES[Step.MOVE]:
        return Step.MOVE, ACTIVE
    # Newer evidence keeps an ACTIVE gate from being STALE: under another contract, or where its age is limited.
    later = standing.evidence_at is None or evidence.at > standing.evidence_at
    ageing = evidence.contract_digest != standing.contract_digest or evidence.max_age_days is not None
    if status is ACTIVE and later and ageing:
        return Step.RENEW, ACTIVE
    raise LedgerError("already-there", f"it stands at {status}, and this evidence adds nothing to it")


def _demand_movable(standing: Standing, evidence: BundleEvidence, now: datetime) -> None:
    if standing.diverged:
        what = f"{len(standing.heads)} entries are each the newest; the lower counts"
        raise LedgerError("diverged", what, remedy="name both in one: weighbridge ledger reconcile")
    if standing.status is RETIRED:
        raise LedgerError("retired", "it is RETIRED, and nothing moves it from there", remedy="declare a new gate")
    if evidence.bundle in standing.causes:
        raise LedgerError("already-recorded", f"bundle {evidence.bundle[:12]} has moved it already")
    if evidence.outcome not in (Outcome.PASS, Outcome.FAIL):
        raise LedgerError(f"verdict-{evidence.outcome.lower()}", f"{evidence.outcome} is no evidence either way")
    if evidence.overridden:
        raise LedgerError("overridden-params", f"{', '.join(evidence.overridden)} overridden: that is not the contract")
    if evidence.at > now + timedelta(seconds=CLOCK_SKEW_S):
        raise LedgerError("future", "the evidence is from the future", remedy="set the clocks of both machines")


def _demand_current(standing: Standing, evidence: BundleEvidence, now: datetime, contract_digest: str) -> None:
    if evidence.dirty:
        raise LedgerError("dirty-tool", "the tool had uncommitted changes", remedy="commit them, run again")
    if evidence.contract_digest != contract_digest:
        raise LedgerError("contract-changed", "the contract has changed since", remedy="run verify again")
    if evidence.max_age_days is not None and (now - evidence.at).total_seconds() > evidence.max_age_days * DAY_S:
        what = f"the evidence is older than {evidence.max_age_days:g} days"
        raise LedgerError("stale", what, remedy="run verify again")
    if standing.failed_at is not None and evidence.at <= standing.failed_at:
        raise LedgerError("older-than-fail", "the PASS is not later than the last FAIL", remedy="run verify again")


# --- Computed when shown, never stored --------------------------------------------------------------------------------


def stale(standing: Standing, gate: GateDecl | None, contract_digest: str, now: datetime) -> tuple[str, ...]:
    """Return why a standing is STALE: its contract has changed or dropped the gate, or its evidence is too old."""
    if standing.status not in (PARTIAL, ACTIVE, DISCHARGED):
        return ()
    if gate is None:
        return ("the contract no longer has this gate",)
    why = () if standing.contract_digest == contract_digest else ("the contract has changed since",)
    if gate.max_age_days is None or standing.evidence_at is None:
        return why
    days = (now - standing.evidence_at).total_seconds() / DAY_S
    return (*why, f"{days:.1f} days old, at most {gate.max_age_days:g}") if days > gate.max_age_days else why
