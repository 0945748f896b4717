"""A folder that a framework trained into is a run: its log is found, or the message names the file to bind."""

from __future__ import annotations

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


def test_of_another_folder_the_files_that_may_be_a_log_are_named(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n")
    with pytest.raises(
        SubjectError, match="a directory without steps.jsonl, trainer_state.json or metrics.csv"
    ) as told:
        open_run(tmp_path)
    assert told.value.remedy == "bind one file of it: 'log.csv'"
