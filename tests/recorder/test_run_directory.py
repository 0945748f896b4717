from __future__ import annotations

import errno
import json
import math
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from weighbridge.recorder import run_directory
from weighbridge.recorder.run_directory import ENCODED, RowLog, encoded, write_run


def steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_row_is_in_the_file_as_soon_as_it_is_recorded(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl")
    for step in range(3):
        log.append({"step": step})
        assert steps(tmp_path / "a.jsonl") == list(range(step + 1))
    log.close()


def test_a_log_that_is_there_is_nobody_elses_to_write(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl")
    with pytest.raises(FileExistsError):
        RowLog(tmp_path / "a.jsonl")
    log.close()


def test_a_forked_child_does_not_write_its_parents_rows_again(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "a.jsonl")
    log.append({"step": 0})
    child = os.fork()
    if not child:
        log.append({"step": 1})
        os._exit(0)
    os.waitpid(child, 0)
    log.append({"step": 2})
    log.close()
    assert steps(tmp_path / "a.jsonl") == [0, 2]


@pytest.fixture
def full_disk() -> Iterator[Callable[[int], None]]:
    """A limit on the size of files, which the kernel keeps as it keeps a full disk: half a line, then an error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_for_a_while_leaves_whole_lines_and_costs_no_row(
    tmp_path: Path, full_disk: Callable[[int], None]
) -> None:
    log = RowLog(tmp_path / "a.jsonl")
    full_disk(25)  # two lines of eleven bytes, and three bytes of the next
    for step in range(5):
        log.append({"step": step})
        assert (log.problem is not None) == (step >= 2)
        assert steps(tmp_path / "a.jsonl") == list(range(min(step + 1, 2)))
    full_disk(resource.RLIM_INFINITY)
    log.append({"step": 5})
    assert (log.problem, log.lost) == (None, 0)
    log.close()
    assert steps(tmp_path / "a.jsonl") == list(range(6))


def test_rows_that_can_wait_no_longer_are_counted_as_lost(
    tmp_path: Path, full_disk: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "MAX_WAITING", 2)
    log = RowLog(tmp_path / "a.jsonl")
    full_disk(5)
    for step in range(4):
        log.append({"step": step})
    assert log.lost == 2
    full_disk(resource.RLIM_INFINITY)
    log.close()
    assert (log.lost, steps(tmp_path / "a.jsonl")) == (2, [0, 1])


def test_nothing_is_written_behind_half_a_line_that_cannot_be_taken_back(
    tmp_path: Path, full_disk: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    log = RowLog(tmp_path / "a.jsonl")
    full_disk(5)
    log.append({"step": 0})
    full_disk(resource.RLIM_INFINITY)
    log.append({"step": 1})
    log.close()
    assert (log.lost, (tmp_path / "a.jsonl").read_text()) == (2, '{"ste')


def test_run_json_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_run(tmp_path, {"pid": object()})
    assert not (tmp_path / "run.json").exists()
    write_run(tmp_path, {"pid": 1})
    assert json.loads((tmp_path / "run.json").read_text()) == {"schema": "weighbridge.run/v0", "pid": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    "row",
    [
        {"step": 3, "loss": 0.1 + 0.2, "least": 5e-324, "large": 1e308, "larger": 1.7e308, "none": -0.0, "many": 2**70},
        {"step": 0, "loss": math.nan, "norm": math.inf, "other": -math.inf},
        {"step": 0, "skipped": True},
        {"step": 0, 'val"loss': 1.0, "val/loss": 2.0, "\n": 3.0, "\\": 4.0},
        {"step": 0, "größe": 1.0, "\ud800": 2.0},
        {"step": 0, "name": "a", "rows": [1.0], "why": None, "of": {"a": 1}},
        {"": 1.0},
        {},
    ],
)
def test_a_row_of_numbers_is_written_as_any_other_is(row: dict[str, Any]) -> None:
    assert encoded(row) == ENCODED(row)
