"""`weighbridge status`, `evidence verify` and `amend draft` over what `verify --record` left."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli

from weighbridge.core.data import data_path
from weighbridge.evidence.statement import Tool

CONTRACT = (data_path("contracts") / "checkpoint-import.yaml").read_text()


@pytest.fixture
def recorded(cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record a live PASS of a contract that stands in this folder, by an unchanged tool, and give its bundle."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "mine.yaml").write_text(CONTRACT.replace("id: checkpoint-import", "id: mine"))
    for name in ("a", "b"):
        save_file({"w": np.arange(6, dtype=np.float32)}, workplace / f"{name}.safetensors")
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert cli("verify", *bound, "--record").code == 0
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    return bundle


def weaken(workplace: Path) -> None:
    path = workplace / "contracts" / "mine.yaml"
    path.write_text(path.read_text().replace("policy: lossless", "policy: same"))


def test_a_standing_is_shown_by_gate_and_counted(cli: Cli, recorded: Path) -> None:
    assert recorded.is_dir()
    (row, count) = cli("status").lines
    assert row.split() == ["mine", "GATE-IMPORT-001", "live"]
    assert count == "gates: 1, of which 1 live; discharged: 0 of 1"


def test_a_contract_that_changed_since_makes_a_standing_stale_without_moving_it(
    cli: Cli, workplace: Path, recorded: Path
) -> None:
    assert "STALE" not in cli("status").out
    ledger = sorted((workplace / "evidence" / "ledger").rglob("*.json"))
    weaken(workplace)
    (first,) = json.loads(cli("status", "--json").out)["gates"]
    assert (first["status"], first["stale"]) == ("ACTIVE_WITH_LIVE_EVIDENCE", ["judge part changed: with"])
    assert "live          STALE: judge part changed: with" in cli("status").out
    assert sorted((workplace / "evidence" / "ledger").rglob("*.json")) == ledger
    assert recorded.is_dir()


def test_evidence_of_a_contract_that_changed_since_is_not_fresh(cli: Cli, workplace: Path, recorded: Path) -> None:
    before = json.loads(cli("evidence", "verify", recorded, "--json").out)
    weaken(workplace)
    after = json.loads(cli("evidence", "verify", recorded, "--json").out)
    assert before["freshness"]["state"] == "holds"
    assert after["freshness"]["state"] != "holds"
    assert (before["integrity"], before["rederivation"]) == (after["integrity"], after["rederivation"])


def test_the_ledger_anchors_a_bundle(cli: Cli, recorded: Path) -> None:
    answers = json.loads(cli("evidence", "verify", recorded, "--json").out)
    assert "ledger" in answers["integrity"]["says"]


def test_a_section_is_drafted_from_a_bundle_with_the_tally(cli: Cli, recorded: Path) -> None:
    ended = cli("amend", "draft", "--bundle", recorded.name[-12:], "--gate", "GATE-IMPORT-001")
    assert ended.code == 0
    assert f"[ev:{recorded.name[-12:]}#/findings/0/outcome]" in ended.out
    assert "1 gates on 1 instances" in ended.out


@pytest.mark.parametrize(("bundle", "code"), [("000000", "unknown-bundle"), ("ab", "unknown-bundle")])
def test_a_bundle_that_is_not_there_is_2(cli: Cli, bundle: str, code: str) -> None:
    ended = cli("amend", "draft", "--bundle", bundle, "--gate", "G")
    assert ended.code == 2
    assert code in ended.err
