"""A bundle of fewer gates, or under other parameters, than the contract has: it says so wherever it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.cli.conftest import Cli
from tests.lanes.test_lanes import RUN

CONTRACT = """weighbridge: contract/v0
id: budget
version: 1.0.0
title: A step stays within its budget
owner: me
params:
  b: {type: number, default: 100, unit: ms}
subjects:
  run: {kind: run}
gates:
  - id: GATE-P
    title: The median step is fast
    kind: wall-time-budget
    subjects: {run: run}
    with: {statistic: median, steps: [20, 49], below_ms: "${params.b}", min_samples: 30}
  - id: GATE-Q
    title: Every step has its loss
    kind: step-metrics
    where: {ended: raised}
    subjects: {run: run}
    with: {required: [loss], allow_noise: [gpu_util_pct]}
  - id: GATE-R
    title: Every step has its norm
    kind: step-metrics
    where: {ended: raised}
    subjects: {run: run}
    with: {required: [grad_norm], allow_noise: [gpu_util_pct]}
    severity: advisory
"""
BUDGET = ("--param", "b=5000")


def kept(cli: Cli, workplace: Path, *more: str, code: int = 0) -> Path:
    """Verify, and return the one bundle."""
    (workplace / "c.yaml").write_text(CONTRACT)
    ended = cli("verify", "c.yaml", "--subject", f"run={RUN}", "--evidence", "e", "--report", "junit:r.xml", *more)
    assert ended.code == code, ended.out
    (bundle,) = (workplace / "e" / "bundles").iterdir()
    return bundle


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gate", "GATE-Q"), "1 of 2 required gates counted; not: GATE-P: not judged, GATE-R: not judged (advisory)"),
        (BUDGET, "2 of 2 required gates counted; not the contract as written: b=5000"),
        (
            (*BUDGET, "--gate", "GATE-P"),
            "1 of 2 required gates counted; not: GATE-Q: not judged, GATE-R: not judged (advisory); "
            "not the contract as written: b=5000",
        ),
    ],
)
def test_a_chosen_gate_or_another_parameter_is_no_pass_of_the_contract(
    cli: Cli, workplace: Path, more: tuple[str, ...], said: str
) -> None:
    bundle = kept(cli, workplace, *more)
    answers = json.loads(cli("evidence", "verify", bundle, "--json").out)
    assert (answers["coverage"]["state"], answers["coverage"]["says"]) == ("broken", said)
    assert cli("evidence", "verify", bundle).code == 0
    assert cli("evidence", "verify", bundle, "--require-pass").code == 1


def test_all_that_is_required_is_a_pass_though_advice_was_left_out(cli: Cli, workplace: Path) -> None:
    (workplace / "c.yaml").write_text(CONTRACT)
    bundle = kept(cli, workplace, "--gate", "GATE-[QR]")
    coverage = json.loads(cli("evidence", "verify", bundle, "--json").out)["coverage"]
    assert coverage["says"] == "1 of 2 required gates counted; not: GATE-P: not judged"
    text = CONTRACT.replace("default: 100", "default: 5000")
    (workplace / "whole.yaml").write_text(text)
    argv = ("verify", "whole.yaml", "--subject", f"run={RUN}", "--evidence", "w", "--gate", "GATE-[PQ]")
    assert cli(*argv).code == 0
    (bundle,) = (workplace / "w" / "bundles").iterdir()
    assert cli("evidence", "verify", bundle, "--require-pass").code == 0


def test_an_export_names_the_parameter_and_the_gates_that_were_left_out(cli: Cli, workplace: Path) -> None:
    bundle = kept(cli, workplace, *BUDGET, "--gate", "GATE-P")
    forms = {form: cli("evidence", "export", bundle, "--as", form).out for form in ("test-result", "svr", "model-card")}
    result, svr = (json.loads(forms[form])["predicate"] for form in ("test-result", "svr"))
    for policy in (result["configuration"][0], svr["verifier"]["policy"]):
        assert policy["annotations"]["overridden"] == ["b=5000"]
        assert policy["annotations"]["notJudged"] == ["GATE-Q", "GATE-R"]
    assert (result["result"], result["passedTests"]) == ("FAILED", ["budget(b=5000)/GATE-P"])
    assert svr["properties"] == ["WEIGHBRIDGE_budget(b=5000)/GATE-P"]  # who demands budget/GATE-P does not find it
    card = forms["model-card"]
    assert "Parameters were overridden, so this is not the contract as written: b=5000." in card
    metadata = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"][0]
    assert metadata["dataset"]["name"] == "contract budget 1.0.0, b=5000"
    assert [one["value"] for one in metadata["metrics"]] == ["PASS", "DRAFT", "DRAFT"]


def test_junit_names_the_parameter_and_skips_by_name_what_was_not_judged(cli: Cli, workplace: Path) -> None:
    kept(cli, workplace, *BUDGET, "--gate", "GATE-P")
    (suite,) = ET.parse(workplace / "r.xml").getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("skipped")) == ("budget 1.0.0 b=5000", "3", "2")
    skipped = {case.get("name"): case.find("skipped") for case in suite.findall("testcase")}
    assert {name: one.get("type") for name, one in skipped.items() if one is not None} == {
        "GATE-Q": "not-judged", "GATE-R": "not-judged",
    }  # fmt: skip


def test_a_whole_contract_says_nothing_of_it(cli: Cli, workplace: Path) -> None:
    bundle = kept(cli, workplace, code=1)
    coverage = json.loads(cli("evidence", "verify", bundle, "--json").out)["coverage"]
    assert (coverage["state"], coverage["says"]) == ("holds", "2 of 2 required gates counted")
    (suite,) = ET.parse(workplace / "r.xml").getroot()
    assert (suite.get("name"), suite.get("tests")) == ("budget 1.0.0", "3")
