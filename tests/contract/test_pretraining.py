"""The contract `pretraining`: for each of its ids what passes it, and what fails it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.pretraining_runs import PARAMS, SHOWN, bind, run

from weighbridge.contract.load import load_contract
from weighbridge.core.model import Finding, Outcome
from weighbridge.evaluation.verification import VerifyRequest, verify

IDS = (
    *(f"GATE-TRAIN-{number:03d}" for number in range(1, 11)), "GATE-TRAIN-EXHAUST",
    *(f"GATE-GPUTRAIN-{number:03d}" for number in range(1, 7)),
)  # fmt: skip
ELSEWHERE = {"GATE-GPUTRAIN-006-CUDA"}  # needs a device to be judged at all


def judged(gate: str, folder: Path, subjects: dict[str, str]) -> Finding:
    """Return what a gate comes to; no bundle is sealed of it."""
    bound = tuple(f"{name}={path}" for name, path in subjects.items())
    request = VerifyRequest(
        contracts=("builtin:pretraining",), subjects=bound, params=PARAMS, gates=(gate,), evidence=None,
        ledger=folder / "ledger",
    )  # fmt: skip
    (result,) = verify(request, lambda _text: None)
    (found,) = result.evaluation.findings
    return found


@pytest.mark.slow
@pytest.mark.parametrize("gate", SHOWN)
def test_every_gate_passes_the_run_that_it_is_meant_for_and_not_the_one_that_it_is_against(
    gate: str, tmp_path: Path
) -> None:
    good, bad, code = SHOWN[gate]
    verdict = judged(gate, tmp_path / "good", bind(tmp_path / "good", good)).verdict
    assert (verdict.outcome, verdict.code) == (Outcome.PASS, "pass")
    verdict = judged(gate, tmp_path / "bad", bind(tmp_path / "bad", bad)).verdict
    assert (verdict.outcome, code in {verdict.code, *(one.code for one in verdict.offences)}) == (Outcome.FAIL, True)


def test_a_run_of_another_regime_is_not_judged_by_the_regime_asked_for(tmp_path: Path) -> None:
    subjects = bind(tmp_path, {"run": run(regime="finetune")})
    verdict = judged("GATE-TRAIN-009-REGIME", tmp_path, subjects).verdict
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "where-false")


def test_each_published_id_has_a_gate_and_each_gate_is_shown() -> None:
    gates = {gate.id for gate in load_contract("builtin:pretraining").contract.gates}
    assert set(IDS) <= gates
    assert SHOWN.keys() == gates - ELSEWHERE
