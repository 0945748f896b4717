"""Two real ranks: which faults their agreement shows, and what ranks that are not all of one run come to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.weighing import Case, outcome

from weighbridge.core.errors import UsageError
from weighbridge.core.model import Outcome

pytest.importorskip("torch")
pytestmark = pytest.mark.exhaustive
RANKS: dict[str, Any] = {"kind": "replica-consistency", "subjects": {"run": "run"}}
REPLAY: dict[str, Any] = {"kind": "replay-determinism", "subjects": {"run": "run", "replay": "replay"}}
CHANGE: dict[str, Any] = {"kind": "one-change", "subjects": {"run": "run", "baseline": "replay"}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, root = tmp_path_factory.mktemp("replicas"), Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "tests.recorder.replicas", str(folder)], env=environment, check=True)
    return folder


def judged(tmp_path: Path, gate: dict[str, Any], *subjects: Path) -> list[tuple[Outcome, str, list[str]]]:
    targets = dict(zip(("run", "replay"), subjects, strict=False))
    case = Case(gate=gate, subjects={name: ("run", target) for name, target in targets.items()})
    verdicts = [finding.verdict for finding in case.evaluate(tmp_path).findings]
    return [(one.outcome, one.code, [f"{o.place}: {o.code}" for o in one.offences]) for one in verdicts]


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained / "clean", tmp_path / "copied")


def edited(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


# --- Ranks ------------------------------------------------------------------------------------------------------------


def test_two_ranks_of_one_model_agree_and_every_fault_of_one_is_found(trained: Path, tmp_path: Path) -> None:
    found = {case.name: judged(tmp_path, RANKS, case)[0] for case in sorted(trained.iterdir()) if case.is_dir()}
    differ = ["grad_norm: ranks-differ", "parameters_sum: ranks-differ"]
    passed: tuple[Outcome, str, list[str]] = (Outcome.PASS, "pass", [])
    assert found == {
        "clean": passed,
        "again": passed,
        "other-seed": passed,
        "bypassed": (Outcome.FAIL, "ranks-differ", differ),
        "no-sync": (Outcome.FAIL, "ranks-differ", differ),
        "clip-on-one": (Outcome.FAIL, "ranks-differ", differ[1:]),
        "flipped-bit": (Outcome.FAIL, "ranks-differ", differ[1:]),
        "same-shard": (Outcome.FAIL, "all-equal", ["loss: all-equal", "batch_crc: same-batch"]),
        "shared-loss": (Outcome.FAIL, "all-equal", ["loss: all-equal"]),
    }


def test_a_rank_that_is_there_twice_is_blocked(copied: Path, tmp_path: Path) -> None:
    shutil.rmtree(copied / "rank-1")
    shutil.copytree(copied / "rank-0", copied / "rank-1")
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "same-run", [])]


@pytest.mark.parametrize("other", ["again", "other-seed"])
def test_a_rank_of_another_run_is_blocked(copied: Path, trained: Path, other: str, tmp_path: Path) -> None:
    shutil.rmtree(copied / "rank-1")
    shutil.copytree(trained / other / "rank-1", copied / "rank-1")
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "not-one-run", [])]


def test_a_rank_that_is_missing_lets_no_gate_pass(copied: Path, tmp_path: Path) -> None:
    shutil.rmtree(copied / "rank-1")
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "no-ranks", [])]
    of_each = {"kind": "series-bound", "subjects": {"run": "run"}, "with": {"below": 99.0}}
    assert judged(tmp_path, of_each, copied) == [(Outcome.ERROR, "ranks-missing", [])]


def test_one_rank_and_the_run_of_one_process_are_blocked(copied: Path, tmp_path: Path) -> None:
    assert judged(tmp_path, RANKS, copied / "rank-0") == [(Outcome.BLOCKED, "no-ranks", [])]


def test_ranks_of_a_larger_run_are_blocked(copied: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        edited(copied / f"rank-{rank}" / "run.json", world_size=4)
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "ranks-missing", [])]


def test_ranks_in_the_wrong_order_are_blocked(copied: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        edited(copied / f"rank-{rank}" / "run.json", rank=1 - rank)
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "not-one-run", [])]


def test_a_rank_with_fewer_steps_is_blocked(copied: Path, tmp_path: Path) -> None:
    log = copied / "rank-1" / "steps.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-2]))
    assert judged(tmp_path, RANKS, copied) == [(Outcome.BLOCKED, "one-sided", [])]


def test_a_log_that_is_damaged_is_an_error(copied: Path, tmp_path: Path) -> None:
    log = copied / "rank-1" / "steps.jsonl"
    log.write_text('{"step": 0, "lo\n' + log.read_text())
    assert judged(tmp_path, RANKS, copied) == [(Outcome.ERROR, "log-syntax", [])]


def test_a_run_with_ranks_inside_is_refused(copied: Path, tmp_path: Path) -> None:
    shutil.copy(copied / "rank-0" / "steps.jsonl", copied / "steps.jsonl")
    assert judged(tmp_path, RANKS, copied) == [(Outcome.ERROR, "several-runs", [])]


def test_a_folder_of_ranks_has_every_rank_judged(trained: Path, tmp_path: Path) -> None:
    gate = {"kind": "series-bound", "subjects": {"run": "run"}, "with": {"below": 99.0}}
    assert judged(tmp_path, gate, trained / "clean") == [(Outcome.PASS, "pass", [])] * 2


# --- Replays ----------------------------------------------------------------------------------------------------------


def test_a_replay_is_the_same_and_another_seed_is_not(trained: Path, tmp_path: Path) -> None:
    assert judged(tmp_path, REPLAY, trained / "clean", trained / "again") == [(Outcome.PASS, "pass", [])] * 2
    for outcome_, code, places in judged(tmp_path, REPLAY, trained / "clean", trained / "other-seed"):
        assert (outcome_, code, places[0]) == (Outcome.FAIL, "parts", "loss: parts")


def test_a_copy_is_no_replay_not_even_where_it_was_cut_short(trained: Path, copied: Path, tmp_path: Path) -> None:
    log = copied / "rank-1" / "steps.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-2]))
    assert judged(tmp_path, REPLAY, trained / "clean", copied) == [(Outcome.BLOCKED, "same-run", [])] * 2


def test_a_run_is_not_its_own_replay(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with itself"):
        judged(tmp_path, REPLAY, trained / "clean", trained / "clean")


def test_a_replay_that_ended_early_is_compared_where_both_are(trained: Path, tmp_path: Path) -> None:
    run, replay = trained / "clean" / "rank-0", shutil.copytree(trained / "again" / "rank-0", tmp_path / "replay")
    log = replay / "steps.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-2]))
    assert judged(tmp_path, REPLAY, run, replay) == [(Outcome.BLOCKED, "one-sided", [])]
    window = {"measure": {"steps": [0, 12]}}
    assert judged(tmp_path, REPLAY | window, run, replay) == [(Outcome.PASS, "pass", [])]


def test_a_tolerance_is_for_what_is_not_whole(trained: Path, tmp_path: Path) -> None:
    run, replay = trained / "clean" / "rank-0", shutil.copytree(trained / "again" / "rank-0", tmp_path / "replay")
    log, tolerant = replay / "steps.jsonl", {"with": {"within": 1e-6}}
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows[7]["loss"] += 1e-9
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert judged(tmp_path, REPLAY, run, replay) == [(Outcome.FAIL, "parts", ["loss: parts"])]
    assert judged(tmp_path, REPLAY | tolerant, run, replay) == [(Outcome.PASS, "pass", [])]
    rows[7]["batch_crc"] += 1
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert judged(tmp_path, REPLAY | tolerant, run, replay) == [(Outcome.FAIL, "parts", ["batch_crc: parts"])]


def test_the_tensor_that_parts_first_is_named(trained: Path, tmp_path: Path) -> None:
    folders = [shutil.copytree(trained / case / "rank-0", tmp_path / case) for case in ("clean", "again")]
    for at, folder in enumerate(folders):
        rows: list[dict[str, Any]] = [
            {"step": step, "name": name, "grad": 1.0 + step} for step in (0, 1, 2) for name in ("a", "b")
        ]
        rows[3]["grad"] += at / 8
        (folder / "layers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    case = Case(gate=REPLAY, subjects=dict(zip(("run", "replay"), (("run", one) for one in folders), strict=True)))
    (finding,) = case.evaluate(tmp_path).findings
    (offence,) = finding.verdict.offences
    assert (offence.place, offence.figures["tensor"], offence.figures["replay"]) == ("layers:grad", "b", 2.125)
    (folders[1] / "layers.jsonl").write_text((folders[0] / "layers.jsonl").read_text().rpartition("{")[0])
    assert outcome(case.evaluate(tmp_path)) == (Outcome.BLOCKED, "one-sided")


# --- One change -------------------------------------------------------------------------------------------------------


def test_another_seed_is_one_change_where_it_was_declared(trained: Path, tmp_path: Path) -> None:
    folders = [shutil.copytree(trained / case / "rank-0", tmp_path / case) for case in ("other-seed", "clean")]
    for folder in folders:
        edited(folder / "run.json", dirty=False, commit="c0ffee0")
    assert judged(tmp_path, CHANGE, *folders) == [(Outcome.FAIL, "undeclared", ["seeds.torch: undeclared"])]
    declared = {"with": {"change": "seeds.*"}}
    assert judged(tmp_path, CHANGE | declared, *folders) == [(Outcome.PASS, "pass", [])]
    edited(folders[0] / "run.json", dirty=True)
    assert judged(tmp_path, CHANGE | declared, *folders) == [(Outcome.BLOCKED, "unknown-code", [])]
