"""A log is followed from where it was: each byte once, whole lines alone, and as one reads all of it."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.watch.logs import GATES, HEAD, Writer, judges, rows

from weighbridge.core import SubjectError
from weighbridge.run_logs.json_log import ATTEMPT
from weighbridge.run_logs.log_file import batches
from weighbridge.views.run import RunView, open_run
from weighbridge.watch.following import WHOLE, FollowedFile, FollowedRun, Names


def same(one: RunView, other: RunView) -> bool:
    """Return whether two views hold the same rows, facts and events."""
    cells = [{name: (bytes(of.values), bytes(of.state)) for name, of in view.cells.items()} for view in (one, other)]
    rest = [(view.rows, view.logged_as, dict(view.facts), view.events, view.origin) for view in (one, other)]
    return cells[0] == cells[1] and rest[0] == rest[1]


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_came_in_pieces_of_bytes_is_the_run_that_is_read_at_once(tmp_path: Path, seed: int) -> None:
    draw, whole, grown = random.Random(seed), Writer(tmp_path / "whole"), Writer(tmp_path / "grown")
    for row in rows(60):
        whole.row(row | ({"val_loss": 2.5} if row["step"] % 7 == 0 else {}))
    run = FollowedRun(grown.path, {}, {})
    (grown.path / "events.jsonl").write_bytes((whole.path / "events.jsonl").read_bytes())
    data = whole_log = (whole.path / "steps.jsonl").read_bytes()
    while data:
        size = draw.randint(1, 900)
        with (grown.path / "steps.jsonl").open("ab") as file:
            file.write(data[:size])
        data = data[size:]
        run.look()
    assert same(run.view(), open_run(whole.path))
    assert run.notes == []
    steps = run.files[grown.path / "steps.jsonl"]
    assert (steps.whole, steps.digest.hexdigest()) == (len(whole_log), hashlib.sha256(whole_log).hexdigest())


def test_attempts_are_joined_as_a_reader_joins_them(tmp_path: Path) -> None:
    first = Writer(tmp_path / "run")
    run = FollowedRun(tmp_path / "run", {}, {})
    for row in rows(20):
        first.row(row)
        run.look()
    later = Writer(tmp_path / "run" / "attempt-2", HEAD | {"first_step": 15})
    run.look()
    for row in rows(20, 15):
        later.row(row)
        run.look()
    assert same(run.view(), open_run(tmp_path / "run"))
    assert run.generation == 1


def test_events_that_begin_in_a_folder_to_which_nothing_came_for_long_are_read(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text("{}\n")
    os.utime(tmp_path, (0, 10**9))
    run = FollowedRun(tmp_path, {}, {})
    for _ in range(3):
        run.look()
    assert (run.names.steady, run.logs[0].events) == (True, [])
    (tmp_path / "events.jsonl").write_text('{"event": "wrap"}\n')
    run.look()
    assert run.logs[0].events == [{"event": "wrap"}]


def test_a_folder_that_could_not_be_listed_once_is_listed_with_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attempt-2").mkdir()
    os.utime(tmp_path, (0, 10**9))
    names = Names(str(tmp_path), ATTEMPT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", Mock(side_effect=OSError(24, "Too many open files")))
        assert names() == ()
    assert names() == ("attempt-2",)


def test_the_numbers_of_a_row_are_those_of_the_view(tmp_path: Path) -> None:
    writer, run = Writer(tmp_path / "run"), FollowedRun(tmp_path / "run", {"wall_ms": "took_s"}, {"wall_ms": "s"})
    for row in rows(30):
        kept = row | {"took_s": row["wall_ms"] / 1000, "gradients_finite": 1, "iter_time": 3}
        if row["step"] in (7, 8):
            kept |= {"skipped": True, "gradients_finite": row["step"] - 7}
            del kept["grad_norm"]
        writer.row({key: value for key, value in kept.items() if key != "wall_ms"})
        run.look()
    view = run.view()
    for at in range(view.rows):
        assert run.numbers(at) == {name: of.values[at] for name, of in view.cells.items() if of.state[at] == 1}
    assert (run.numbers(7)["idle_update"], run.numbers(8)["idle_update"], run.numbers(9)["skipped"]) == (0.0, 1.0, 0.0)


def test_a_file_is_read_once_and_digested_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    file = FollowedFile(path)
    assert file.changed()
    assert [batch.lines for batch in file.more()] == [['{"a": 1}']]
    assert (file.whole, file.half) == (9, b'{"a"')
    assert file.digest.hexdigest() == hashlib.sha256(b'{"a": 1}\n').hexdigest()
    assert list(file.more()) == []
    path.write_text('{"a": 1}\n')  # a recorder takes half a line back where the disk is full
    assert (file.changed(), file.lost, list(file.more()), file.half) == (True, False, [], b"")
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert file.changed()
    assert [(batch.first, batch.lines) for batch in file.more()] == [(2, ['{"a": 2}'])]


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "run.jsonl"
    os.mkfifo(fifo)
    run = FollowedRun(fifo, {}, {})
    run.look()
    assert run.notes == [] or "is not followed" in run.notes[0]
    assert run.rows == 0


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * (3 << 20))
    file = FollowedFile(path)
    file.changed()
    with pytest.raises(SubjectError, match="a line longer than"):
        list(file.more())


@pytest.mark.parametrize("name", ["state.json", "run.txt", "log.csv.gz", "log"])
def test_a_log_of_which_a_line_is_no_row_is_not_followed_and_that_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({"log_history": []}))
    run = FollowedRun(path, {}, {})
    assert run.look()
    assert "is not followed" in run.notes[0]
    assert not run.look()
    assert len(run.notes) == 1


def test_a_recorder_that_comes_to_a_folder_of_others_is_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trainer_state.json").write_text(
        json.dumps({"log_history": [], "global_step": 0, "max_steps": 1})
    )
    run = FollowedRun(tmp_path / "run", {}, {})
    run.look()
    assert "is not followed" in run.notes[0]
    (tmp_path / "run" / "run.json").write_text('{"schema": "weighbridge.run/v0"}')
    for row in rows(3):
        with (tmp_path / "run" / "steps.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        run.look()
    assert (run.rows, run.problem) == (3, None)


def test_a_log_of_lines_in_the_folder_of_a_framework_is_followed_its_later_columns_too(tmp_path: Path) -> None:
    run, folder = FollowedRun(tmp_path / "run", {}, {}), tmp_path / "run" / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "events.out.tfevents.1.host").write_bytes(b"")
    run.look()
    assert run.notes == [f"{run.path} is not followed: its log is not one of JSON or CSV with a line a row; {WHOLE}"]
    with (folder / "metrics.csv").open("w", newline="") as log:
        log.write("epoch,step,train_loss\r\n")
        for step in range(20):
            log.write(f"0,{step},{4 - step / 10}\r\n")
            log.flush()
            run.look()
            assert (run.problem, run.rows, run.numbers(step)["loss"]) == (None, step + 1, 4 - step / 10)
    assert same(run.view(), open_run(run.path))
    with (folder / "metrics.csv").open("r+", newline="") as log:  # as Lightning does where a new name is logged
        log.write("epoch,step,train_loss,val_loss\r\n" + "".join(f"0,{at},{4 - at / 10},\r\n" for at in range(20)))
        log.write("0,20,,3.5\r\n")
    run.look()
    assert (run.problem, run.generation, run.rows) == (None, 1, 21)
    assert same(run.view(), open_run(run.path))
    assert run.files[folder / "metrics.csv"].befell == ["got another header"]


def test_the_row_of_a_log_in_a_folder_stops_the_run_with_its_step(tmp_path: Path) -> None:
    of, log = judges(tmp_path, tmp_path / "run", GATES), tmp_path / "run" / "metrics.csv"
    log.parent.mkdir()
    log.write_text("step,loss,grad_norm\n")
    for row in rows(40):
        with log.open("a") as file:
            file.write(f"{row['step']},{'nan' if row['step'] == 30 else row['loss']},{row['grad_norm']}\n")
        if stop := of.look(float(row["step"])):
            break
    assert (row["step"], stop and (stop.gate, stop.step)) == (30, ("METRICS", 30))


def test_a_log_whose_writer_is_faster_than_its_reader_is_read_as_far_as_it_went_at_first(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"a": 1}\n' * (1 << 17))
    rows = 0
    for batch in batches(path, {}):
        rows += len(batch.lines)
        with path.open("a") as file:
            file.write('{"a": 1}\n' * (1 << 18))
    assert rows == 1 << 17
