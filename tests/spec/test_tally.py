from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.ledgers import PLACE, recorded, sealed

from weighbridge.core.errors import AmendmentError
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, DRAFT, PARTIAL, REGRESSED, RETIRED, LedgerPlace, Standing
from weighbridge.ledger.store import Ledger
from weighbridge.spec.tally import Stood, block, discharged, history, tally


def place(gate: str, instance: str = "default") -> LedgerPlace:
    return LedgerPlace(contract="c", gate=gate, instance=instance)


def stood(found: dict[LedgerPlace, Standing]) -> dict[LedgerPlace, Stood]:
    return {place: Stood(standing=standing, past=frozenset()) for place, standing in found.items()}


FOUND = {
    place("G-1"): Standing(status=ACTIVE, heads=("a",)),
    place("G-2", "falcon"): Standing(status=ACTIVE, heads=("b",)),
    place("G-2", "heron"): Standing(status=REGRESSED, heads=("c", "d"), diverged=True),
    place("G-3"): Standing(status=PARTIAL, heads=("e",)),
    place("G-4"): Standing(status=DRAFT, heads=("f",)),
}


def test_a_gate_counts_once_where_its_lowest_instance_stands() -> None:
    count = tally(FOUND)
    assert {status: number for status, number in count.counts.items() if number} == {
        ACTIVE: 1,
        PARTIAL: 1,
        DRAFT: 1,
        REGRESSED: 1,
    }
    assert (count.gates, count.instances) == (4, 5)
    assert sum(count.counts.values()) == count.gates


def test_a_tally_is_a_block_that_adds_up() -> None:
    lines = block(stood(FOUND)).splitlines()
    assert lines[0].startswith("<!-- weighbridge:tally begin heads=")
    assert lines[1:10] == [
        "| status | gates |",
        "|---|---|",
        "| DISCHARGED | 0 of 4 |",
        "| ACTIVE_WITH_LIVE_EVIDENCE | 1 of 4 |",
        "| PARTIAL_ALGORITHM_LEVEL | 1 of 4 |",
        "| DRAFT | 1 of 4 |",
        "| REGRESSED | 1 of 4 |",
        "| RETIRED | 0 of 4 |",
        "",
    ]
    assert lines[-3] == "Discharged: 0 of 4 gates that are not RETIRED (0%)."
    assert lines[-2] == "DIVERGED, counted as the lower: c/G-2[heron]."
    assert lines[-1] == "<!-- weighbridge:tally end -->"


def test_what_is_retired_is_no_gate_that_may_be_discharged() -> None:
    more = {place("G-5"): Standing(status=DISCHARGED), place("G-6"): Standing(status=RETIRED)}
    lines = block(stood(FOUND | more)).splitlines()
    assert "Discharged: 1 of 5 gates that are not RETIRED (20%)." in lines
    assert "| RETIRED | 1 of 6 |" in lines


def test_the_same_ledger_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    ledger, copy = Ledger(tmp_path / "a"), Ledger(tmp_path / "b")
    recorded(ledger, sealed(tmp_path, hours=1))
    shutil.copytree(ledger.root, copy.root)
    assert block(history(ledger.chains())) == block(history(copy.chains()))
    recorded(copy, sealed(tmp_path, bad=True, hours=2))
    assert block(history(ledger.chains())) != block(history(copy.chains()))


def test_a_ledger_is_folded_as_it_was_when_an_entry_was_the_newest(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a")
    recorded(ledger, sealed(tmp_path, hours=1))
    then = history(ledger.chains())
    heads = {str(place): one.standing.heads for place, one in then.items()}
    recorded(ledger, sealed(tmp_path, bad=True, hours=2))
    assert history(ledger.chains())[PLACE].standing.status is REGRESSED
    assert history(ledger.chains(), heads) == then
    assert history(ledger.chains(), {}) == {}
    assert discharged(then, [str(PLACE)])[PLACE].standing.status is DISCHARGED
    for gone in ({str(PLACE): ("0" * 64,)}, {"c/G[x]": ("0" * 64,)}):
        with pytest.raises(AmendmentError, match="missing-parent the ledger has no entry"):
            history(ledger.chains(), gone)
