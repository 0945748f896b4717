"""How many gates stand where: folded from a ledger as it is, or as it was when a section landed."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter

from weighbridge.core import STATUS_ORDER, AmendmentError, Contract, Finding, Status, WeighbridgeError, dumps, sha256
from weighbridge.core.frozen import dataclass, replace
from weighbridge.evidence.bundle import FOLDER, Bundle
from weighbridge.ledger import fold
from weighbridge.ledger.causes import place_of
from weighbridge.ledger.fold import DISCHARGED, RETIRED, Chains, Entries, LedgerEntry, LedgerPlace, Standing
from weighbridge.spec.citations import Bundles, stored

BEGIN, END = "<!-- weighbridge:tally begin", "<!-- weighbridge:tally end -->"
TALLY = re.compile(f"{BEGIN}(?:(?!{BEGIN}).)*?{END}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many gates stand where; `heads` is the digest of the ledger's newest entries."""

    counts: Mapping[Status, int]
    gates: int
    instances: int
    diverged: tuple[LedgerPlace, ...]
    heads: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """Where one place stands at a moment, and every status that it had until then."""

    standing: Standing
    past: frozenset[Status]


def history(chains: Chains, heads: Mapping[str, Iterable[str]] | None = None) -> dict[LedgerPlace, Stood]:
    """Fold every place of a ledger as it is, or as it was when these entries were the newest, by place."""
    found: dict[LedgerPlace, Stood] = {}
    for place, known in chains.items():
        now = {} if heads is None and fold.declared_alone(place, chains) else known
        entries = now if heads is None else _until(place, known, heads.get(str(place), ()))
        if entries:
            found[place] = Stood(standing=fold.fold(entries), past=frozenset(one.after for one in entries.values()))
    if heads is not None and (gone := heads.keys() - set(map(str, found))):
        raise AmendmentError("missing-parent", f"the ledger has no entry of {min(gone)}, which a landed section names")
    return found


def _until(place: LedgerPlace, entries: Entries, heads: Iterable[str]) -> dict[str, LedgerEntry]:
    kept: dict[str, LedgerEntry] = {}
    waiting = list(heads)
    while waiting:
        digest = waiting.pop()
        if digest not in entries:
            what = f"the ledger has no entry {digest[:12]} of {place}, which a landed section names"
            raise AmendmentError("missing-parent", what, remedy="restore it: entries are only ever added")
        if digest not in kept:
            kept[digest] = entries[digest]
            waiting += entries[digest].parents
    return kept


def place_in(bundle: Bundle, finding: Finding, found: Mapping[LedgerPlace, Stood]) -> LedgerPlace:
    """Return the place of a finding, which older entries that name its bundle call `default`, whatever its files."""
    place = place_of(bundle, finding)
    old = replace(place, instance=finding.instance)
    return old if place not in found and old in found and bundle.id in found[old].standing.causes else place


def discharged(found: Mapping[LedgerPlace, Stood], places: Iterable[str]) -> dict[LedgerPlace, Stood]:
    """Return where every place stands once a section that discharges some of them has landed."""
    after, named = dict(found), {*places}
    for place in (place for place in found if str(place) in named):
        stood = found[place]
        after[place] = Stood(standing=replace(stood.standing, status=DISCHARGED), past=stood.past | {DISCHARGED})
    return after


def tally(found: Mapping[LedgerPlace, Standing]) -> Tally:
    """Count gates by status; a gate stands where its lowest instance stands."""
    by_gate: dict[tuple[str, str], list[Status]] = {}
    for place, standing in found.items():
        if standing.status is not None:
            by_gate.setdefault((place.contract, place.gate), []).append(standing.status)
    counts = Counter(fold.lowest(statuses) for statuses in by_gate.values())
    return Tally(
        counts={status: counts[status] for status in reversed(STATUS_ORDER)},
        gates=len(by_gate),
        instances=sum(map(len, by_gate.values())),
        diverged=tuple(sorted(place for place, standing in found.items() if standing.diverged)),
        heads=sha256(dumps({str(place): list(standing.heads) for place, standing in found.items()})),
    )


def block(found: Mapping[LedgerPlace, Stood]) -> str:
    """Write a tally as the block that a spec carries; regenerating it from the same ledger gives the same bytes."""
    count = tally({place: stood.standing for place, stood in found.items()})
    lines = [f"{BEGIN} heads={count.heads} -->", "| status | gates |", "|---|---|"]
    lines += [f"| {status} | {number} of {count.gates} |" for status, number in count.counts.items()]
    summary = f"{count.gates} gates on {count.instances} instances; a gate stands where its lowest instance stands."
    standing = count.gates - count.counts[RETIRED]
    share = f" ({count.counts[DISCHARGED] / standing:.0%})" if standing else ""
    lines += ["", summary, f"Discharged: {count.counts[DISCHARGED]} of {standing} gates that are not RETIRED{share}."]
    lines += [f"DIVERGED, counted as the lower: {', '.join(map(str, count.diverged))}."] if count.diverged else []
    return "\n".join((*lines, END, ""))


def criteria(stood: Mapping[LedgerPlace, Stood], bundles: Bundles, at: str) -> dict[str, list[tuple[str, Stood]]]:
    """Return where each criterion's gates stand at a time; one that a gate outside the ledger binds is left out."""
    names = {place.contract for place in stood}
    contracts = [contract for name in sorted(names) if (contract := _newest(name, bundles, at))]
    found, nowhere = dict[str, list[tuple[str, Stood]]](), set[str]()
    for contract in contracts:
        for gate in contract.gates:
            mine = [(of.instance, one) for of, one in stood.items() if (of.contract, of.gate) == (contract.id, gate.id)]
            for name in gate.binds:
                found.setdefault(name, []).extend(mine)
            nowhere |= set(gate.binds) if not mine else set()
    return {name: of for name, of in found.items() if len(contracts) == len(names) and name not in nowhere}


def _newest(contract: str, bundles: Bundles, at: str) -> Contract | None:
    """Return a contract as the newest bundle of it that was finished by a time holds it."""
    folders = filter(None, (FOLDER.fullmatch(path.name) for path in stored()))
    named = [one for one in folders if one["contract"] == contract and one["date"] <= at]
    by_date = itemgetter("date")
    for _, same_day in itertools.groupby(sorted(named, key=by_date, reverse=True), key=by_date):
        kept = []
        for one in same_day:
            with contextlib.suppress(WeighbridgeError):  # one that cannot be read is reported where it is cited
                kept.append(bundles.get(one["id"]))
        if finished := [bundle for bundle in kept if bundle.statement.finished <= at]:
            return max(finished, key=lambda bundle: bundle.statement.finished).contract
    return None
