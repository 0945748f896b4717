"""When a gate is due is said in its contract, read by a watch, and part of nothing that is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from weighbridge.contract.load import load_contract
from weighbridge.contract.resolved import contract_from_json, contract_to_json, digests
from weighbridge.core import ContractError, model


def loaded(folder: Path, due: str, kind: str = "learning-progress", role: str = "run") -> model.Contract:
    of = "checkpoint" if role == "candidate" else "run"
    (folder / "c.yaml").write_text(
        "weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: t\nowner: o\n"
        f"subjects:\n  it: {{kind: {of}}}\ngates:\n"
        f"  - {{id: A, title: a, kind: {kind}, subjects: {{{role}: it}}{due}}}\n"
    )
    return load_contract(folder / "c.yaml").contract


@pytest.mark.parametrize(("text", "due"), [("{step: 200}", {"step": 200}), ("{after_s: 0.5}", {"after_s": 0.5})])
def test_a_gate_says_when_it_is_due(tmp_path: Path, text: str, due: dict[str, float]) -> None:
    contract = loaded(tmp_path, f", due: {text}")
    assert contract.gates[0].due == due
    assert contract_from_json(contract_to_json(contract)) == contract


def test_when_it_is_due_moves_nothing_that_is_measured_or_judged(tmp_path: Path) -> None:
    without, due = loaded(tmp_path, ""), loaded(tmp_path, ", due: {step: 7}")
    assert "due" not in contract_to_json(without)["contract"]["gates"][0]
    one, other = digests(without), digests(due)
    assert (one.collect, one.judge) == (other.collect, other.judge)
    assert one.whole != other.whole


@pytest.mark.parametrize(
    ("due", "kind", "role", "says"),
    [
        ("{step: 7, after_s: 3}", "learning-progress", "run", "needless-due it names a step and a time"),
        ("{step: 7}", "checkpoint-integrity", "candidate", "needless-due checkpoint-integrity judges no run"),
        ("{step: -1}", "learning-progress", "run", "out-of-bounds"),
        ("{epoch: 3}", "learning-progress", "run", "bad-form"),
        ("7", "learning-progress", "run", "wrong-type"),
    ],
)
def test_a_due_that_says_nothing_is_refused(tmp_path: Path, due: str, kind: str, role: str, says: str) -> None:
    with pytest.raises(ContractError) as raised:
        loaded(tmp_path, f", due: {due}", kind, role)
    assert says in "\n".join(str(one) for one in raised.value.problems)
