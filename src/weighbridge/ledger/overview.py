"""Where every gate stands now: computed from ledger, bundles and contracts when it is shown, and never stored."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from graphlib import TopologicalSorter
from typing import Final, TypeAlias

from weighbridge.contract.checks import looser
from weighbridge.contract.resolved import COLLECTED, JUDGED
from weighbridge.core import STATUS_ORDER, Contract, GateDecl, LimitsError, WeighbridgeError, dumps, grouped, plain
from weighbridge.core.frozen import dataclass, replace
from weighbridge.evidence.statement import DAY_S, moment
from weighbridge.gates import KINDS
from weighbridge.ledger import fold
from weighbridge.ledger.causes import Causes, Shown
from weighbridge.ledger.fold import Entries, LedgerPlace, LedgerStep, Standing
from weighbridge.ledger.store import Ledger

UNVERIFIED: Final = "UNVERIFIED"
UNDECLARED: Final = "none"
Contracts: TypeAlias = Mapping[str, Contract]
ORDER: Final = (UNVERIFIED, UNDECLARED, *map(str, STATUS_ORDER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Where one gate stands on one instance, why it is UNVERIFIED or STALE, or `unmeant` for what was judged last."""

    place: LedgerPlace
    entries: Entries
    standing: Standing
    unverified: str = ""
    stale: tuple[str, ...] = ()
    unmeant: str = ""
    reported: bool = False  # whether no witness saw the run or trace that its status stands on

    @property
    def status(self) -> str:
        """Return its status, UNVERIFIED where it does not follow from its evidence."""
        return UNVERIFIED if self.unverified else str(self.standing.status or UNDECLARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Where a gate stands; without an instance it was never recorded. `waits_for` is what it depends on in the end."""

    contract: str
    gate: str
    instances: tuple[Instance, ...]
    binds: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """Return the lowest status of its instances."""
        return min((one.status for one in self.instances), key=ORDER.index, default=UNDECLARED)

    @property
    def reported(self) -> bool:
        """Return whether no witness saw what it was passed on, wherever it stands as low."""
        return bool(self.instances) and all(one.reported for one in self.instances if one.status == self.status)

    @property
    def stale(self) -> tuple[str, ...]:
        """Return why it is STALE, each reason once."""
        return tuple(dict.fromkeys(why for one in self.instances for why in one.stale))

    @property
    def diverged(self) -> bool:
        """Return whether entries of an instance are each the newest."""
        return any(one.standing.diverged for one in self.instances)

    @property
    def sound(self) -> bool:
        """Return whether its status stands as it is: neither STALE nor DIVERGED."""
        return not self.stale and not self.diverged

    @property
    def holds(self) -> bool:
        """Return whether what depends on it may rest on it: shown on live evidence that is still current."""
        return self.sound and self.status in (fold.ACTIVE, fold.DISCHARGED)


def overview(ledger: Ledger, contracts: Contracts, now: datetime, *, as_of: bool = False) -> tuple[Gate, ...]:
    """Return every gate of every contract that the ledger knows; `as_of` leaves out what was recorded after `now`."""
    chains = ledger.chains()
    causes = Causes(ledger=ledger, chains=chains)
    found: dict[tuple[str, str], list[Instance]] = {}
    left_out = tuple(causes.left_out(now))
    for place, entries in chains.items():
        known = {key: one for key, one in entries.items() if not as_of or moment(one.recorded_at) <= now}
        if known and not fold.declared_alone(place, chains):
            at = _stood(place, known, causes, contracts.get(place.contract), now)
            unread = ((name, one.what) for name, one in causes.unread.items() if one.what not in at.unverified)
            doubts = [f"bundles/{name} cannot be read: {what}" for name, what in unread]
            doubts += [f"{why.what}: {why.remedy}" for at_, _, why in left_out if at_ == place]
            found.setdefault((place.contract, place.gate), []).append(replace(at, stale=(*at.stale, *doubts)))
    known_here = {contract for contract, _ in found} & contracts.keys()
    declared = {(name, gate.id): gate for name in known_here for gate in contracts[name].gates}
    keys = sorted({*found, *declared})
    gates = {key: Gate(contract=key[0], gate=key[1], instances=tuple(found.get(key, ()))) for key in keys}
    needs = {key: [(key[0], name) for name in gate.depends_on] for key, gate in declared.items()}
    for key in TopologicalSorter(needs).static_order():  # what a gate depends on comes before it
        roots = [gates[one].waits_for or (() if gates[one].holds else (one[1],)) for one in needs[key]]
        waits_for = tuple(dict.fromkeys(root for each in roots for root in each))
        gates[key] = replace(gates[key], binds=declared[key].binds, waits_for=waits_for)
    return tuple(gates.values())


def _stood(place: LedgerPlace, entries: Entries, causes: Causes, contract: Contract | None, now: datetime) -> Instance:
    gate = next((one for one in contract.gates if one.id == place.gate), None) if contract else None
    fact = causes.unmeant(place, gate, now) if gate and gate.when else None
    unmeant = f"{fact.get('fact')} = {fact.get('found')}, meant for {fact.get('needed')}" if fact is not None else ""
    at = Instance(place=place, entries=entries, standing=fold.fold(entries), unmeant=unmeant)
    for _, refused in causes.refuted(entries, stands_on(entries, at.standing.heads), now):
        return replace(at, unverified=f"{refused.code} {refused.what}")
    if at.standing.status not in (fold.PARTIAL, fold.ACTIVE, fold.DISCHARGED):
        return at
    try:
        shown = causes.shown(at.standing.bundle)
        newest = causes.newest(place, now) if shown.known_as(place) in shown.facts else None
    except WeighbridgeError as refused:
        return replace(at, unverified=f"{refused.code} {refused.what}")
    doubts = tuple(stale(at, shown, newest or shown, contract, now))
    return replace(at, stale=doubts, reported=shown.evidence[shown.known_as(place)].reported)


def stands_on(entries: Entries, heads: Sequence[str]) -> Iterator[str]:
    """Yield the entries that a status stands on: the newest, and under a reconciled or DISCHARGED one its parents."""
    waiting, seen = list(heads), set[str]()
    while waiting:
        head = waiting.pop()
        if head in entries and head not in seen:
            seen.add(head)
            yield head
            joined = entries[head].step is LedgerStep.RECONCILE or entries[head].after is fold.DISCHARGED
            waiting += entries[head].parents if joined else ()


def stale(at: Instance, shown: Shown, newest: Shown, contract: Contract | None, now: datetime) -> Iterator[str]:
    """Yield why an instance is STALE: what changed since its bundle, and its age; `newest` may have moved nothing."""
    place, standing = at.place, at.standing
    old = shown.contract.gate(place.gate)
    new = next((gate for gate in contract.gates if gate.id == place.gate), None) if contract else None
    if contract is None:
        yield f"its contract {place.contract} is not in contracts/, or cannot be used"
    elif new is None:
        yield "the contract no longer has this gate"
    else:
        yield from _changed(old, new, shown.contract, contract)
    here = KINDS[old.kind].version if old.kind in KINDS else None
    if standing.kind_version != here:
        yield f"kind changed: judged by {old.kind}/{standing.kind_version}, here it is {here or 'not known'}"
    was, latest = (one.facts.get(one.known_as(place), {}) for one in (shown, newest))
    for name in old.stale_on:
        if was.get(name) != latest.get(name):
            yield f"{name} changed: was {was.get(name, 'not known')}, newer evidence has {latest.get(name, 'none')}"
    limit = (new or old).max_age_days
    days = (now - standing.evidence_at).total_seconds() / DAY_S if standing.evidence_at else 0.0
    if limit is not None and days > limit:
        yield f"{days:.1f} days old, at most {limit:g}"


def _changed(old: GateDecl, new: GateDecl, before: Contract, after: Contract) -> Iterator[str]:
    was, now = plain(old), plain(new)
    differ = [key for key in {**was, **now} if dumps(was.get(key)) != dumps(now.get(key))]
    names = {*old.subjects.values(), *new.subjects.values()}
    subjects = [f"subject {name}" for name in sorted(names) if before.subjects.get(name) != after.subjects.get(name)]
    collected = [*(key for key in COLLECTED if key in differ), *subjects]
    judged = [{"limits": "with", "max_age_days": "max_age"}.get(key, key) for key in JUDGED if key in differ]
    if collected:
        yield f"collect part changed: {', '.join(collected)}"
    if judged:
        yield f"judge part changed: {', '.join(judged)}"
    with contextlib.suppress(LimitsError):  # limits of another version of the kind, which is reported
        if loosened := [what for _, what in looser(old, new)]:
            yield f"loosened: {'; '.join(loosened)}"


def tally(gates: Sequence[Gate]) -> dict[str, int]:
    """Count gates by status, the highest first."""
    counts = Counter(gate.status for gate in gates)
    return {status: counts[status] for status in reversed(ORDER) if counts[status]}


def discharged(gates: Sequence[Gate]) -> tuple[int, int]:
    """Return how many gates are DISCHARGED on evidence that still holds, of how many that are not RETIRED."""
    earned = [gate for gate in gates if gate.sound and gate.status == fold.DISCHARGED]
    return len(earned), sum(gate.status != fold.RETIRED for gate in gates)


def criteria(gates: Sequence[Gate]) -> dict[str, tuple[Gate, ...]]:
    """Return the gates of each acceptance criterion that one binds, the lowest first: it stands where that stands."""
    lowest_first = sorted(gates, key=lambda one: ORDER.index(one.status))
    found = grouped((name, gate) for gate in lowest_first for name in gate.binds)
    return {name: tuple(members) for name, members in sorted(found.items())}


def blockers(gates: Sequence[Gate]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return, for each gate that others wait for in the end, who waits for it."""
    found = grouped(((gate.contract, root), gate.gate) for gate in gates for root in gate.waits_for)
    return {root: tuple(names) for root, names in sorted(found.items())}
