"""A run that a witness stopped is recorded no further before somebody released it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from weighbridge.recorder import Recorder  # noqa: E402 -- it needs torch


def test_the_recorder_records_nothing_where_a_run_was_stopped_and_names_gate_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "STOP.json").write_text('{"gate": "GATE-LOSS", "step": 4}')
    model = torch.nn.Linear(2, 2)
    with (
        pytest.warns(RuntimeWarning, match="stopped: this run was ended by GATE-LOSS; .*--release REASON"),
        Recorder(tmp_path, model) as rec,
    ):
        rec.step(1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["STOP.json"]


def test_a_recorder_that_is_to_raise_refuses_a_stopped_run_before_training(tmp_path: Path) -> None:
    (tmp_path / "STOP.json").write_text("no JSON")
    with pytest.raises(FileExistsError, match="stopped"), Recorder(tmp_path, torch.nn.Linear(2, 2), on_fail="raise"):
        pytest.fail("trained on")
