"""Contracts as tests: what passes, what fails, what is blocked, and what the plugin costs everybody else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weighbridge.data import data_path

CONTRACT = data_path("contracts") / "checkpoint-import.yaml"
HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD = (f"{HERE}/{name}" for name in ("source.safetensors", "import.gguf", "relabelled.safetensors"))


def run(folder: Path, *arguments: str, own: bool = False) -> tuple[int, str]:
    """Run pytest as its own process: a plugin is loaded before a test could watch it; `own` has its contract there."""
    (folder / "contracts").mkdir(exist_ok=True)
    if not own:
        (folder / "contracts" / "x.yaml").write_bytes(CONTRACT.read_bytes())
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-v", "contracts/x.yaml", *arguments]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout


def subject(name: str, path: str) -> str:
    return f"--gate-subject={name}={path}"


def test_a_gate_that_passes_is_a_test_that_passes(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", GOOD))
    assert code == 0
    assert "contracts/x.yaml::GATE-IMPORT-001 PASSED" in out


def test_a_gate_that_fails_shows_its_finding_and_no_traceback(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", BAD))
    assert code == 1
    assert (
        "model.norm.weight: wrong dtype (BF16 bits stored as F16); 6 of 6 elements explained: bf16-bits-as-f16" in out
    )
    assert "Traceback" not in out
    assert "def runtest" not in out


@pytest.mark.slow
def test_a_blocked_gate_fails_as_blocked(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE))
    assert code == 1
    assert "contracts/x.yaml::GATE-IMPORT-001 BLOCKED" in out
    assert "the subject 'import' is not bound (unbound)" in out
    assert "1 failed" in out


@pytest.mark.slow
def test_an_advisory_gate_that_fails_is_expected_to_and_one_that_broke_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    advisory = tmp_path / "contracts" / "x.yaml"
    text = CONTRACT.read_text(encoding="utf-8")
    assert "severity: required" in text
    advisory.write_text(text.replace("severity: required", "severity: advisory"), encoding="utf-8")
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", BAD), own=True)
    assert "contracts/x.yaml::GATE-IMPORT-001 XFAIL" in out
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(Path(SOURCE).read_bytes()[:-1])
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", str(torn)), own=True)
    assert code == 1
    assert "contracts/x.yaml::GATE-IMPORT-001 ERROR" in out


@pytest.mark.slow
def test_a_gate_that_a_worker_of_xdist_tries_ends_alike(tmp_path: Path) -> None:
    code, out = run(tmp_path, "-n", "1", subject("source", SOURCE))
    assert code == 1
    assert re.search(r"\[gw0\] \[ *[0-9]+%\] BLOCKED contracts/x\.yaml::GATE-IMPORT-001", out)


@pytest.mark.slow
def test_instances_are_tests_of_their_own(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import@good", GOOD), subject("import@bad", BAD))
    assert code == 1
    assert "x.yaml::GATE-IMPORT-001[good] PASSED" in out
    assert "x.yaml::GATE-IMPORT-001[bad] FAILED" in out


def test_a_broken_contract_is_an_error_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    path = tmp_path / "contracts" / "broken.yaml"
    path.write_text(CONTRACT.read_text().replace("severity:", "severty:"))
    code, out = run(tmp_path, "contracts/broken.yaml")
    assert code == 2
    assert "unknown-key unknown key 'severty'; did you mean 'severity'?" in out


@pytest.mark.slow
def test_other_yaml_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("a: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "other.yaml"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "not found: " in done.stderr + done.stdout or "found no collectors" in done.stderr


def test_loading_the_plugin_imports_nothing_of_ours_but_itself() -> None:
    code = (
        "import sys, weighbridge.pytest_plugin; print(*sorted(m for m in sys.modules if m.startswith('weighbridge')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["weighbridge", "weighbridge.pytest_plugin"]
