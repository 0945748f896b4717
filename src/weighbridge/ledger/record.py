"""Bundles recorded in the ledger: what moves, and the entries that need a person's reason."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from weighbridge.core import Finding, LedgerError, Outcome, Status, dataclass, is_file
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import ID_SHOWN, Bundle
from weighbridge.evidence.disk import digest_regular
from weighbridge.evidence.statement import utc
from weighbridge.ledger import fold
from weighbridge.ledger.causes import Causes, bundle_evidence, demand_rederivable, place_of
from weighbridge.ledger.fold import BundleEvidence, Entries, LedgerEntry, LedgerPlace, LedgerStep, Standing
from weighbridge.ledger.store import SHORTEST_REASON, Ledger, digest_of, illegal


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What one finding does to a status: `after` equals `before` where it moves nothing, and `code` says why not."""

    place: LedgerPlace
    before: Status | None
    after: Status | None
    code: str
    says: str
    remedy: str = ""
    entries: tuple[str, ...] = ()
    reported: bool = False  # whether no witness saw the run or trace that it is of
    was_reported: bool = False  # nor the one that it stood on

    @property
    def moved(self) -> bool:
        """Return whether an entry is earned."""
        return self.code == ""


def record(bundle: Bundle, ledger: Ledger, *, now: datetime, contract_digest: str) -> tuple[Move, ...]:
    """Append what a bundle earns, or raise `not-rederivable`; `contract_digest` is the contract's now, as a whole."""
    demand_rederivable(bundle, {})
    moves, causes = list[Move](), Causes(ledger=ledger, chains={})
    for finding in bundle.findings:
        place, seen = place_of(bundle, finding), bundle_evidence(bundle, finding)

        def decide(entries: Entries, place: LedgerPlace = place, seen: BundleEvidence = seen) -> Sequence[LedgerEntry]:
            standing, declared = fold.fold(entries), list[LedgerEntry]()
            before, was = standing.status, any(one.unwitnessed for one in causes.stated_by(standing.bundle))
            moved: dict[str, Any] = {"place": place, "before": before, "was_reported": was}
            if before is None:  # the pre-registration: the contract's digest, and when
                of = contract_digest if seen.overridden else seen.contract_digest  # it may be of an earlier contract
                about = {"cause": of, "contract_digest": of}
                declared = [_next(place, standing, LedgerStep.DECLARE, Status.DRAFT, now, **about)]
                standing = fold.fold({digest_of(entry): entry for entry in declared})
            try:
                step, after = fold.advance(standing, seen, now=now, contract_digest=contract_digest)
            except LedgerError as refused:
                code, says, remedy, stays = refused.code, refused.what, refused.remedy, before or Status.DRAFT
                moves.append(Move(**moved, after=stays, code=code, says=says, remedy=remedy, reported=was))
                return declared
            moves.append(Move(**moved, after=after, code="", says=f"on {seen.outcome}", reported=seen.reported))
            about = {"cause": seen.bundle, "contract_digest": seen.contract_digest, "evidence_at": utc(seen.at)}
            judged = {"outcome": seen.outcome, "kind_version": seen.kind_version}
            return [*declared, _next(place, standing, step, after, now, **about, **judged)]

        appended = ledger.append(place, decide)
        moves[-1] = dataclasses.replace(moves[-1], entries=appended)
    return tuple(moves)


def _next(
    place: LedgerPlace, standing: Standing, step: LedgerStep, after: Status, now: datetime, **more: Any
) -> LedgerEntry:
    follows = {"parents": standing.heads, "before": standing.status, "after": after, "recorded_at": utc(now)}
    return LedgerEntry(step=step, place=place, seq=standing.seq + 1, **follows, **more)  # type: ignore[arg-type]


def reconcile(ledger: Ledger, place: LedgerPlace, *, reason: str, now: datetime) -> str:
    """Join two heads into one, at the lower status; reconciling again gives the entry that did."""
    _demand_reason(reason)

    def decide(entries: Entries) -> Sequence[LedgerEntry]:
        standing = fold.fold(entries)
        if not standing.diverged:
            if standing.heads and entries[standing.heads[0]].step is LedgerStep.RECONCILE:
                return ()
            raise LedgerError("not-diverged", f"{place} has {len(standing.heads)} newest entries, nothing to join")
        assert standing.status is not None
        why = {"cause": "+".join(head[:12] for head in standing.heads), "reason": reason}
        digest = standing.contract_digest
        return (_next(place, standing, LedgerStep.RECONCILE, standing.status, now, contract_digest=digest, **why),)

    appended = ledger.append(place, decide)
    return appended[0] if appended else fold.fold(ledger.read(place)).heads[0]


def retire(ledger: Ledger, place: LedgerPlace, *, reason: str, cause: str, now: datetime) -> str:
    """Retire a gate on an instance: refuted by a bundle, or superseded by another gate; `cause` names either."""
    _demand_reason(reason)
    chains = ledger.chains()
    if place in chains:
        Causes(ledger=ledger, chains=chains).demand_successor_or_bundle(place, cause, now)
    return _append(ledger, place, LedgerStep.RETIRE, fold.RETIRED, now, reason=reason, cause=cause)


def discharge(ledger: Ledger, bundle: Bundle, finding: Finding, *, amendment: str, reason: str, now: datetime) -> str:
    """Discharge an ACTIVE gate: a landed amendment cites a live PASS that has just been judged again identically."""
    demand_rederivable(bundle, {})
    place, seen = place_of(bundle, finding), bundle_evidence(bundle, finding)
    old = dataclasses.replace(place, instance=finding.instance)  # of entries from before files had places of their own
    if not ledger.read(place) and bundle.id in fold.fold(ledger.read(old)).causes:
        place = old
    standing = fold.fold(ledger.read(place))
    if not amendment:
        raise LedgerError("no-amendment", "discharging needs a landed amendment that cites this bundle")
    if seen.outcome is not Outcome.PASS:
        raise LedgerError("not-passed", f"{place} is {seen.outcome} in bundle {bundle.id[:12]}")
    if not seen.live or seen.overridden or seen.dirty:
        remedy = fold.WATCH if seen.reported else ""
        raise LedgerError("not-live", f"{place} passed without live evidence of a clean tool", remedy=remedy)
    if standing.failed_at is not None and seen.at <= standing.failed_at:
        raise LedgerError("older-than-fail", "the PASS is not later than the last FAIL")
    if standing.status is fold.ACTIVE and seen.contract_digest != standing.contract_digest:
        raise LedgerError("contract-changed", f"{place} is live under another contract than bundle {bundle.id[:12]}'s")
    shown = {"evidence_at": utc(seen.at), "outcome": seen.outcome}
    return _append(ledger, place, LedgerStep.DISCHARGE, fold.DISCHARGED, now, reason=reason, cause=amendment, **shown)


def _append(ledger: Ledger, place: LedgerPlace, step: LedgerStep, after: Status, now: datetime, **more: object) -> str:
    def decide(entries: Entries) -> Sequence[LedgerEntry]:
        standing = fold.fold(entries)
        if standing.status is after and entries[standing.heads[0]].cause == more["cause"]:
            return ()
        if standing.diverged:
            raise LedgerError("diverged", f"{place} has two newest entries")
        entry = _next(place, standing, step, after, now, contract_digest=standing.contract_digest, **more)
        if (refused := illegal(entry, entries, standing)) is not None:
            raise refused
        return (entry,)

    appended = ledger.append(place, decide)
    return appended[0] if appended else fold.fold(ledger.read(place)).heads[0]


def _demand_reason(reason: str) -> None:
    if len(reason.strip()) < SHORTEST_REASON:
        raise LedgerError("no-reason", f"a reason of at least {SHORTEST_REASON} letters is needed")


def recorded_contracts(ledger: Ledger) -> dict[tuple[str, str], frozenset[str]]:
    """Return the digests that the ledger has on record for each contract's id and version: of its content and file."""
    chains = ledger.chains()
    known = {entry.contract_digest for entries in chains.values() for entry in entries.values()}
    causes = Causes(ledger=ledger, chains=chains)
    found: dict[tuple[str, str], frozenset[str]] = {}
    for bundle, one in causes.stated.items():
        ref, file = one.contract, causes.folders[bundle[:ID_SHOWN]] / manifest.CONTRACT_YAML
        if ref.whole in known and not one.overridden:
            written = {digest_regular(file)} if is_file(file) else set[str]()
            found[ref.id, ref.version] = frozenset({ref.whole, *written})
    return found
