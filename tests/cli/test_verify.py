"""`weighbridge verify`: exit codes, evidence, moves, reports."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from junitparser import JUnitXml
from safetensors.numpy import load_file, save_file
from tests.cli.conftest import Cli
from tests.verifiers.weighing import recorded

from weighbridge import verifiers
from weighbridge.core.data import data_path
from weighbridge.core.model import Fields, Measurement, SubjectKind
from weighbridge.demo import files
from weighbridge.verifiers.verifier import Views

HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD = (HERE / name for name in ("source.safetensors", "import.gguf", "relabelled.safetensors"))
IMPORT = "builtin:checkpoint-import"
EMPTY = """
weighbridge: contract/v0
id: empty
version: 1.0.0
title: Nothing is promised
owner: nobody
subjects: {}
gates: []
"""


def bound(source: Path, imported: Path) -> tuple[str, ...]:
    return "--subject", f"source={source}", "--subject", f"import={imported}"


def bundles(folder: Path) -> list[Path]:
    return sorted((folder / "bundles").iterdir())


def test_a_good_import_is_0_and_its_bundle_is_sealed_and_judges_again(cli: Cli, workplace: Path) -> None:
    ended = cli("verify", IMPORT, *bound(SOURCE, GOOD))
    assert ended.code == 0
    assert "1 passed of 1 -> exit 0 (passed)" in ended.lines
    (bundle,) = bundles(workplace / ".weighbridge")
    assert cli("evidence", "rejudge", bundle).code == 0
    assert cli("evidence", "verify", bundle).code == 0
    assert "GATE-IMPORT-001" in cli("evidence", "show", bundle).out


def test_a_bad_import_is_1(cli: Cli) -> None:
    ended = cli("verify", IMPORT, *bound(SOURCE, BAD))
    assert ended.code == 1
    assert "FAIL     GATE-IMPORT-001" in ended.out


def test_an_unbound_subject_is_blocked_and_3(cli: Cli) -> None:
    ended = cli("verify", IMPORT, "--subject", f"source={SOURCE}")
    assert ended.code == 3
    assert "    the subject 'import' is not bound (unbound)" in ended.lines
    assert "    bind it: --subject import=… (under pytest --gate-subject import=…)" in ended.lines


def test_an_unreadable_subject_is_4_and_says_where(cli: Cli, workplace: Path) -> None:
    broken = workplace / "broken.safetensors"
    broken.write_bytes(b"\xff" * 8)
    ended = cli("verify", IMPORT, *bound(SOURCE, broken))
    assert ended.code == 4
    assert "broken.safetensors" in ended.out


def test_an_empty_contract_shows_nothing_and_is_5(cli: Cli, workplace: Path) -> None:
    (workplace / "empty.yaml").write_text(EMPTY)
    ended = cli("verify", "empty.yaml")
    assert ended.code == 5
    assert "nothing judged of 0 -> exit 5 (nothing shown)" in ended.lines


def test_an_empty_contract_beside_one_that_passes_is_still_5(cli: Cli, workplace: Path) -> None:
    (workplace / "empty.yaml").write_text(EMPTY)
    assert cli("verify", IMPORT, *bound(SOURCE, GOOD)).code == 0
    ended = cli("verify", IMPORT, "empty.yaml", *bound(SOURCE, GOOD))
    assert (ended.code, "no gate is declared: this contract shows nothing" in ended.lines) == (5, True)


def test_a_typo_in_a_key_is_2_with_line_and_column_and_leaves_no_bundle(cli: Cli, workplace: Path) -> None:
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text()
    (workplace / "c.yaml").write_text(text.replace("severity: required", "severty: required"))
    ended = cli("verify", "c.yaml", *bound(SOURCE, GOOD))
    assert ended.code == 2
    assert ended.err.startswith("c.yaml:17:5: unknown-key unknown key 'severty'; did you mean 'severity'?")
    assert [path.name for path in workplace.iterdir()] == ["c.yaml"]


def test_a_verifier_that_raises_is_4_without_its_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_views: Views, _options: Fields) -> Measurement:
        raise RuntimeError("a secret text")

    key = ("tensor_values", (SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT))
    changed = dataclasses.replace(verifiers.VERIFIERS[key], measure=broken, batch=None)
    monkeypatch.setattr("weighbridge.evaluation.runner.VERIFIERS", {**verifiers.VERIFIERS, key: changed})
    ended = cli("verify", IMPORT, *bound(SOURCE, GOOD))
    assert ended.code == 4
    assert "the verifier of tensor_values raised RuntimeError (verifier-raised)" in ended.out
    assert "a secret text" not in ended.out + ended.err


@pytest.mark.slow
def test_recording_moves_the_status_and_recording_nothing_moves_none(cli: Cli, workplace: Path) -> None:
    cli("verify", IMPORT, *bound(SOURCE, GOOD))
    assert cli("status").out.startswith("no gate is declared yet")
    source, changed = workplace / "source.safetensors", workplace / "changed.safetensors"
    save_file({"a": np.arange(4, dtype=np.float32)}, source)
    save_file({"a": np.arange(1, 5, dtype=np.float32)}, changed)
    cli("verify", IMPORT, *bound(source, changed), "--record")
    assert (workplace / "evidence" / "ledger").is_dir()
    assert "REGRESSED" in cli("status").out
    assert "none -> DRAFT" in cli("status", "why", "GATE-IMPORT-001").out
    assert cli("ledger", "check").code == 0


def test_instances_are_judged_apart(cli: Cli) -> None:
    many = ("--subject", f"source={SOURCE}", "--subject", f"import@good={GOOD}", "--subject", f"import@bad={BAD}")
    ended = cli("verify", IMPORT, *many)
    assert ended.code == 1
    assert "FAIL     GATE-IMPORT-001[bad]" in ended.out
    assert "PASS     GATE-IMPORT-001[good]" in ended.out


def test_only_the_gates_asked_for_are_judged(cli: Cli) -> None:
    ended = cli("verify", IMPORT, *bound(SOURCE, GOOD), "--gate", "*-001")
    assert "1 passed of 1 -> exit 0 (passed)" in ended.lines


def test_what_was_not_judged_or_is_not_as_written_is_said(cli: Cli) -> None:
    asked = ("--gate", "GATE-MODEL-001", "--param", "policy=at-most:rounded:F16")
    ended = cli("verify", "builtin:model-import", *bound(SOURCE, GOOD), *asked)
    assert (ended.code, ended.lines[-1]) == (0, "1 passed of 1, 1 not judged -> exit 0 (passed)")
    assert ended.lines[0].endswith("  --param policy=at-most:rounded:F16")


def test_a_subject_that_no_contract_knows_is_2(cli: Cli) -> None:
    ended = cli("verify", IMPORT, "--subject", f"sorce={SOURCE}")
    assert (ended.code, ended.err.strip()) == (
        2,
        "unknown-subject no contract has a subject 'sorce'; did you mean 'source'?",
    )


def test_a_gate_expected_blocked_that_was_not_is_1(cli: Cli) -> None:
    assert cli("verify", IMPORT, *bound(SOURCE, GOOD), "--expect-blocked", "GATE-IMPORT-001").code == 1


@pytest.mark.parametrize("more", [(), ("--gate", "GATE-IMPORT-001")])
def test_a_gate_expected_blocked_that_is_not_judged_is_2(cli: Cli, more: tuple[str, ...]) -> None:
    ended = cli("verify", IMPORT, *bound(SOURCE, GOOD), *more, "--expect-blocked", "GATE-IMPORT-01")
    assert (ended.code, ended.err.startswith("unknown-gate no gate")) == (2, True)


def test_verify_without_contracts_takes_those_of_the_folder(cli: Cli, workplace: Path) -> None:
    assert cli("verify").code == 2
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "empty.yaml").write_text(EMPTY)
    assert cli("verify").code == 5


def test_junit_counts_a_failure_a_pass_and_a_block_apart(cli: Cli, workplace: Path) -> None:
    many = ("--subject", f"import@good={GOOD}", "--subject", f"import@bad={BAD}")
    cli("verify", IMPORT, "--subject", f"source={SOURCE}", *many, "--report", "junit:a.xml")
    report = JUnitXml.fromfile(str(workplace / "a.xml"))
    assert (report.tests, report.failures, report.errors, report.skipped) == (2, 1, 0, 0)
    cli("verify", IMPORT, *many, "--report", "junit:b.xml")
    report = JUnitXml.fromfile(str(workplace / "b.xml"))
    assert (report.tests, report.failures, report.errors, report.skipped) == (2, 0, 2, 0)


def test_json_holds_the_figures_and_the_words(cli: Cli) -> None:
    (report,) = json.loads(cli("verify", IMPORT, *bound(SOURCE, GOOD), "--json").out)
    assert report["exit_code"] == 0
    first = report["findings"][0]
    assert (first["gate"], first["outcome"], first["of"]) == ("GATE-IMPORT-001", "PASS", 2)
    assert first["says"]


@pytest.mark.parametrize("report", ["saif:x", "junit", "junit:", "xml:-"])
def test_a_report_of_no_form_is_2(cli: Cli, report: str) -> None:
    assert cli("verify", IMPORT, "--report", report).code == 2


# --- What the starter contracts come to on what other tools made ------------------------------------------------------

BY_THE_CONVERTER = Path(__file__).parent / "llama-by-the-converter"  # random weights, through llama.cpp's own converter


@pytest.mark.slow
@pytest.mark.parametrize("contract", [IMPORT, "builtin:model-import", "bytes.yaml"])
def test_every_kind_that_holds_two_checkpoints_maps_the_names_of_a_conversion(
    cli: Cli, workplace: Path, contract: str
) -> None:
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text()
    bytes_alone = text.replace("kind: dtype-preservation", "kind: byte-identity")
    (workplace / "bytes.yaml").write_text(bytes_alone.replace("policy: lossless", "tensors: ['*attn_q*', '*attn_k*']"))
    good = bound(BY_THE_CONVERTER / "hf", BY_THE_CONVERTER / "model.gguf")
    assert cli("verify", contract, *good).code == 0
    values = bytearray((BY_THE_CONVERTER / "model.gguf").read_bytes())
    at = values.index(load_file(BY_THE_CONVERTER / "hf" / "model.safetensors")["model.embed_tokens.weight"].tobytes())
    values[at] ^= 1
    (workplace / "bad.gguf").write_bytes(values)
    bad = bound(BY_THE_CONVERTER / "hf", workplace / "bad.gguf")
    assert cli("verify", contract, *bad).code == (0 if contract == "bytes.yaml" else 1)


def test_what_a_message_says_would_pass_passes(cli: Cli, workplace: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    save_file({"a": values}, workplace / "a.safetensors")
    save_file({"a": values.astype(np.float16)}, workplace / "b.safetensors")
    pair = bound(workplace / "a.safetensors", workplace / "b.safetensors")
    printed = "a as F32, or in the gate's `with:` an entry of `allow:` with `from: F32` and `to: F16`"
    assert f"    would pass with: {printed}" in cli("verify", IMPORT, *pair).lines
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text()
    (workplace / "c.yaml").write_text(
        text.replace("policy: lossless", "policy: lossless, allow: [{from: F32, to: F16}]")
    )
    assert cli("verify", "c.yaml", *pair).code == 0


@pytest.mark.parametrize(
    ("made", "printed"),
    [
        ("mislabelled", "the tensors stored as BF16, or their values converted, under a policy that means F16"),
        ("q8_0", "the tensors stored as BF16, or a policy that means Q8_0"),
    ],
)
def test_no_entry_of_allow_is_offered_for_what_it_would_not_let_pass(
    cli: Cli, workplace: Path, made: str, printed: str
) -> None:
    files.write(workplace)
    pair = bound(workplace / "hf", workplace / f"{made}.gguf")
    done = cli("verify", IMPORT, *pair)
    assert f"    would pass with: {printed}" in done.lines
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text()
    to = printed.rsplit(maxsplit=1)[-1]
    allowed = text.replace("policy: lossless", f"policy: lossless, allow: [{{from: BF16, to: {to}}}]")
    (workplace / "allowed.yaml").write_text(allowed)
    assert (done.code, cli("verify", "allowed.yaml", *pair).code) in ((1, 1), (1, 3))


def test_a_run_of_the_recorder_has_every_metric_that_the_starter_contracts_ask_for(cli: Cli) -> None:
    run = data_path("verifiers") / "specimens" / "runs" / "wrapped"
    for contract, gate in (("pretraining", "GATE-TRAIN-007-LOG"), ("training-run", "GATE-RUN-001")):
        assert cli("verify", f"builtin:{contract}", "--gate", gate, "--subject", f"run={run}").code == 0


def test_a_refusal_that_left_a_checkpoint_fails_the_starter_contract(cli: Cli, workplace: Path) -> None:
    left = "mkdir -p {at}; touch {at}/epoch-000.apr; "
    for before, code in (("", 0), (left.format(at="ckpt"), 1), (left.format(at=f"'{workplace}/ckpt'"), 1)):
        (workplace / "t.sh").write_text(f"{before}echo DEVICE_UNAVAILABLE; exit 3")
        gate = ("builtin:pretraining", "--gate", "GATE-GPUTRAIN-002", "--subject", "refusal=sh t.sh")
        ended = cli("verify", *gate)
        assert (ended.code, "leftovers: " in ended.out) == (code, code == 1)


def test_a_budget_in_milliseconds_is_no_bound_on_a_loss(cli: Cli, workplace: Path) -> None:
    text = (data_path("contracts") / "training-run.yaml").read_text()
    (workplace / "c.yaml").write_text(text.replace("column: wall_ms", "column: loss"))
    run = data_path("verifiers") / "specimens" / "runs" / "wrapped"
    ended = cli(
        "verify", "c.yaml", "--gate", "GATE-RUN-004", "--subject", f"run={run}", "--param", "tokens_per_step=512"
    )
    assert "    loss is no column of milliseconds, and the budget is in ms" in ended.lines
    assert "BLOCKED  GATE-RUN-004" in ended.out


def test_the_verdict_is_reported_before_a_bundle_that_cannot_be_written(cli: Cli, workplace: Path) -> None:
    (workplace / ".weighbridge").write_text("a file, where the folder of bundles would be")
    ended = cli("verify", IMPORT, *bound(SOURCE, BAD), "--report", "json:r.json")
    assert (ended.code, "FAIL     GATE-IMPORT-001" in ended.out) == (4, True)
    assert ended.lines[-1] == "1 failed of 1 -> exit 4 (error)"
    assert "disk the bundle was not written" in ended.err
    assert json.loads((workplace / "r.json").read_text())[0]["exit_code"] == 4


def test_gates_that_a_run_without_an_end_holds_back_are_one_block_that_counts_what_they_would_be(
    cli: Cli, tmp_path: Path
) -> None:
    run = recorded(tmp_path / "run")
    events = [line for line in (run / "events.jsonl").read_text().splitlines() if '"end"' not in line]
    (run / "events.jsonl").write_text("\n".join(events) + "\n")
    ended = cli("verify", "builtin:training-run", "--subject", f"run={run}")
    (count,) = re.findall(r"does not count while the condition is not met: (\d+) PASS\n", ended.out)
    assert int(count) >= 2
    assert ended.out.count("the run is not known to have ended as asked") == 1


def test_a_glob_that_finds_nothing_is_named(cli: Cli, workplace: Path) -> None:
    text = (data_path("contracts") / "checkpoint-health.yaml").read_text()
    (workplace / "c.yaml").write_text(text.replace("{kind: checkpoint}", '{kind: checkpoint, for_each: "nope/*.gguf"}'))
    ended = cli("verify", "c.yaml")
    assert ended.code == 3
    assert "'checkpoint' is not bound, for 'nope/*.gguf' finds no file from the contract's folder on" in ended.out
