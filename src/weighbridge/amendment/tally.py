"""The generated tally: so many of so many gates by status, folded from the ledger. Never typed, never stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.canonical import dumps, sha256
from weighbridge.ledger.fold import Place, Standing, fold, lowest
from weighbridge.ledger.store import Ledger
from weighbridge.model import STATUS_ORDER, Status

BEGIN, END = "<!-- weighbridge:tally begin", "<!-- weighbridge:tally end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many gates stand where; `heads` is the digest of the ledger's newest entries."""

    counts: Mapping[Status, int]
    gates: int
    instances: int
    diverged: tuple[Place, ...]
    heads: str


def standings(ledger: Ledger) -> dict[Place, Standing]:
    """Fold every place of a ledger."""
    return {place: fold(ledger.read(place)) for place in ledger.places()}


def tally(found: Mapping[Place, Standing]) -> Tally:
    """Count gates by status; a gate stands where its lowest instance stands."""
    by_gate: dict[tuple[str, str], list[Status]] = {}
    for place, standing in found.items():
        if standing.status is not None:
            by_gate.setdefault((place.contract, place.gate), []).append(standing.status)
    counts = Counter(lowest(statuses) for statuses in by_gate.values())
    heads: dict[str, list[str]] = {str(place): list(standing.heads) for place, standing in found.items()}
    return Tally(
        counts={status: counts[status] for status in reversed(STATUS_ORDER)},
        gates=len(by_gate),
        instances=sum(map(len, by_gate.values())),
        diverged=tuple(sorted(place for place, standing in found.items() if standing.diverged)),
        heads=sha256(dumps(heads)),
    )


def markdown(count: Tally) -> str:
    """Write a tally as the block that a spec carries; regenerating it from the same ledger gives the same bytes."""
    lines = [f"{BEGIN} heads={count.heads} -->", "| status | gates |", "|---|---|"]
    lines += [f"| {status} | {number} of {count.gates} |" for status, number in count.counts.items()]
    lines += [
        "",
        f"{count.gates} gates on {count.instances} instances; a gate stands where its lowest instance stands.",
    ]
    lines += [f"DIVERGED, counted as the lower: {', '.join(map(str, count.diverged))}."] if count.diverged else []
    return "\n".join((*lines, END, ""))
