"""A run before, at and after a step."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

from weighbridge.core import SubjectKind, UsageError
from weighbridge.evaluation.around_step import Autopsy, autopsy, layers_of
from weighbridge.evaluation.inspection import opened

__all__ = ["cli"]

AT = 120


def write(folder: Path, *, layers: bool = True, ends: float = 30.0) -> Path:
    folder.mkdir()
    steps = [
        {"step": step, "loss": 5.5 * math.exp(-step / 90) + 0.01 * (step % 3), "lr": 0.5, "wall_ms": 40.0}
        for step in range(150)
    ]
    steps[AT] |= {"loss": ends, "wall_ms": 4000.0}
    known = {"weight": 4.0, "update": 0.5}
    norms = [
        {"step": step, "name": f"h.{layer}.w", "grad_used": 0.0 if layer and step >= AT else 2.0, **known}
        for step in range(0, 150, 5)
        for layer in (0, 1)
    ]
    files = {"steps.jsonl": steps} | ({"layers.jsonl": norms} if layers else {})
    for name, rows in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "run.json").write_text(json.dumps({"schema": "weighbridge.run/v0"}))
    return folder


def looked(run: Path, step: int) -> Autopsy:
    view = opened(str(run), SubjectKind.RUN)
    return autopsy(view, step, layers_of(view))


def test_what_changed_most_is_first_and_what_a_step_cost_is_last(tmp_path: Path) -> None:
    found = looked(write(tmp_path / "run"), AT)
    assert [one.name for one in found.columns if one.name in ("loss", "lr", "wall_ms")] == ["loss", "lr", "wall_ms"]
    loss, lr, *_ = found.columns
    assert (loss.at, lr.times) == (30.0, 1.0)
    assert loss.following == pytest.approx(5.5 * math.exp(-(AT + 1) / 90) + 0.01)
    assert loss.before == pytest.approx(5.5 * math.exp(-(AT - 10.5) / 90) + 0.01, rel=0.02)
    assert found.layers_at == AT
    assert (found.layers[0].name, found.layers[0].before, found.layers[0].at) == ("gradient h.1", 2.0, 0.0)


def test_a_step_that_is_not_finite_is_the_farthest_and_is_no_number(tmp_path: Path) -> None:
    found = looked(write(tmp_path / "run", ends=math.nan), AT)
    assert found.columns[0].name == "loss"
    assert math.isnan(found.columns[0].at or 0)
    assert found.columns[0].change == math.inf


def test_the_first_and_last_step_have_nothing_before_and_after(tmp_path: Path) -> None:
    run = write(tmp_path / "run", layers=False)
    first, last = looked(run, 0).columns, looked(run, 149).columns
    assert {(one.before, one.last, one.times) for one in first} == {(None, None, None)}
    assert {(one.following, one.after) for one in last} == {(None, None)}
    with pytest.raises(UsageError, match="unknown-step the run logs steps 0 to 149, and not step 150"):
        looked(run, 150)


def test_the_step_that_a_gate_names_is_looked_at_in_80_columns(cli: Cli, tmp_path: Path) -> None:
    ended = cli("autopsy", write(tmp_path / "run"))
    assert ended.code == 0
    assert ended.lines[0] == f"{tmp_path / 'run'}: step {AT}, named by GATE-DIAG-4.1"
    assert [line for line in ended.lines[1:] if len(line) > 80] == []
    assert any(line.startswith("loss ") for line in ended.lines)
    assert any(line.startswith("gradient h.1 ") for line in ended.lines)


def test_of_a_run_that_no_gate_names_a_step_of_one_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    run = write(tmp_path / "run", layers=False, ends=2.0)
    ended = cli("autopsy", run)
    assert (ended.code, "no-step" in ended.err) == (2, True)
    ended = cli("autopsy", run, "--step", "60", "--all", "--json")
    assert (ended.code, json.loads(ended.out)["layers_at"]) == (0, None)
    assert "layers are not recorded" in cli("autopsy", run, "--step", "60").out
