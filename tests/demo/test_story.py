from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

torch = pytest.importorskip("torch")

from weighbridge.contract.load import load_contract  # noqa: E402

CUDA = torch.cuda.is_available()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "story"


@pytest.fixture(scope="module")
def demo(folder: Path) -> str:
    command = (sys.executable, "-m", "weighbridge", "demo", "--dir", str(folder))
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def step(demo: str, begins: str) -> str:
    """Cut out what the step whose command begins so has printed, its exit line included."""
    (found,) = [part for part in demo.split("\n== ") if part.partition("\n$ ")[2].startswith(begins)]
    return found


def test_every_step_ends_as_it_must(demo: str) -> None:
    exits = re.findall(r"^\[exit (.*)\]$", demo, re.MULTILINE)
    assert exits == ["0", "0", "0", "1", "0", "1", "0", "1", "0", "0", "0"]
    assert demo.rstrip().splitlines()[-1] == "every step ended as expected"


def test_the_corpus_is_wrapped_once_and_that_is_reported(demo: str) -> None:
    part = step(demo, "weighbridge verify builtin:training-run")
    assert re.search(r"\nPASS +GATE-RUN-002  1 wraps?, 1 logged; \d+ tokens are 1\.\d\d epochs of \d+", part)
    gates = load_contract("builtin:training-run").contract.gates
    assert part.count("\nPASS     GATE-") == len(gates) - 9
    assert f"\n9 not applicable, {len(gates) - 9} passed of {len(gates)} -> exit 0 (passed)\n" in part


def test_no_column_of_the_run_has_too_few_samples_to_tell_from_noise(demo: str) -> None:
    part = step(demo, "weighbridge verify builtin:training-run")
    assert re.search(r"\nPASS +GATE-RUN-001  (\d+) of \1 columns in order over \d+ steps", part)
    assert "too few samples" not in " ".join(part.split())


def test_the_good_import_is_the_same_and_the_mislabelled_one_is_distinguished_by_mechanism(demo: str) -> None:
    assert "\nSAME: 53 of 53 tensors (" in step(demo, "weighbridge compare model.safetensors model.gguf")
    lying = step(demo, "weighbridge compare model.safetensors mislabelled.safetensors")
    assert "DIFFERENT: 53 of 53 tensors: 53 wrong dtype (bf16-bits-as-f16)" in lying


def test_two_backends_agree_and_a_dropped_bias_is_named_where_it_first_shows(demo: str) -> None:
    agree = step(demo, "weighbridge verify builtin:forward-parity --subject reference=models.py:reference "
                       "--subject candidate=models.py:numpy_backend --")  # fmt: skip
    assert "PASS     GATE-PARITY-001" in agree
    part = step(demo, "weighbridge verify builtin:forward-parity --subject reference=models.py:reference "
                      "--subject candidate=models.py:numpy_backend_without_a_bias")  # fmt: skip
    first = part.partition("FAIL     GATE-PARITY-001")[2].splitlines()[1]
    assert first.startswith("    L1.attn.q.post_bias: local error ")


@pytest.mark.skipif(CUDA, reason="this host has CUDA, so the gate can look")
def test_the_gate_that_needs_cuda_is_blocked_where_there_is_none(demo: str) -> None:
    assert demo.count("BLOCKED  GATE-PARITY-CUDA") == 4  # each once, and once in the table
    assert "the gate requires cuda: true on this host, found false" in demo
    assert "1 blocked, 1 passed of 2, 1 excused -> exit 0 (passed)" in demo


def test_evidence_and_ledger_lie_where_the_end_says(demo: str, folder: Path) -> None:
    places = dict(re.findall(r"^(bundles|ledger): +(.+)$", demo, re.MULTILINE))
    assert places == {"bundles": f"{folder}/evidence/bundles", "ledger": f"{folder}/evidence/ledger"}
    bundles = sorted(Path(places["bundles"]).iterdir())
    assert [re.sub(r"^\d{4}-\d\d-\d\d-|-[0-9a-f]{12}$", "", path.name) for path in bundles] == [
        "checkpoint-import", "forward-parity", "training-run"
    ]  # fmt: skip
    assert {path.name for path in Path(places["ledger"]).iterdir() if path.is_dir()} == {
        "checkpoint-import", "forward-parity", "training-run"
    }  # fmt: skip


def test_the_bundle_judges_again_and_the_gates_stand_where_it_says(demo: str) -> None:
    assert "1 of 1 finding follows from the measurements" in step(demo, "weighbridge evidence rejudge evidence/bundles")
    recorded = step(demo, "weighbridge verify builtin:checkpoint-import --subject source=model.safetensors "
                          "--subject import=model.gguf --record")  # fmt: skip
    # A checkout with changes of its own gives no live evidence, and says so.
    clean = "moved: none -> live: GATE-IMPORT-001" in recorded
    assert clean or "moved: none -> DRAFT (the tool had uncommitted changes): GATE-IMPORT-001" in recorded
    stands = "live" if clean else "DRAFT"
    assert re.search(rf"\ncheckpoint-import  GATE-IMPORT-001 +{stands}\n", step(demo, "weighbridge status"))


def test_the_run_and_the_checkpoint_are_files_that_other_tools_read(demo: str, folder: Path) -> None:
    assert demo
    steps = [json.loads(line) for line in (folder / "run" / "steps.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps] == list(range(len(steps)))
    assert steps[-1]["loss"] < steps[0]["loss"] / 1.5
