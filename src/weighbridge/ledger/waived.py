"""Hold waivers against what there is: the instances that are bound here, or that a ledger knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from weighbridge.binding import Bound, instances
from weighbridge.lanes import known_contracts
from weighbridge.ledger.fold import Place
from weighbridge.ledger.store import Ledger
from weighbridge.model import Contract
from weighbridge.storage.local_files import is_folder
from weighbridge.waivers import Waivers


def demand_known(waivers: Waivers, judged: Iterable[tuple[Contract, Sequence[Bound]]], folder: Path) -> None:
    """Demand that waivers are of what there is: instances that are bound or in the ledger, in other contracts here any.

    Raises:
        ContractError: `waives-nothing`.
    """
    places = {Place(contract=one.contract, gate=one.gate, instance=one.instance) for one in waivers.given}
    recorded = {place for place in places if is_folder(Ledger(folder).folder(place))}
    known: dict[str, dict[str, Collection[str] | None]] = {
        contract.id: {
            gate.id: {*instances(gate, subjects), *(place.instance for place in recorded if place.gate == gate.id)}
            for gate in contract.gates
        }
        for contract, subjects in judged
    }
    others = known_contracts() if {place.contract for place in places} - known.keys() else {}
    waivers.demand_known({name: dict.fromkeys(gate.id for gate in one.gates) for name, one in others.items()} | known)
