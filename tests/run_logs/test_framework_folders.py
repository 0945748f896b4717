"""A folder that a framework trained into is a run: its log is found, or the message names the file to bind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from weighbridge.core import SubjectError
from weighbridge.views.run import open_run


def state(path: Path, steps: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": at, "loss": 4.0 / at} for at in range(1, steps + 1)]
    path.write_text(json.dumps({"global_step": steps, "max_steps": 60, "log_history": rows}))


def metrics(path: Path, rows: int) -> None:
    path.mkdir(parents=True)
    (path / "hparams.yaml").write_text("{}\n")
    (path / "metrics.csv").write_text("step,train_loss\n" + "".join(f"{at},{4 / (at + 1)}\n" for at in range(rows)))


@pytest.mark.parametrize(
    ("states", "read", "rows"),
    [
        ({"trainer_state.json": 60, "checkpoint-40/trainer_state.json": 40}, "trainer_state.json", 60),
        ({"checkpoint-8/trainer_state.json": 8, "checkpoint-20/trainer_state.json": 20},
         "checkpoint-20/trainer_state.json", 20),
        ({"trainer_state.json": 40, "checkpoint-40/trainer_state.json": 40}, "trainer_state.json", 40),
    ],
)  # fmt: skip
def test_of_a_trainers_folder_the_newest_state_is_read(
    tmp_path: Path, states: dict[str, int], read: str, rows: int
) -> None:
    for name, steps in states.items():
        state(tmp_path / "out" / name, steps)
    (tmp_path / "out" / "model.safetensors").touch()
    run = open_run(tmp_path / "out")
    assert (run.rows, run.notes["log"], list(run.digests)) == (rows, read, [read])


def test_a_state_that_ends_before_a_checkpoint_is_no_log_of_it(tmp_path: Path) -> None:
    state(tmp_path / "trainer_state.json", 30)
    state(tmp_path / "checkpoint-500" / "trainer_state.json", 500)
    with pytest.raises(SubjectError, match=r"2 runs: trainer_state.json, checkpoint-500/trainer_state.json") as refused:
        open_run(tmp_path)
    assert refused.value.code == "several-runs"


def test_a_log_beside_a_trainers_is_another_run_unless_a_recorder_wrote_it(tmp_path: Path) -> None:
    state(tmp_path / "trainer_state.json", 30)
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "loss": 4.0}\n{"step": 1, "loss": 3.0}\n')
    with pytest.raises(SubjectError, match=r"2 runs: steps.jsonl, trainer_state.json"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": "weighbridge.run/v0"}')
    assert open_run(tmp_path).rows == 2


def test_a_version_of_lightnings_is_its_metrics_and_of_several_each_is_named(tmp_path: Path) -> None:
    metrics(tmp_path / "logs" / "version_0", 9)
    for folder in (tmp_path / "logs" / "version_0", tmp_path / "logs", tmp_path):
        assert open_run(folder).rows == 9
    metrics(tmp_path / "logs" / "version_1", 9)
    with pytest.raises(SubjectError, match=r"2 runs: version_0/metrics.csv, version_1/metrics.csv"):
        open_run(tmp_path / "logs")


def test_a_version_of_lightnings_without_metrics_logged_no_step(tmp_path: Path) -> None:
    version = tmp_path / "logs" / "version_0"
    (version / "checkpoints").mkdir(parents=True)
    (version / "hparams.yaml").write_text("{}\n")
    for folder in (version, tmp_path / "logs", tmp_path):
        with pytest.raises(SubjectError, match="no step was logged: Lightning wrote no metrics.csv") as told:
            open_run(folder)
        assert (told.value.code, told.value.where) == ("no-rows", str(version))
        assert told.value.remedy == "train with log_every_n_steps=1 (it is 50 by default), and self.log the loss"
    (tmp_path / "logs" / "version_1").mkdir()
    (tmp_path / "logs" / "version_1" / "hparams.yaml").write_text("{}\n")
    with pytest.raises(SubjectError, match="2 runs: version_0, version_1"):
        open_run(tmp_path / "logs")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "hparams.yaml").write_text("{}\n")  # by itself it is a sign of nothing
    with pytest.raises(SubjectError) as told:
        open_run(tmp_path / "other")
    assert told.value.code == "not-a-run"


@pytest.mark.parametrize("name", ["log.jsonl", "anything.csv", "train.log", "log.jsonl.gz"])
def test_a_folder_in_which_one_log_lies_is_that_run_and_of_several_each_is_named(tmp_path: Path, name: str) -> None:
    rows = "".join(f'{{"step": {at}, "loss": {4 / (at + 1)}}}\n' for at in range(9))
    if name.endswith(".csv"):
        rows = "step,loss\n" + "".join(f"{at},{4 / (at + 1)}\n" for at in range(9))
    (tmp_path / name).write_bytes(gzip.compress(rows.encode()) if name.endswith(".gz") else rows.encode())
    (tmp_path / "config.yaml").write_text("lr: 0.1\n")
    run = open_run(tmp_path)
    assert (run.rows, run.notes["log"], list(run.digests)) == (9, name, [name])
    (tmp_path / "other.csv").write_text("step,loss\n1,2\n")
    with pytest.raises(SubjectError, match=f"2 runs: {', '.join(sorted([name, 'other.csv']))}") as told:
        open_run(tmp_path)
    assert (told.value.code, told.value.remedy) == ("several-runs", "bind one of them")


def test_a_file_beside_runs_is_none_of_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps.jsonl").write_text('{"step": 0, "loss": 4.0}\n')
    (tmp_path / "summary.csv").write_text("run,loss\n1,2\n2,2\n")
    with pytest.raises(SubjectError, match="2 run directories: a, b"):
        open_run(tmp_path)
