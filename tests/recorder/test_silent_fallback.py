"""The story that the device room is for: a loop that falls back, a trainer that refuses, both told from real runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from weighbridge.contract.load import load_contract
from weighbridge.core.canonical import loads
from weighbridge.core.exit_code import exit_code
from weighbridge.core.model import Finding, GateDecl, Measurement, Outcome
from weighbridge.evaluation.runner import lay_canary
from weighbridge.evidence.codec import decode_measured, encode_measured
from weighbridge.judging.judging import judge_gate
from weighbridge.judging.requests import DEFAULT, all_requests
from weighbridge.verifiers import VERIFIERS, command_outcome, device_evidence
from weighbridge.verifiers.verifier import Verifier
from weighbridge.views.command import CommandView
from weighbridge.views.run import open_run

torch = pytest.importorskip("torch")

from tests.recorder.training import SHAPE, training  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402

CONTRACT = """
weighbridge: contract/v0
id: device
version: 1.0.0
title: A run that asked for a device did its work there
owner: training
subjects:
  run: {{kind: run}}
  refusal: {{kind: command}}
gates:
  - id: REFUSES
    title: The trainer refuses
    kind: device-refusal
    subjects: {{command: refusal}}
    measure: {{timeout_s: 60}}
    with: {{exit: nonzero, within_s: 59, names: [DEVICE_UNAVAILABLE], leaves_no: [run-directory]}}
    severity: required
  - id: STAYS
    title: The run stayed where it asked to be
    kind: no-silent-cpu-fallback
    subjects: {{run: run}}
    with: {{requested: {requested}}}
    severity: required
"""

REFUSES = """
import os, sys
if not os.environ["CUDA_VISIBLE_DEVICES"]:
    sys.exit("error: DEVICE_UNAVAILABLE: cuda was asked for and is not there")
"""
FALLS_BACK = """
import pathlib
run = pathlib.Path("runs/a")
run.mkdir(parents=True)
(run / "run.json").write_text("{}")
"""

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens where there is no CUDA")


def recorded(requested: str) -> None:
    """Train as `cuda if available else cpu` does, and record what was asked for."""
    work = training()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    work.model.to(device)
    with Recorder(
        "runs/a", work.model, work.optimizer, loader=work.loader, requested_device=requested, probe_every=2, **SHAPE
    ) as rec:
        work.run(rec.loader, rec.step)


def findings(requested: str, trainer: str) -> Sequence[Finding]:
    recorded(requested)
    Path("train.py").write_text(trainer)
    Path("contract.yaml").write_text(CONTRACT.format(requested=requested))
    refuses, stays = load_contract("contract.yaml").contract.gates
    command = CommandView((sys.executable, "train.py"))
    return finding(refuses, command_outcome.VERIFIER, command), finding(
        stays, device_evidence.VERIFIER, open_run("runs/a")
    )


def finding(gate: GateDecl, verifier: Verifier, view: Any) -> Finding:
    """Measure, lay the canary, and judge what the sealed bytes decode to, with all trials."""
    sealed, canaries = {}, {}
    for item in all_requests(gate, DEFAULT):
        by = verifier if item.quantity == verifier.quantity else VERIFIERS[item.quantity, verifier.kinds]
        options = loads(item.options)
        measured = by.measure((view,), options)
        assert isinstance(measured, Measurement)
        canaries[item.key] = lay_canary(by, (view,), options, measured)
        sealed[item.key] = decode_measured(*encode_measured(measured))
    return judge_gate(gate, DEFAULT, sealed, canaries)


@pytest.mark.usefixtures("workplace")
def test_a_loop_that_asked_for_cuda_and_fell_back_fails_on_every_host() -> None:
    refuses, stays = findings("cuda", FALLS_BACK)
    assert (stays.verdict.outcome, stays.verdict.code) == (Outcome.FAIL, "resolved")
    assert [one.code for one in refuses.verdict.offences] == ["exits-zero", "says-nothing", "left-behind"]
    assert exit_code([("", refuses), ("", stays)]) == 1


@pytest.mark.usefixtures("workplace")
def test_a_trainer_that_refuses_and_a_run_that_asked_for_the_cpu_pass_with_all_trials_caught() -> None:
    refuses, stays = findings("cpu", REFUSES)
    assert (refuses.verdict.outcome, stays.verdict.outcome) == (Outcome.PASS, Outcome.PASS)
    assert {trial.kind for trial in (*refuses.trials, *stays.trials)} == {"mutation", "nothing-left", "canary"}
    assert exit_code([("", refuses), ("", stays)]) == 0
