"""The examples as a reader runs them: the amendments from a checkout, the published contracts on logs of that shape."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "examples" / "published"
needs_torch = pytest.mark.skipif(
    not importlib.util.find_spec("torch"), reason="the example trains a model, and PyTorch is not installed"
)
STEPS = 100


# --- The published gates ----------------------------------------------------------------------------------------------


def report(path: Path, *, tokens: int = 8192, invented: bool = True) -> Path:
    """Write a run's report in the published shape: four lines of a banner, then JSON of a run that was aborted."""
    rng, load, rows = random.Random(11), 60.0, []
    for step in range(STEPS):
        wall = round(264 + rng.gauss(0, 4) + 200 * (step == 0), 5)
        load += rng.gauss(0, 1)
        rows.append({
            "step": step, "train_loss": round(11 - step / 180 + rng.gauss(0, 0.05), 6),
            "grad_norm": round(1.5 + rng.gauss(0, 0.1), 7), "lr": step * 5e-7,
            "tokens_per_sec": round(tokens / wall * 1000, 3),
            "gpu_util_pct": round(rng.uniform(45, 55) if invented else load, 6), "wall_ms": wall,
        })  # fmt: skip
    text = json.dumps({"status": "ABORTED", "val_loss_history": [10.31], "per_step_metrics": rows}, indent=1)
    path.write_text("".join(f"  banner {line}\n" for line in range(4)) + text)
    return path


def layers(path: Path, *, last: float = 2.2) -> Path:
    """Write the standard deviations of 28 layers, of which the last two stand out."""
    rng = random.Random(5)
    rows = [(layer, *(round(0.3 + rng.random() / 20, 4) for _ in range(6))) for layer in range(26)]
    rows += [(26, *[round(0.65 * last, 4)] * 6), (27, *[last] * 6)]
    head = "layer,ffn_norm,ffn_gate,ffn_up,ffn_silu,ffn_swigl,ffn_out\n"
    path.write_text(head + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return path


def judged(cli: Cli, run: Path, spread: Path) -> dict[str, tuple[str, str]]:
    """Return the outcome and the code of every published gate."""
    subjects = {"run": run, "epochs": run, "layers": spread}
    bound = [word for name, path in subjects.items() for word in ("--subject", f"{name}={path}")]
    found = json.loads(cli("verify", *sorted(PUBLISHED.glob("*.yaml")), *bound, "--json").out)
    return {each["gate"]: (each["outcome"], each["code"]) for one in found for each in one["findings"]}


FOUND = {
    **dict.fromkeys(("GATE-TRAIN-001", "GATE-TRAIN-008"), ("FAIL", "noise")),  # a random generator's utilisation
    "GATE-LOOP-FINITE": ("PASS", "pass"),
    **dict.fromkeys(("GATE-LOOP-CHECKPOINT", "GATE-LOOP-REPLAY"), ("BLOCKED", "unbound")),  # no checkpoint is published
    # No validation loss by epoch.
    **{f"GATE-TRAIN-{of}": ("BLOCKED", "no-column") for of in ("003", "005-FIRST", "005-RATIO")},
    "GATE-LOOP-REGIME": ("BLOCKED", "where-unknown"),  # the regime is not logged
    "GATE-LOOP-CORPUS": ("BLOCKED", "epochs-unknown"),
    **{f"GATE-GPUTRAIN-00{number}": ("BLOCKED", "unbound") for number in (1, 2, 6)},  # nothing to run
    "GATE-LOOP-ON-CPU": ("BLOCKED", "unbound"),
    "GATE-GPUTRAIN-001-FALSIFIERS": ("BLOCKED", "unbound"),  # no report is published
    "GATE-GPUTRAIN-003": ("BLOCKED", "no-pid"),
    "GATE-GPUTRAIN-004": ("BLOCKED", "where-false"),  # 8192 tokens a step, not 2048
    **dict.fromkeys(("GATE-IMPORT-001", "GATE-PARITY-001"), ("BLOCKED", "unbound")),
    "GATE-LAYERS-001": ("FAIL", "spikes"),
}


@pytest.mark.slow
def test_the_published_gates_are_judged_each_with_its_reason(cli: Cli, workplace: Path) -> None:
    assert judged(cli, report(workplace / "report.json"), layers(workplace / "layers.csv")) == FOUND


@pytest.mark.slow
def test_the_published_gates_pass_on_a_log_that_holds_what_they_ask_for(cli: Cli, workplace: Path) -> None:
    """So that a FAIL or BLOCKED above is of the log and not of a contract that nothing can meet."""
    sound = report(workplace / "report.json", tokens=2048, invented=False)
    found = judged(cli, sound, layers(workplace / "layers.csv", last=0.4))
    passed = ["GATE-GPUTRAIN-004", "GATE-LAYERS-001", "GATE-LOOP-FINITE", "GATE-TRAIN-001", "GATE-TRAIN-008"]
    assert sorted(gate for gate, (outcome, _) in found.items() if outcome == "PASS") == passed


EPOCHS = ("GATE-TRAIN-003", "GATE-TRAIN-005-FIRST", "GATE-TRAIN-005-RATIO")


@pytest.mark.parametrize(
    ("losses", "outcomes"),
    [
        ([9.0, 5.1, 3.3, 2.5, 2.2], "PASS PASS PASS"),
        ([10.4, 9.9, 9.8, 9.75, 9.7], "FAIL PASS PASS"),
        ([9.0, 31.0, 9.5, 4.0, 2.1], "PASS PASS FAIL"),
        ([21.7, 12.0, 7.0, 4.0, 2.0], "PASS FAIL PASS"),
        ([9.0, 5.0, 2.0], "BLOCKED BLOCKED BLOCKED"),
        ([9.0, 5.1, 3.3, 2.5, float("nan")], "FAIL FAIL FAIL"),
    ],
)
def test_a_gate_with_a_published_id_holds_the_rule_of_that_id(
    cli: Cli, workplace: Path, losses: list[float], outcomes: str
) -> None:
    rows = [{"epoch": epoch, "val_loss": loss} for epoch, loss in enumerate(losses)]
    (workplace / "epochs.json").write_text(json.dumps({"status": "completed", "vocab": 50257, "epochs": rows}))
    gates = [word for gate in EPOCHS for word in ("--gate", gate)]
    bound = ("--subject", f"epochs={workplace / 'epochs.json'}")
    (found,) = json.loads(cli("verify", PUBLISHED / "training-loop.yaml", *gates, *bound, "--json").out)
    assert " ".join(one["outcome"] for one in found["findings"]) == outcomes


# --- The amendments ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run the example from a copy of the checkout, which has no commit and so no uncommitted change."""
    folder = tmp_path_factory.mktemp("example")
    for name in ("src", "gates", "verifiers", "contracts", "words", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = (sys.executable, str(folder / "examples" / "amendments" / "run.py"), str(folder / "gpt"))
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout, folder / "gpt"


def after(session: str, command: str) -> list[str]:
    """Return what every such command printed, its exit line included."""
    parts = session.split("\n$ ")
    return [part.partition("\n")[2].strip() for part in parts if part.partition("\n")[0] == f"weighbridge {command}"]


@pytest.mark.exhaustive
@needs_torch
def test_three_sections_land_and_the_third_refutes_the_second(session: tuple[str, Path]) -> None:
    landed = re.findall(r"^landed: (.*)$", session[0], re.MULTILINE)
    assert landed == [
        "§1 The run trained as its log says, version 0.1.0",
        "§2 The exporter is right, version 0.2.0",
        "§3 The exporter copies bytes under another dtype, version 1.0.0",
    ]
    page = (session[1] / "spec" / "SPEC.md").read_text()
    assert page.count("| H1 | ") == 4  # OPEN with its experiment, CONFIRMED, REFUTED
    banner = r"> \*\*REFUTED by §3\*\* \(A-\d{8}-the-exporter-copies-bytes-under-another-dtype\)"
    assert re.search(rf"^# §2\n\n{banner}", page, re.MULTILINE)


@pytest.mark.exhaustive
@needs_torch
def test_criteria_stand_where_the_lowest_of_their_gates_stands(session: tuple[str, Path]) -> None:
    criteria = re.findall(r"^criterion AC-GPT-(\d+): (\w+)", after(session[0], "status")[1], re.MULTILINE)
    assert dict(criteria) == {f"{number:03d}": "DISCHARGED" for number in range(1, 11)} | {
        "007": "REGRESSED", "010": "DRAFT"
    }  # fmt: skip


@pytest.mark.exhaustive
@needs_torch
def test_one_changed_byte_of_evidence_is_seen_by_check_render_ledger_and_status(session: tuple[str, Path]) -> None:
    first, second, restored = after(session[0], "amend check")
    assert "wrong: 0, warnings: 0\n[exit 0]" in first
    assert re.search(r"altered bundle [0-9a-f]{12}: measurements/facts.run.default.json has sha256 ", second)
    assert (
        second.count("nor bound by gates that all are") == 2
    )  # whether another gate binds these can no longer be told
    assert second.endswith("[exit 1]")
    assert "it does not hold: 4 problems" in after(session[0], "amend render")[1]
    assert after(session[0], "ledger check")[1].endswith("problems: 55\n[exit 1]")
    assert after(session[0], "status")[2].count("UNVERIFIED    (no-bundle bundle ") == 45
    assert restored.startswith(first)


# --- The pull requests ------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@needs_torch
def test_two_of_five_runs_of_the_job_are_red_each_at_its_gate_and_its_line(tmp_path: Path) -> None:
    command = (sys.executable, str(ROOT / "examples" / "pull_requests" / "run.py"), str(tmp_path / "repository"))
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.findall(r"^\d.* -> exit (\d)", ended.stdout, re.MULTILINE) == ["0", "1", "0", "1", "0"]
    places = re.findall(r"^::error file=(\S+),line=(\d+),col=\d+,title=FAIL ([\w-]+)::", ended.stdout, re.MULTILINE)
    assert places == [("contracts/import.yaml", "8", "GATE-MODEL-001"), ("contracts/run.yaml", "8", "GATE-RUN-003")]
    assert "JUnit: {'failure': 1, 'passed': 42, 'skipped': 10}; SARIF: ['error value-preservation']" in ended.stdout
