"""A gate that is not meant for a subject, from the command line to the status: neither green nor red anywhere."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli

from weighbridge.core.data import data_path
from weighbridge.core.model import Outcome
from weighbridge.evidence.bundle import decode, open_bundle
from weighbridge.evidence.statement import Tool
from weighbridge.judging.judging import judge_gate

RUNS = data_path("verifiers") / "specimens" / "runs"
HEAD = "weighbridge: contract/v0\nid: mine\nversion: 1.0.0\ntitle: t\nowner: me\n"
EARLY = """subjects: {run: {kind: run}}
gates:
  - id: G-EARLY
    title: What ended early kept its losses
    kind: step-metrics
    subjects: {run: run}
    when: {ended: early}
    with: {required: [loss]}
"""
WHOLE = """  - id: G-WHOLE
    title: A step is quick
    kind: wall-time-budget
    subjects: {run: run}
    where: {tokens_per_step: 512}
    with: {statistic: median, steps: [20, 49], below_ms: 500, min_samples: 30}
"""
ONE_TENSOR = """subjects: {source: {kind: checkpoint}, import: {kind: checkpoint}}
gates:
  - id: G-SAME
    title: A file of one tensor is copied whole
    kind: byte-identity
    subjects: {source: source, candidate: import}
    when: {tensors: 1}
"""


def run(workplace: Path, asked: int | None) -> Path:
    """Copy a recorded run of 60 steps that ended by itself, and say how many steps it was asked for."""
    folder = shutil.copytree(RUNS / "wrapped", workplace / f"asked-{asked}")
    body = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(body | ({"requested_steps": asked} if asked else {})))
    return folder


@pytest.fixture
def contract(workplace: Path) -> Path:
    (workplace / "contracts").mkdir()
    path = workplace / "contracts" / "mine.yaml"
    path.write_text(HEAD + EARLY + WHOLE)
    return path


def told(cli: Cli, contract: Path, subject: Path, *more: object) -> tuple[int, dict[str, tuple[str, str]]]:
    ended = cli("verify", contract, "--subject", f"run={subject}", "--json", *more)
    assert ended.out, ended.err
    (suite,) = json.loads(ended.out)
    return ended.code, {one["gate"]: (one["outcome"], one["code"]) for one in suite["findings"]}


# --- Exit codes -------------------------------------------------------------------------------------------------------


def test_a_run_that_ended_early_is_judged_and_one_that_did_not_is_not_applicable(
    cli: Cli, workplace: Path, contract: Path
) -> None:
    passed = ("PASS", "pass")
    assert told(cli, contract, run(workplace, 70)) == (0, {"G-EARLY": passed, "G-WHOLE": passed})
    assert told(cli, contract, run(workplace, 60)) == (
        0,
        {"G-EARLY": ("NOT_APPLICABLE", "when-false"), "G-WHOLE": passed},
    )


def test_a_run_that_only_says_how_it_ended_is_blocked(cli: Cli, workplace: Path, contract: Path) -> None:
    unasked = run(workplace, None)
    came = told(cli, contract, unasked)
    assert came == (3, {"G-EARLY": ("BLOCKED", "when-reported"), "G-WHOLE": ("PASS", "pass")})
    ended = cli("verify", contract, "--subject", f"run={unasked}")
    assert "    ended = ended as the subject says of itself, and the gate is meant for early" in ended.out
    assert "does not count while the condition is not met: PASS" in ended.out


def test_an_end_that_its_log_contradicts_is_blocked(cli: Cli, workplace: Path, contract: Path) -> None:
    folder = run(workplace, 60)
    events = folder / "events.jsonl"
    events.write_text(events.read_text().replace('"steps": 60', '"steps": 55'))
    assert told(cli, contract, folder)[1]["G-EARLY"] == ("BLOCKED", "when-contradicted")


def test_only_gates_that_do_not_apply_show_nothing(cli: Cli, workplace: Path, contract: Path) -> None:
    contract.write_text(HEAD + EARLY)
    ended = cli("verify", contract, "--subject", f"run={run(workplace, 60)}")
    assert (ended.code, "1 not applicable of 1 -> exit 5 (nothing shown)" in ended.lines) == (5, True)
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    assert cli("evidence", "verify", bundle, "--require-pass").code == 1


def test_what_was_expected_to_be_blocked_and_does_not_apply_is_a_failure(
    cli: Cli, workplace: Path, contract: Path
) -> None:
    ended = cli(
        "verify", contract, "--subject", f"run={run(workplace, 60)}", "--expect-blocked", "G-EARLY",
        "--report", "junit:j.xml", "--report", "sarif:s.json", "--report", "tap:t.tap",
    )  # fmt: skip
    assert (ended.code, "expected to be blocked, and NOT_APPLICABLE" in ended.out) == (1, True)
    assert '<failure type="when-false"' in Path("j.xml").read_text()
    assert "not ok 1 - mine G-EARLY" in Path("t.tap").read_text()
    (found,) = json.loads(Path("s.json").read_text())["runs"][0]["results"]
    assert (found["kind"], found["level"]) == ("fail", "error")


@pytest.mark.parametrize("covers", ["FAIL", "BLOCKED"])
def test_no_waiver_covers_it(cli: Cli, workplace: Path, contract: Path, covers: str) -> None:
    contract.write_text(HEAD + EARLY)
    line = "{contract: mine, gate: G-EARLY, covers: %s, reason: a reason, owner: ada, created: 2026-01-01, expires: %s}"
    Path("w.yaml").write_text(f"weighbridge: waivers/v0\nwaivers:\n  - {line % (covers, '2026-03-01')}\n")
    subject = f"run={run(workplace, 60)}"
    ended = cli("verify", contract, "--subject", subject, "--waivers", "w.yaml")
    assert (ended.code, "excused" in ended.out) == (5, False)
    Path("w.yaml").write_text(Path("w.yaml").read_text().replace("covers: " + covers, "covers: NOT_APPLICABLE"))
    assert cli("verify", contract, "--subject", subject, "--waivers", "w.yaml").code == 2


@pytest.mark.parametrize("slip", ["erly", "true", "1", "Early"])
def test_a_slip_in_the_word_for_an_end_is_an_error(cli: Cli, workplace: Path, contract: Path, slip: str) -> None:
    contract.write_text(contract.read_text().replace("ended: early", f"ended: {slip}"))
    ended = cli("verify", contract, "--subject", f"run={run(workplace, 60)}")
    assert (ended.code, "contracts/mine.yaml:12:19: unknown-choice" in ended.err) == (2, True)


# --- Reports ----------------------------------------------------------------------------------------------------------


def test_every_report_names_it_with_the_false_fact(cli: Cli, workplace: Path, contract: Path) -> None:
    forms = ("json", "jsonl", "junit", "sarif", "github", "gitlab", "markdown", "tap")
    written = [word for form in forms for word in ("--report", f"{form}:r.{form}")]
    ended = cli("verify", contract, "--subject", f"run={run(workplace, 60)}", *written)
    fact = "ended = ended (derived), and the gate is meant for early"
    assert f"NOT_APPLICABLE G-EARLY ({fact})" in ended.lines
    assert ended.lines[-1] == "1 not applicable, 1 passed of 2 -> exit 0 (passed)"
    for form in forms:
        text = Path(f"r.{form}").read_text()
        assert ("NOT_APPLICABLE" in text, fact in text) == (True, True)
    junit = Path("r.junit").read_text()
    assert 'tests="2" failures="0" errors="0" skipped="1"' in junit
    assert f'<skipped type="when-false" message="NOT_APPLICABLE: {fact}">' in junit
    (found,) = json.loads(Path("r.sarif").read_text())["runs"][0]["results"]
    assert (found["kind"], found["level"], found["suppressions"]) == ("notApplicable", "none", [])
    assert f"ok 1 - mine G-EARLY What ended early kept its losses # SKIP {fact}" in Path("r.tap").read_text()
    assert Path("r.github").read_text().startswith("::notice file=contracts/mine.yaml,line=8,")
    assert [one["severity"] for one in json.loads(Path("r.gitlab").read_text())] == ["info"]
    assert "### weighbridge: 1 not applicable, 1 passed of 2" in Path("r.markdown").read_text()
    levels = {one["gate"]: one["level"] for one in map(json.loads, Path("r.jsonl").read_text().splitlines())}
    assert levels == {"G-EARLY": "notice", "G-WHOLE": "none"}


# --- Evidence and status ----------------------------------------------------------------------------------------------


def test_it_is_sealed_and_judged_again_and_reported_in_coverage(cli: Cli, workplace: Path, contract: Path) -> None:
    assert told(cli, contract, run(workplace, 60))[0] == 0
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    answers = json.loads(cli("evidence", "verify", bundle, "--json").out)
    assert answers["rederivation"]["says"] == "judged again: 2 of 2 verdicts follow, byte for byte"
    assert answers["coverage"]["says"] == "1 of 2 required gates counted, 1 not applicable"
    assert answers["coverage"]["state"] == "holds"
    export = json.loads(cli("evidence", "export", bundle, "--as", "test-result").out)["predicate"]
    assert (export["result"], export["passedTests"], export["warnedTests"], export["failedTests"]) == (
        "PASSED", ["mine/G-WHOLE"], [], []
    )  # fmt: skip
    verdicts = bundle / "verdicts.json"
    verdicts.write_text(verdicts.read_text().replace("NOT_APPLICABLE", "PASS"))
    assert cli("evidence", "verify", bundle).code == 1


def live(workplace: Path, name: str, *tensors: int) -> str:
    arrays = {f"w{at}": np.arange(value, value + 6, dtype=np.float32) for at, value in enumerate(tensors)}
    save_file(arrays, workplace / f"{name}.safetensors")
    return f"{name}.safetensors"


def record(cli: Cli, source: str, candidate: str) -> tuple[int, str]:
    """Record of two files under the same two names: by their paths files are told apart."""
    for name, file in (("s", source), ("i", candidate)):
        shutil.copy(file, f"{name}.safetensors")
    ended = cli("verify", "--subject", "source=s.safetensors", "--subject", "import=i.safetensors", "--record")
    return ended.code, ended.out


def statuses(cli: Cli) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("status", "--json").out)
    return found


def test_it_moves_no_status_and_stands_beside_the_earlier_one(
    cli: Cli, workplace: Path, contract: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    contract.write_text(HEAD + ONE_TENSOR)
    one, other, two, copy = (live(workplace, *given) for given in (("a", 1), ("b", 2), ("c", 1, 2), ("d", 1, 2)))
    first = record(cli, two, copy)
    assert (first[0], "moved: none -> DRAFT (NOT_APPLICABLE is no evidence either way): G-SAME" in first[1]) == (
        5,
        True,
    )
    assert record(cli, one, other)[0] == 1
    assert "G-SAME  REGRESSED" in cli("status").out
    entries = sorted((workplace / "evidence" / "ledger").rglob("*.json"))

    assert record(cli, two, copy)[0] == 5
    assert sorted((workplace / "evidence" / "ledger").rglob("*.json")) == entries
    shown = cli("status")
    assert "mine  G-SAME  REGRESSED     NOT_APPLICABLE: tensors = 2, meant for 1" in shown.lines
    assert "gates: 1, of which 1 REGRESSED; NOT_APPLICABLE: 1; discharged: 0 of 1" in shown.lines
    assert "  NOT_APPLICABLE: tensors = 2, meant for 1" in cli("status", "why", "G-SAME").lines
    asked = statuses(cli)
    assert (asked["not_applicable"], asked["tally"]) == (1, {"REGRESSED": 1})
    assert asked["gates"][0]["instances"][0]["not_applicable"] == "tensors = 2, meant for 1"
    assert cli("ledger", "check").code == 0

    contract.write_text(contract.read_text().replace("tensors: 1", "tensors: 2").replace("1.0.0", "1.0.1"))
    assert (statuses(cli)["not_applicable"], "NOT_APPLICABLE" in cli("status").out) == (0, False)
    contract.write_text(HEAD + ONE_TENSOR)
    assert statuses(cli)["not_applicable"] == 1
    assert record(cli, one, other)[0] == 1  # the latest subject is one that it is meant for
    assert statuses(cli)["not_applicable"] == 0


def test_what_says_that_it_does_not_apply_is_judged_again_before_it_is_shown(
    cli: Cli, workplace: Path, contract: Path
) -> None:
    contract.write_text(HEAD + ONE_TENSOR)
    assert record(cli, live(workplace, "c", 1, 2), live(workplace, "d", 1, 2))[0] == 5
    assert statuses(cli)["not_applicable"] == 1
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    (facts,) = (bundle / "measurements").glob("facts*.json")
    facts.write_text(facts.read_text().replace('"value":2', '"value":3'))
    assert statuses(cli)["not_applicable"] == 0


def test_another_when_judges_old_measurements_again(cli: Cli, workplace: Path, contract: Path) -> None:
    assert told(cli, contract, run(workplace, 60))[0] == 0
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    sealed = decode(open_bundle(bundle))
    now = dataclasses.replace(sealed.contract.gates[0], when={"ended": "ended"})
    assert judge_gate(now, "default", sealed.measured, sealed.canaries).verdict.outcome is Outcome.PASS
