"""The gates over runs keep their promises: every card example, every falsifier, every code."""

from __future__ import annotations

from pathlib import Path

import pytest

from weighbridge.card_checks import check_gate_card
from weighbridge.cards import GateCard, read_card
from weighbridge.gates import KINDS

GATES = ("wall-time-budget", "step-metrics", "corpus-wrap-around")
CARDS = Path(__file__).parents[2] / "gates"


@pytest.mark.parametrize("kind", GATES)
def test_every_example_of_the_card_comes_out_as_told(kind: str) -> None:
    checks = list(check_gate_card(read_card(GateCard, CARDS / f"{kind}.yaml")))
    assert len(checks) > len(KINDS[kind].codes)
    assert [check for check in checks if check.wrong] == []
