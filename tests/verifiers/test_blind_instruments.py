"""Blind each instrument and weigh what passes: a frozen, half-blind or short-sighted one must let no PASS come out.

The blinded instrument stands in the runner's table of verifiers; everything else is as in `weighbridge verify`. It
lies about how much it looked at, so that its canary, its extent and the judge's trials have to notice.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.verifiers.blinding import ANSWERS, Blinding, columns, events, frozen, of_places, rows, tensors
from tests.verifiers.weighing import CASES, Case, outcome

from weighbridge import runner
from weighbridge.model import Outcome, SubjectKind
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.base import Verifier

Key = tuple[str, tuple[SubjectKind, ...]]

RUN, CHECKPOINT = SubjectKind.RUN, SubjectKind.CHECKPOINT
KEYS: dict[str, Key] = {
    "tensor_pairs": ("tensor_pairs", (CHECKPOINT, CHECKPOINT)),
    "tensor_pairs, widened": ("tensor_pairs", (CHECKPOINT, CHECKPOINT)),
    "facts-checkpoint": ("facts", (CHECKPOINT,)),
    "step_columns": ("step_columns", (RUN,)),
    "step_series": ("step_series", (RUN,)),
    "corpus_progress": ("corpus_progress", (RUN,)),
    "corpus_passes": ("corpus_passes", (RUN,)),
    "device_evidence": ("device_evidence", (RUN,)),
    "facts-run": ("facts", (RUN,)),
    "host": ("host", ()),
    "command_outcome": ("command_outcome", (SubjectKind.COMMAND,)),
    "forward_errors": ("forward_errors", (SubjectKind.MODEL, SubjectKind.MODEL)),
}


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    if request.param == "forward_errors":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return CASES[request.param](tmp_path)


def with_instrument(monkeypatch: pytest.MonkeyPatch, key: Key, instrument: Verifier) -> None:
    monkeypatch.setattr(runner, "VERIFIERS", {**VERIFIERS, key: instrument})


def refused(case: Case, folder: Path) -> bool:
    return outcome(case.weigh(folder))[0] is not Outcome.PASS


def test_every_verifier_is_blinded() -> None:
    assert set(KEYS) == set(CASES)
    assert set(KEYS.values()) == set(VERIFIERS)


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_what_is_weighed_passes_with_instruments_that_see(case: Case, tmp_path: Path) -> None:
    assert outcome(case.weigh(tmp_path)) == (Outcome.PASS, "pass")


# --- Answers and looks that are cut -----------------------------------------------------------------------------------

RECORDS = {"facts-checkpoint", "facts-run", "corpus_progress", "host", "command_outcome"}  # one place each
LOOKS: dict[str, dict[str, Blinding]] = {
    "tensor_pairs": of_places(tensors, "tensor"),
    "tensor_pairs, widened": of_places(tensors, "tensor"),
    "facts-checkpoint": of_places(tensors, "tensor"),
    "step_columns": of_places(rows, "row") | of_places(columns, "column"),
    "step_series": of_places(rows, "row"),
    "corpus_progress": of_places(rows, "row"),
    "corpus_passes": of_places(rows, "row") | of_places(events, "event"),
    "device_evidence": of_places(events, "event"),
    "facts-run": of_places(rows, "row"),
}
BLINDED = [
    (name, how, blinding)
    for name in CASES
    for how, blinding in ({"a constant": frozen} | ({} if name in RECORDS else ANSWERS) | LOOKS.get(name, {})).items()
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "name", "blinding"),
    [(name, name, blinding) for name, _, blinding in BLINDED],
    indirect=["case"],
    ids=[f"{name}-{how}" for name, how, _ in BLINDED],
)
def test_a_blinded_instrument_lets_no_pass_come_out(
    case: Case, name: str, blinding: Blinding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = VERIFIERS[KEYS[name]]
    with_instrument(monkeypatch, KEYS[name], dataclasses.replace(real, measure=blinding(real.measure)))
    assert refused(case, tmp_path)
