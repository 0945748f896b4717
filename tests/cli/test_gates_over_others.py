"""Gates over what others run: the published device gates over a real command, and the falsifiers of a crate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli

from weighbridge.core.data import data_path

TRAINER = """
import json, re, sys
if "--version" in sys.argv:
    print(json.dumps({"cuda_feature": CUDA, "cuda_runtime_available": CUDA, "visible_devices": []}))
    sys.exit()
device = sys.argv[sys.argv.index("--device") + 1]
if not re.fullmatch("cpu|cuda(:[0-9]|:1[0-5])?|auto", device):
    sys.exit(f"error: {device!r} is no device: cpu, cuda[:N] or auto")
if device == "auto":
    print("WARN cuda:0 is not there: auto falls back to cpu", file=sys.stderr)
open("metrics.jsonl", "w").write("{}")
"""
GATES: dict[str, Any] = {
    "GATE-GPUTRAIN-001": [
        {"args": ["--device", "cpu"], "never_says": ["WARN"], "files": ["*.jsonl"]},
        {"args": ["--device", "auto"], "says": [{"text": "WARN*auto falls back to cpu", "times": 1}]},
        *({"args": ["--device", one], "exit": "nonzero", "says": ["is no device"]} for one in ("gpu", "cuda:99", "")),
    ],
    "GATE-GPUTRAIN-006": [
        {"args": ["--version", "--json"], "json": {"/cuda_feature": False, "/cuda_runtime_available": False,
                                                   "/visible_devices": {}}},
    ],
}  # fmt: skip


def contract(folder: Path) -> Path:
    gates = [
        {"id": name, "title": "t", "kind": "command-succeeds", "subjects": {"command": "trainer"},
         "with": {"within_s": 20, "cases": cases}, "measure": {"timeout_s": 30}}
        for name, cases in GATES.items()
    ]  # fmt: skip
    body = {"weighbridge": "contract/v0", "id": "c", "version": "1.0.0", "title": "t", "owner": "o",
            "subjects": {"trainer": {"kind": "command"}}, "gates": gates}  # fmt: skip
    path = folder / "c.yaml"
    path.write_text(json.dumps(body, indent=1))
    return path


@pytest.mark.slow
def test_a_device_grammar_and_what_a_build_says_of_itself_are_gates(cli: Cli, workplace: Path) -> None:
    Path("train.py").write_text(TRAINER.replace("CUDA", "False"))
    path = contract(workplace)
    ended = cli("verify", path, "--subject", f"trainer={sys.executable} -I -S train.py")
    assert (ended.code, "2 passed of 2 -> exit 0 (passed)" in ended.lines) == (0, True)
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    assert cli("evidence", "verify", bundle, "--require-pass").code == 0

    Path("train.py").write_text(
        TRAINER.replace("CUDA", "True").replace("auto falls", "it falls").replace("(:[0-9]|", "(:[0-9]+|")
    )
    ended = cli("verify", path, "--subject", f"trainer={sys.executable} -I -S train.py")
    assert ended.code == 1
    printed = [line.strip() for line in ended.lines]
    assert "--device cuda:99: exit code 0, expected nonzero; its last line is 'nothing'" in printed
    assert "--version --json: true at /cuda_feature, true at /cuda_runtime_available" in printed


def test_a_contract_alone_runs_nothing(cli: Cli, workplace: Path) -> None:
    ended = cli("verify", contract(workplace))
    assert ended.code == 3
    assert sum("BLOCKED  GATE-" in line for line in ended.lines) == 2


CARGO = (data_path("verifiers") / "specimens" / "reports" / "cargo.xml").read_text()
FALSIFIERS = """\
weighbridge: contract/v0
id: crate
version: 1.0.0
title: The crate's falsifiers hold
owner: o
subjects:
  report: {kind: report, path: junit.xml}
gates:
  - id: GATE-FALSIFY
    title: Every falsifier of the crate ran and passed
    kind: test-report
    subjects: {report: report}
    with: {tests: [falsify_*], at_least: 3}
"""


@pytest.mark.parametrize(
    ("change", "code", "printed"),
    [
        (
            ('<failure type="assert"/>', ""),
            0,
            "3 of 4 tests in the report are named by falsify_*, and each of them passed",
        ),
        (("", ""), 1, "gate::falsify_d: failed (thread 'gate::falsify_d' (18463) panicked at src/lib.rs:9:30:)"),
        (("falsify_d", "renamed"), 3, "2 of the 4 tests in the report are named by falsify_*; 3 are needed"),
        (('<failure type="assert"/>', '<skipped message="no GPU"/>'), 3, "gate::falsify_d: skipped (no GPU)"),
        (("<testsuites>", '<!DOCTYPE x [<!ENTITY a "b">]><testsuites>'), 4, "report-doctype"),
    ],
)
def test_a_report_of_cargo_decides_a_gate(
    cli: Cli, workplace: Path, change: tuple[str, str], code: int, printed: str
) -> None:
    old, new = change
    (workplace / "crate.yaml").write_text(FALSIFIERS)
    report = CARGO.replace('failures="1"', 'failures="0"') if old.startswith("<failure") else CARGO
    (workplace / "junit.xml").write_text(report.replace(old, new, 1))
    ended = cli("verify", "crate.yaml")
    assert (ended.code, printed in ended.out) == (code, True), ended.out


def test_the_digest_of_the_report_is_sealed(cli: Cli, workplace: Path) -> None:
    (workplace / "crate.yaml").write_text(FALSIFIERS)
    (workplace / "junit.xml").write_text(CARGO)
    cli("verify", "crate.yaml")
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    subjects = json.loads((bundle / "statement.json").read_text())["subject"]
    assert any("junit.xml" in subject["name"] for subject in subjects)
    assert cli("evidence", "verify", bundle, "--subject", "report=junit.xml").code == 0
    (workplace / "junit.xml").write_text(CARGO.replace("falsify_d", "falsify_e"))
    assert cli("evidence", "verify", bundle, "--subject", "report=junit.xml").code != 0
