"""Acceptance criteria: where each stands, by the gates that the contracts bind to it.

Of each contract counts the version of the newest evidence at a time, so that a landed section is checked as it landed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from operator import itemgetter

from weighbridge.core.errors import WeighbridgeError
from weighbridge.core.model import Contract
from weighbridge.evidence.bundle import FOLDER
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.spec.citations import Bundles, stored
from weighbridge.spec.tally import Stood

Members = list[tuple[LedgerPlace, Stood]]


def criteria(stood: Mapping[LedgerPlace, Stood], bundles: Bundles, at: str) -> dict[str, Members]:
    """Return the places of the gates of each criterion; one that a gate outside the ledger binds, too, is left out."""
    names = {place.contract for place in stood}
    contracts = [contract for name in sorted(names) if (contract := _newest(name, bundles, at))]
    found: dict[str, Members] = {}
    nowhere: set[str] = set()
    for contract in contracts:
        for gate in contract.gates:
            place = (contract.id, gate.id)
            mine = [(key, one) for key, one in stood.items() if (key.contract, key.gate) == place]
            for name in gate.binds:
                found.setdefault(name, []).extend(mine)
            nowhere |= set(gate.binds) if not mine else set()
    known = len(contracts) == len(names)
    return {name: members for name, members in found.items() if known and name not in nowhere}


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
        finished = [bundle for bundle in kept if bundle.statement.finished <= at]
        if finished:
            return max(finished, key=lambda bundle: bundle.statement.finished).contract
    return None
