"""Logs of every kind are read into one view, and whatever is broken is one clear error."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Origin
from weighbridge.run_logs import log_file
from weighbridge.run_logs.formats import csv_log
from weighbridge.views.run import RunView, open_run

ROWS = [{"step": step, "loss": 3.0 - step / 8, "wall_ms": 10.5 + step} for step in range(4)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
LOGS = {
    "a.jsonl": LINES,
    "a.json": "one line of banner\n" + json.dumps({"metrics": {"rows": ROWS}}, indent=1),
    "a.csv": "step,loss,wall_ms\n" + "".join(f"{r['step']},{r['loss']},{r['wall_ms']}\n" for r in ROWS),
}
FLIPS = settings(max_examples=150)


def samples(view: RunView, name: str) -> list[tuple[int, float]]:
    column = view.column(name)
    assert column is not None
    return list(zip(column.step, column.value, strict=True))


@pytest.mark.parametrize("name", LOGS)
def test_every_format_gives_the_same_columns(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(LOGS[name])
    view = open_run(tmp_path / name)
    assert view.column_names == ("step", "loss", "wall_ms")
    assert samples(view, "wall_ms") == [(0, 10.5), (1, 11.5), (2, 12.5), (3, 13.5)]
    assert view.origin is Origin.FIXTURE
    assert list(view.digest()) == [name]


@pytest.mark.slow
@FLIPS
@given(name=st.sampled_from(sorted(LOGS)), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_byte_changed_gives_a_view_or_one_clear_error(name: str, at: int, byte: int, tmp_path: Path) -> None:
    data = bytearray(LOGS[name].encode())
    data[at % len(data)] = byte
    (tmp_path / name).write_bytes(data)
    try:
        view = open_run(tmp_path / name)
    except SubjectError as error:
        printed = bool(error.what) and error.where.startswith(str(tmp_path))
    else:
        printed = all(view.column(column) is not None for column in view.column_names)
    assert printed


def test_nan_is_a_sample_and_a_missing_cell_is_absent(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 0, "loss": NaN}\n{"step": 1, "loss": null}\n{"step": 2}\n')
    column = open_run(tmp_path / "a.jsonl").column("loss")
    assert column is not None
    assert (list(column.step), column.missing) == ([0], 2)
    assert math.isnan(column.value[0])


def test_a_column_map_goes_before_the_known_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 0, "loss": 1.0, "mine": 2.0}\n')
    assert samples(open_run(tmp_path / "a.jsonl", {"loss": "mine"}), "loss") == [(0, 2.0)]


def test_a_column_s_own_name_goes_before_what_others_call_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"train_loss": 9.0, "iteration": 7, "step": 0, "loss": 1.0}\n')
    view = open_run(tmp_path / "a.jsonl")
    assert samples(view, "loss") == [(0, 1.0)]
    assert samples(view, "train_loss") == [(0, 9.0)]
    assert samples(view, "iteration") == [(0, 7.0)]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_every_row_is_read_whatever_the_size_of_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(csv_log, "CHUNK", 3)
    monkeypatch.setattr(log_file, "BLOCK", 64)
    late = [{"step": step, "loss": 3.0 - step / 8, "late": step if step > 4 else None} for step in range(11)]
    rows = [{key: value for key, value in row.items() if value is not None} for row in late]
    lines = {
        ".csv": ["step,loss,late", *(",".join(str(row.get(key, "")) for key in late[0]) for row in rows)],
        ".jsonl": [json.dumps(row) for row in rows],
    }
    path = tmp_path / f"a{suffix}"
    path.write_text("".join(f"{line}\n" for line in lines[suffix]))
    view = open_run(path)
    assert view.rows == len(rows)
    assert samples(view, "loss") == [(row["step"], row["loss"]) for row in rows]
    assert samples(view, "late") == [(step, step) for step in range(5, 11)]


def test_every_event_is_read_whatever_the_size_of_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "BLOCK", 64)
    (tmp_path / "steps.jsonl").write_text(LINES)
    events = [{"event": "device", "step": step} for step in range(9)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert list(open_run(tmp_path).events) == events


def test_overlays_leave_the_log_untouched(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES)
    view = open_run(tmp_path / "a.jsonl")
    placed = view.cut([1, 3]).overlaid(1, "loss", 99.0)
    assert samples(placed, "loss") == [(1, 2.875), (3, 99.0)]
    assert samples(view.overlaid(0, "loss", None), "loss")[0] == (1, 2.875)
    assert samples(view, "loss")[3] == (3, 2.625)


@each(
    "name, text, code, where",
    [
        ("a.jsonl", "", "empty-file", "a.jsonl"),
        ("a.jsonl", "\n\n", "no-rows", "a.jsonl"),
        ("a.jsonl", '{"step": 0}\n{"st\n{"step": 2}\n', "log-syntax", "a.jsonl:2"),
        ("a.jsonl", '{"step": 0, "step": 1}\n', "log-syntax", "a.jsonl:1"),
        ("a.jsonl", '{"step": 0}\n[1]\n', "log-syntax", "a.jsonl:2"),
        ("a.json", '{"a": ' * 100_000, "log-syntax", "a.json:1"),
        ("a.json", '{"rows": [{"a": "b"}]}', "no-rows", "a.json"),
        ("a.csv", "step,loss\n0,1\n1\n2,3\n", "log-syntax", "a.csv:3"),
        ("a.csv", "step,loss\n0,1\n1\n", "log-syntax", "a.csv:3"),
        ("a.csv", "step,step\n0,1\n", "log-syntax", "a.csv:1"),
        ("a.csv", "step,loss\n", "no-rows", "a.csv"),
        ("a.jsonl", "{" + "x" * (1 << 21), "line-too-long", "a.jsonl:1"),
    ],
)
def test_what_is_broken_is_reported_with_its_line(name: str, text: str, code: str, where: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SubjectError) as caught:
        open_run(tmp_path / name)
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path / where))


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(SubjectError) as caught:
        open_run(tmp_path / "a.jsonl")
    assert caught.value.code == "not-a-file"


@pytest.mark.parametrize(
    ("left_out", "origin"),
    [
        ("", Origin.REPORTED),
        ("pid", Origin.FIXTURE),
        ("commit", Origin.FIXTURE),
        ("dirty", Origin.FIXTURE),
        ("started", Origin.FIXTURE),
    ],
)
def test_only_complete_provenance_is_more_than_a_fixture(left_out: str, origin: Origin, tmp_path: Path) -> None:
    head = {"schema": "weighbridge.run/v0", "pid": 7, "host": "host-0", "resolved_device": "cpu", "commit": "0",
            "dirty": False, "started": "2026-01-02T03:04:05.678+01:00"}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps({key: value for key, value in head.items() if key != left_out}))
    (tmp_path / "steps.jsonl").write_text(LINES + '{"step": 4, "lo')
    view = open_run(tmp_path)
    assert (view.origin, view.rows, view.notes) == (origin, 4, {"torn_last_line": 5})
    assert view.started == ("" if left_out else "2026-01-02T02:04:05.678Z")


@pytest.mark.parametrize("change", [{"dirty": True}, {"dirty": None}, {"started": "yesterday"},
                                    {"started": "2026-01-02T03:04:05"}])  # fmt: skip
def test_a_changed_tree_or_a_start_without_a_zone_is_a_fixture(change: dict[str, object], tmp_path: Path) -> None:
    head = {"schema": "weighbridge.run/v0", "pid": 7, "host": "host-0", "resolved_device": "cpu", "commit": "0",
            "dirty": False, "started": "2026-01-02T03:04:05Z"}  # fmt: skip
    (tmp_path / "steps.jsonl").write_text(LINES)
    (tmp_path / "run.json").write_text(json.dumps(head))
    assert open_run(tmp_path).origin is Origin.REPORTED
    (tmp_path / "run.json").write_text(json.dumps(head | change))
    assert open_run(tmp_path).origin is Origin.FIXTURE


def test_an_unknown_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "weighbridge.run/v9"}')
    (tmp_path / "steps.jsonl").write_text(LINES)
    with pytest.raises(SubjectError, match=r"run-schema schema 'weighbridge\.run/v9' is not known"):
        open_run(tmp_path)


@pytest.mark.slow
def test_a_banner_of_lines_that_begin_like_json_costs_no_more_than_its_length(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    banner = '{not json\n[2026-04-26 12:00] start\n{"a": 1}\n{"unclosed\n' * 25_000
    path.write_text(banner + '[\n{"step": 1, "loss": 2.5}\n]')
    view = open_run(path)
    assert (view.rows, view.notes["banner_lines"]) == (1, 100_000)


def test_openings_that_nothing_closes_are_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a":\nx\n' * 100_000)
    with pytest.raises(SubjectError) as refused:
        open_run(path)
    assert (refused.value.code, refused.value.what) == ("log-syntax", "not a row of JSON: expecting value")


def test_too_many_columns_of_csv_are_refused_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"c{n}" for n in range(100_000)) + "\n" + ",".join(["1.5"] * 100_000) + "\n")
    with pytest.raises(SubjectError) as refused:
        open_run(path)
    assert (refused.value.code, refused.value.what) == ("too-large", "0 rows of 100000 columns and more")


def test_doubled_columns_of_csv_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,loss,lr,loss\n1,2,3,4\n")
    with pytest.raises(SubjectError) as refused:
        open_run(path)
    assert refused.value.what == "two columns are called 'loss'"


def test_a_recorder_s_step_without_an_update_is_idle_unless_a_gradient_was_not_finite(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"step": step, "loss": 1.0, "grad_norm": 0.5} for step in range(5)]
    rows[1] = {"step": 1, "loss": 1.0, "skipped": True, "gradients_finite": 0}
    rows[2] = {"step": 2, "loss": 1.0, "skipped": True, "gradients_finite": 1}
    rows[3] = {"step": 3, "loss": 1.0}  # the recorder failed: unknown
    rows[4] = {"step": 4, "loss": 1.0, "skipped": True}
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not {"skipped", "idle_update"} & set(open_run(tmp_path).column_names)  # anybody's log
    (tmp_path / "run.json").write_text('{"schema": "weighbridge.run/v0"}')
    view = open_run(tmp_path)
    assert samples(view, "skipped") == [(0, 0.0), (1, 1.0), (2, 1.0), (4, 1.0)]
    assert samples(view, "idle_update") == [(0, 0.0), (1, 0.0), (2, 1.0), (4, 1.0)]


def test_a_recorder_s_run_without_any_gradient_norm_is_idle_throughout(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "loss": 1.0}\n{"step": 1, "loss": 1.0}\n')
    (tmp_path / "run.json").write_text('{"schema": "weighbridge.run/v0"}')
    assert samples(open_run(tmp_path), "idle_update") == [(0, 1.0), (1, 1.0)]
