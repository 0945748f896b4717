from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from weighbridge.recorder.run_directory import RowLog, write_run


def test_rows_wait_until_there_are_enough_of_them(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl", max_rows=3, max_seconds=3600.0)
    log.append({"step": 0})
    assert (tmp_path / "a.jsonl").read_text() == '{"step":0}\n'  # the first is written at once
    log.append({"step": 1})
    log.append({"step": 2})
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1
    log.append({"step": 3})
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 4
    log.append({"step": 4})
    log.close()
    assert [json.loads(line)["step"] for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_a_row_that_may_not_wait_takes_the_waiting_ones_with_it(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl", max_rows=100, max_seconds=3600.0)
    log.append({"step": 0})
    log.append({"step": 1})
    log.append({"step": 2}, now=True)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3
    log.close()


def test_a_forked_child_does_not_write_its_parents_rows_again(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl", max_rows=100, max_seconds=3600.0)
    log.append({"step": 0})
    log.append({"step": 1})
    log._pid += 1  # as a child sees it
    log.flush()
    os.close(log._descriptor)
    assert (tmp_path / "a.jsonl").read_text() == '{"step":0}\n'


def test_run_json_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_run(tmp_path, {"pid": object()})
    assert not (tmp_path / "run.json").exists()
    write_run(tmp_path, {"pid": 1})
    assert json.loads((tmp_path / "run.json").read_text()) == {"schema": "weighbridge.run/v0", "pid": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
