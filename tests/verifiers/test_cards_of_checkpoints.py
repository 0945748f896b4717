"""The cards of the checkpoint gates and of the checkpoint instruments hold, example by example."""

from __future__ import annotations

import pytest

from weighbridge.card_checks import check_gate_card, check_verifier_card
from weighbridge.cards import GateCard, VerifierCard, read_card
from weighbridge.data import data_path


@pytest.mark.parametrize(
    "kind",
    [
        "dtype-preservation",
        "byte-identity",
        "value-preservation",
        "label-plausibility",
        "checkpoint-integrity",
        "tensor-statistics",
        "tensor-coverage",
        "config-agreement",
    ],
)
def test_every_example_of_the_gate_card_comes_out_as_told(kind: str) -> None:
    checks = list(check_gate_card(read_card(GateCard, data_path("gates") / f"{kind}.yaml")))
    assert [(check.name, check.wrong) for check in checks if check.wrong] == []
    assert len(checks) > 5


@pytest.mark.parametrize(
    "card",
    [
        "tensor_values",
        "checkpoint_facts",
        "tensor_bits",
        "tensor_health",
        "file_structure",
        "tensor_moments",
        "model_config",
    ],
)
def test_every_specimen_measures_as_told(card: str) -> None:
    folder = data_path("verifiers")
    checks = list(check_verifier_card(read_card(VerifierCard, folder / f"{card}.yaml"), folder / "specimens"))
    assert [(check.name, check.wrong, check.skipped) for check in checks if check.wrong or check.skipped] == []
    assert len(checks) >= 2
