"""`weighbridge status`: show the status of every gate, computed from the ledger."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json, tell
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.errors import UsageError
from weighbridge.ledger.fold import Place, Standing, lowest, stale
from weighbridge.ledger.store import Ledger
from weighbridge.limits import nearest
from weighbridge.model import Json, Status
from weighbridge.report import STATUS_WORDS
from weighbridge.spec.tally import standings, tally

LEDGER = click.option(
    "--ledger", "folder", type=click.Path(path_type=Path), default=Path("evidence/ledger"), show_default=True,
    help="The folder of the ledger.",
)  # fmt: skip


@click.group(
    "status",
    short_help="Show the status of every gate.",
    invoke_without_command=True,
    epilog="\b\nExample: weighbridge status\nExample: weighbridge status why GATE-RUN-004",
)
@LEDGER
@as_json
@click.pass_context
def command(context: click.Context, folder: Path, *, as_json: bool) -> None:
    """Show the status of every gate in the ledger, and how many gates have each status."""
    context.obj = folder
    if context.invoked_subcommand is not None:
        return
    found = standings(Ledger(folder))
    why_stale = staleness(found)
    if as_json:
        print_json([_json(place, standing, why_stale[place]) for place, standing in found.items()])
        return
    tell(_table(found, why_stale))


@command.command(
    "why", short_help="Show how a gate came to its status.", epilog="\b\nExample: weighbridge status why GATE-RUN-004"
)
@click.argument("gate")
@click.pass_obj
def why(folder: Path, gate: str) -> None:
    """Show every status change of GATE, oldest first, with its cause."""
    ledger = Ledger(folder)
    places = ledger.places()
    found = {place: ledger.read(place) for place in places if place.gate == gate}
    if not found:
        known = {place.gate for place in places}
        raise UsageError("unknown-gate", f"no gate {gate!r} is in the ledger{nearest(gate, known)}", where=str(folder))
    for place, entries in found.items():
        tell([click.style(str(place), bold=True)])
        for entry in sorted(entries.values(), key=lambda entry: entry.seq):
            at, move = entry.evidence_at or entry.recorded_at, f"{_word(entry.before)} -> {_word(entry.after)}"
            tell([f"  {entry.seq:>4}  {at}  {move}  {entry.step} by {entry.cause[:12]}"])


def staleness(found: Mapping[Place, Standing]) -> dict[Place, tuple[str, ...]]:
    """Return why each standing is STALE: computed when shown, from the contracts that are here now, never stored."""
    now, contracts = dt.datetime.now(dt.UTC), contracts_here() if found else {}
    why: dict[Place, tuple[str, ...]] = dict.fromkeys(found, ())
    for place, standing in found.items():
        loaded = contracts.get(place.contract)
        if loaded is not None:
            gate = next((gate for gate in loaded.contract.gates if gate.id == place.gate), None)
            why[place] = stale(standing, gate, digests(loaded.contract).whole, now)
    return why


def _table(found: Mapping[Place, Standing], why_stale: Mapping[Place, tuple[str, ...]]) -> Iterator[str]:
    if not found:
        yield "no gate is declared yet: `weighbridge verify --record` declares a contract's gates"
        return
    gates: defaultdict[tuple[str, str], list[tuple[Place, Standing]]] = defaultdict(list)
    for place, standing in found.items():
        gates[place.contract, place.gate].append((place, standing))
    wide = [max(map(len, words)) for words in zip(*gates, strict=True)]
    for (contract, gate), members in sorted(gates.items()):
        reasons = sorted({why for place, _ in members for why in why_stale[place]})
        named = [(place.instance, standing) for place, standing in members if place.instance != "default"]
        remarks = (
            ", ".join(f"{name}: {_word(standing.status)}" for name, standing in named),
            "DIVERGED" if any(standing.diverged for _, standing in members) else "",
            f"STALE: {', '.join(reasons)}" if reasons else "",
        )
        status = _word(lowest(standing.status for _, standing in members if standing.status))
        yield f"{contract:<{wide[0]}}  {gate:<{wide[1]}}  {status:<12}  {' '.join(filter(None, remarks))}".rstrip()
    counted = tally(found)
    told = ", ".join(f"{count} {_word(status)}" for status, count in counted.counts.items() if count)
    yield f"gates: {counted.gates}, of which {told}"


def _word(status: Status | None) -> str:
    return STATUS_WORDS[status] if status else "none"


def _json(place: Place, standing: Standing, why_stale: tuple[str, ...]) -> dict[str, Json]:
    at = standing.evidence_at.astimezone(dt.UTC).isoformat() if standing.evidence_at else ""
    return {
        "contract": place.contract, "gate": place.gate, "instance": place.instance,
        "status": str(standing.status), "diverged": standing.diverged, "evidence_at": at, "seq": standing.seq,
        "stale": why_stale,
    }  # fmt: skip
