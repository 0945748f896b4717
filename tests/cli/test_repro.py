"""`weighbridge trace repro`: a script of one step runs alone, and tells the error that the bundle holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from tests.verifiers.stacks import MODELS  # noqa: E402

from weighbridge.cli import main, reproduction  # noqa: E402

__all__ = ["cli"]
pytestmark = pytest.mark.slow
GATE = ("verify", "builtin:forward-parity", "--gate", "GATE-PARITY-001", "--param", "other_weights=*")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Judge a stack whose bias was dropped; both lie in the project, so the bundle says where."""
    folder = tmp_path_factory.mktemp("judged")
    shutil.copy(MODELS / "tiny_gpt.py", folder / "gpt.py")
    bound = ("--subject", "reference=gpt.py:reference", "--subject", "candidate=gpt.py:bias_dropped")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["weighbridge", *GATE, *bound, "--evidence", "e"])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 1
    return folder


@pytest.fixture
def bundle(judged: Path, workplace: Path) -> Path:
    """Return that bundle in a copy of the project that a test may change."""
    shutil.copytree(judged, workplace, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (found,) = Path("e/bundles").iterdir()
    return found


def run(script: str) -> str:
    """Run a script where this project cannot be imported."""
    env = {key: one for key, one in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-I", script], check=True, capture_output=True, text=True, env=env)
    return done.stdout


def test_the_script_makes_the_step_again_and_tells_the_error_and_its_limit(cli: Cli, bundle: Path) -> None:
    ended = cli("trace", "repro", bundle)
    assert (ended.code, ended.out.splitlines()[1]) == (0, "$ python repro.py")
    script = Path("repro.py").read_text()
    assert "weighbridge" not in script
    assert script.startswith('"""L1.attn.q.post_bias: local error ')
    assert len(re.findall(r"^    \w+ = aten", script, re.MULTILINE)) <= 10
    printed = run("repro.py").splitlines()
    error, limit = map(float, re.findall(r"^candidate (\S+), limit (\S+)$", printed[0])[0])
    sealed = re.findall(r"local error (\S+),", script)[0]
    assert error == pytest.approx(float(sealed), rel=0.01)
    assert error > 1e5 * limit
    assert float(printed[1].rpartition(" ")[2]) < 1e-6


def test_a_point_that_is_in_order_can_be_named(cli: Cli, bundle: Path) -> None:
    assert cli("trace", "repro", bundle, "--point", "L2.ffn.swiglu", "--out", "swiglu.py").code == 0
    printed = run("swiglu.py")
    assert float(re.findall(r"^candidate (\S+), limit none: it passed$", printed, re.MULTILINE)[0]) < 1e-6


def test_what_is_not_the_measured_subject_is_refused(cli: Cli, bundle: Path) -> None:
    other = cli("trace", "repro", bundle, "--subject", "candidate=gpt.py:fused")  # the same file
    assert (other.code, "other-subject" in other.err) == (4, True)
    Path("gpt.py").write_text(Path("gpt.py").read_text() + "\n")
    changed = cli("trace", "repro", bundle)
    assert (changed.code, "other files, by their sha256" in changed.err) == (4, True)
    assert not Path("repro.py").exists()
    assert not Path("repro.safetensors").exists()


def test_what_cannot_be_meant_is_refused(cli: Cli, bundle: Path) -> None:
    refused = {("--point", "L9.x"): "unknown-point", ("--gate", "G-1"): "unknown-gate"}
    for words, code in {**refused, ("--subject", "other=x"): "unknown-subject"}.items():
        ended = cli("trace", "repro", bundle, *words)
        assert (ended.code, code in ended.err) == (2, True), ended.err
    (bundle / "verdicts.json").write_text("[]")
    assert cli("trace", "repro", bundle).code == 4


def test_a_subject_is_found_below_the_top_of_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    shutil.copy(MODELS / "tiny_gpt.py", tmp_path / "models" / "gpt.py")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path / "models")
    assert reproduction._here("models/gpt.py:reference") == f"{tmp_path}/models/gpt.py:reference"
    assert reproduction._here("gpt.py:reference") == "gpt.py:reference"
    assert reproduction._here("hf:models") == "hf:models"
