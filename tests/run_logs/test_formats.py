"""What others log is read by its own format: as its library writes it, and broken in every way that files break."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sqlite3
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import SubjectKind
from weighbridge.evaluation.inspection import kind_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.run_logs import log_file
from weighbridge.run_logs.formats.record_files import masked
from weighbridge.verifiers.run_facts import VERIFIER
from weighbridge.views.run import RunView, open_run

SAMPLES = Path(__file__).parent / "samples"
TENSORBOARD = SAMPLES / "tensorboardx.tfevents"
LOSSES = [4.0323832764833165, 3.735506494, 3.473505]


def numbers(view: RunView, name: str) -> list[tuple[int, float]]:
    column = view.column(name)
    assert column is not None, (name, view.column_names)
    return list(zip(column.step, column.value, strict=True))


def facts(view: RunView) -> dict[str, Any]:
    return {fact.name: fact.value for fact in rows_of(VERIFIER.measure((view,), {}), Fact)}


def refused(path: Path, **how: Any) -> SubjectError:
    with pytest.raises(SubjectError) as caught:
        open_run(path, **how)
    return caught.value


def record(event: bytes) -> bytes:
    head = struct.pack("<Q", len(event))
    return head + struct.pack("<I", masked(head)) + event + struct.pack("<I", masked(event))


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    many = bytearray()
    while number > 0x7F:
        many.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*many, number])


def event(when: float, step: int, tag: str, value: float) -> bytes:
    inside = b"\n" + varint(len(tag)) + tag.encode() + b"\x15" + struct.pack("<f", value)
    summary = b"\n" + varint(len(inside)) + inside
    return record(b"\t" + struct.pack("<d", when) + b"\x10" + varint(step) + b"*" + varint(len(summary)) + summary)


# --- As the libraries write them --------------------------------------------------------------------------------------


@each("name", ["tensorboardx.tfevents", "torch.tfevents", "run-eight.wandb", "mlflow"])
def test_what_a_library_wrote_is_read_as_it_was_logged(name: str) -> None:
    view = open_run(SAMPLES / name)
    losses = numbers(view, "loss")
    assert [step for step, _ in losses] == list(range(8 if "eight" in name else 12))
    assert losses[0][1] == pytest.approx(LOSSES[0], rel=1e-6)
    assert view.rows == len(losses)
    assert "steps_are_row_numbers" not in view.notes
    assert view.digest()


def test_scalars_at_their_own_cadence_are_sparse_columns() -> None:
    view = open_run(TENSORBOARD)
    assert view.column_names == ("step", "loss", "lr", "grad_norm", "val_loss")
    assert [step for step, _ in numbers(view, "eval/loss")] == [3, 7, 11]
    assert [step for step, _ in numbers(open_run(SAMPLES / "mlflow"), "val_loss")] == [3, 7, 11]


def test_nan_in_a_run_of_w_and_b_is_a_number_that_was_logged() -> None:
    ((step, value),) = numbers(open_run(SAMPLES / "run-eight.wandb"), "bad")
    assert (step, math.isnan(value)) == (3, True)


def test_how_a_run_ended_is_known_by_its_format(tmp_path: Path) -> None:
    assert facts(open_run(SAMPLES / "mlflow"))["ended"] == "ended"
    assert facts(open_run(SAMPLES / "run-eight.wandb"))["ended"] == "ended"
    shutil.copytree(SAMPLES / "mlflow", tmp_path / "run")
    meta = tmp_path / "run" / "meta.yaml"
    for status, ended in (("1", "going"), ("4", "raised"), ("5", "killed")):
        meta.write_text((SAMPLES / "mlflow" / "meta.yaml").read_text().replace("status: 3", f"status: {status}"))
        assert facts(open_run(tmp_path / "run"))["ended"] == ended
    rows = [{"current_steps": step, "total_steps": 30, "loss": 9 / step, "percentage": step / 0.3} for step in (10, 20)]
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = facts(open_run(log))
    assert (found["ended"], found["requested_steps"], found["last_step"]) == ("unknown", 30, 20)
    log.write_text(log.read_text() + json.dumps({**rows[0], "current_steps": 30}) + "\n")
    assert facts(open_run(log))["ended"] == "ended"


# --- Event files ------------------------------------------------------------------------------------------------------


def test_the_sum_of_a_record_is_that_of_the_standard() -> None:
    crc = (masked(b"123456789") - 0xA282EAD8) & 0xFFFFFFFF
    assert (crc >> 17 | crc << 15) & 0xFFFFFFFF == 0xE3069283


def test_a_resumed_run_and_its_evaluations_are_joined_in_the_order_of_time(tmp_path: Path) -> None:
    training = b"".join(event(10.0 + step, step, "loss", step) for step in range(5))
    resumed = b"".join(event(30.0 + step, step, "loss", step) for step in range(3, 8))
    evaluations = b"".join(event(10.5 + step + 20 * (step > 4), step, "eval", step) for step in (2, 4, 6))
    for name, data in (("1", training), ("2", evaluations), ("3", resumed)):
        (tmp_path / f"events.out.tfevents.{name}").write_bytes(data)
    view = open_run(tmp_path)
    assert [step for step, _ in numbers(view, "loss")] == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7]
    assert [step for step, _ in numbers(view, "eval")] == [2, 4, 6]
    assert len(view.digest()) == 3


def test_two_runs_in_two_folders_are_named_and_never_mixed(tmp_path: Path) -> None:
    for place in ("a", "a/two_b", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "events.out.tfevents.1").write_bytes(event(1.0, 0, "loss", 2.0))
    problem = refused(tmp_path)
    assert (problem.code, problem.what) == ("several-runs", "2 runs: a, b")
    assert open_run(tmp_path / "a").column_names == ("step", "loss", "two_b/loss")
    for place in ("run-1-x", "offline-run-2-y"):
        (tmp_path / "w" / place).mkdir(parents=True)
        shutil.copy(SAMPLES / "run-eight.wandb", tmp_path / "w" / place / f"{place}.wandb")
    assert refused(tmp_path / "w").code == "several-runs"
    assert open_run(tmp_path / "w" / "run-1-x").rows == 8


def test_a_torn_tail_is_noted_at_every_length_and_costs_no_whole_record(tmp_path: Path) -> None:
    whole = [event(1.0 + step, step, "loss", 4.0 - step) for step in range(3)]
    path = tmp_path / "events.out.tfevents.1"
    start = len(b"".join(whole[:2]))
    for cut in range(1, len(whole[2])):
        path.write_bytes(b"".join(whole)[: start + cut])
        view = open_run(path)
        assert (view.rows, view.notes) == (2, {"torn_last_record_at": start}), cut
    path.write_bytes(b"".join(whole))
    assert open_run(path).notes == {}


def test_damage_anywhere_in_an_event_file_is_an_error_with_its_offset(tmp_path: Path) -> None:
    data = TENSORBOARD.read_bytes()
    path = tmp_path / "events.out.tfevents.1"
    for at in range(12, len(data) - 40, 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        problem = refused(path)
        assert problem.code == "event-damaged", at
        assert 0 <= at - int(problem.where.rpartition(" ")[2]) < 200


@each(
    "data, code",
    [
        (bytes(400), "event-damaged"),
        (event(1.0, 0, "loss", 1.0) + bytes(64), "event-damaged"),
        (struct.pack("<Q", 1 << 40) + struct.pack("<I", masked(struct.pack("<Q", 1 << 40))), "event-damaged"),
        (record(b"\x09abc"), "event-damaged"),
        (record(b"*\x05\n\x03\n\xff\xff"), "event-damaged"),
        (record(b"*\x04\n\x02\n\xff"), "event-damaged"),
        (event(1.0, 0, "a\nb", 1.0), "column-name"),
        (record(b"\x1a\x0dbrain.Event:2"), "no-rows"),
        (b"", "no-rows"),
    ],
)
def test_what_is_no_event_is_refused(data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(data)
    assert refused(tmp_path).code == code


def test_steps_of_any_size_and_sign_and_clocks_that_were_set_back_are_read(tmp_path: Path) -> None:
    steps = (-1, 0, 10**9, 2**53)
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"".join(event(100.0 - at, step, "loss", at) for at, step in enumerate(steps)))
    assert numbers(open_run(path), "loss") == [(step, at) for at, step in enumerate(steps)]


def test_many_columns_of_many_files_are_refused_before_they_are_kept(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"".join(event(1.0, 0, f"c{at}", 1.0) for at in range(600)))
    assert refused(tmp_path).code == "too-large"


# --- Runs of W&B, of MLflow, of trackio -------------------------------------------------------------------------------


def test_a_run_of_w_and_b_is_whole_torn_or_damaged_at_every_byte(tmp_path: Path) -> None:
    data = (SAMPLES / "run-eight.wandb").read_bytes()
    path = tmp_path / "run-a.wandb"
    for at in range(7, len(data), 11):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            view = open_run(path)
        except SubjectError as problem:
            assert problem.code in {"wandb-damaged", "no-rows"}, at
        else:
            assert "torn_last_record_at" in view.notes  # a length that now reaches over the end
        path.write_bytes(data[:at])
        try:
            cut = open_run(path)
        except SubjectError as problem:
            assert problem.code == "no-rows"
        else:
            assert cut.rows <= 8
            assert facts(cut)["ended"] == "unknown"


def history(step: int, **cells: Any) -> bytes:
    item = b"".join(
        b"\n" + varint(len(one)) + one
        for name, cell in ((name, json.dumps(cell)) for name, cell in cells.items())
        for one in [b"\x12" + varint(len(name)) + name.encode() + b"\x82\x01" + varint(len(cell)) + cell.encode()]
    )
    inside = item + b"\x12" + varint(len(varint(step)) + 1) + b"\x08" + varint(step)
    return b"\x12" + varint(len(inside)) + inside


def wandb(path: Path, *records: bytes) -> None:
    out = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, begun = record, False
        while True:
            room = (1 << 15) - len(out) % (1 << 15)
            if room < 7:
                out += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (3 if begun else 2) if rest else (4 if begun else 1)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            begun = True
            if not rest:
                break
    path.write_bytes(out)


def test_fragments_of_w_and_b_over_blocks_are_joined(tmp_path: Path) -> None:
    wandb(tmp_path / "run-a.wandb", *(history(step, loss=1.0 + step, note="x" * 20_000) for step in range(6)))
    assert numbers(open_run(tmp_path), "loss") == [(step, 1.0 + step) for step in range(6)]


@each("name", ["train/global_step", "trainer/global_step"])
def test_the_step_of_w_and_b_is_that_of_the_trainer_where_every_row_has_one(name: str, tmp_path: Path) -> None:
    trained = [history(at, **{name: at + 1, "train/loss": 4.0 - at}) for at in range(3)]
    ended = [history(3, **{name: 3, "eval/loss": 1.5}), history(4, **{name: 3, "train/train_runtime": 9.5})]
    wandb(tmp_path / "run-a.wandb", *trained, *ended)
    assert numbers(open_run(tmp_path), "loss") == [(1, 4.0), (2, 3.0), (3, 2.0)]
    wandb(tmp_path / "run-a.wandb", *(history(at, **{name: 0, "train/loss": 4.0 - at}) for at in range(3)))
    assert numbers(open_run(tmp_path), "loss") == [(0, 4.0), (1, 3.0), (2, 2.0)]
    for more in ({"own": 1.0}, {name: 1, "train/loss": 4.0}):  # rows of another count, and a second training
        wandb(tmp_path / "run-a.wandb", *trained, history(3, **more))
        assert numbers(open_run(tmp_path), "loss")[:3] == [(0, 4.0), (1, 3.0), (2, 2.0)]


def test_a_folder_of_several_runs_of_mlflow_names_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(SAMPLES / "mlflow", tmp_path / "0" / name)
    problem = refused(tmp_path)
    assert problem.code == "several-runs"
    assert "0/one, 0/two" in problem.what
    assert open_run(tmp_path / "0" / "two").rows == 12


@each("line, code", [("1 2\n5 6 7\n", "log-syntax"), ("a b c\n", "log-syntax"), ("1 2 1.5\n", "log-syntax")])
def test_a_broken_metric_of_mlflow_is_reported_with_its_line(line: str, code: str, tmp_path: Path) -> None:
    run = shutil.copytree(SAMPLES / "mlflow", tmp_path / "run")
    (run / "metrics" / "loss").write_text(line)
    problem = refused(run)
    assert (problem.code, problem.where) == (code, str(run / "metrics" / "loss") + ":1")


def trackio(path: Path, *rows: tuple[str, object, str]) -> Path:
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,"
        " run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)"
    )
    insert = "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, '', ?, ?, ?)"
    database.executemany(insert, [(name, name, step, text) for name, step, text in rows])
    database.commit()
    database.close()
    return path


def test_a_database_of_trackio_is_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = trackio(tmp_path / "p.db", *[("a", step, json.dumps({"loss": 9.0 - step, "x": "NaN"})) for step in range(5)])
    view = open_run(path)
    assert numbers(view, "loss") == [(step, 9.0 - step) for step in range(5)]
    assert math.isnan(numbers(view, "x")[0][1])
    assert list(view.digest()) == ["p.db"]
    two = refused(trackio(tmp_path / "two.db", ("a", 0, "{}"), ("b", 0, "{}")))
    assert (two.code, "a, b" in two.what) == ("several-runs", True)
    assert refused(trackio(tmp_path / "bad.db", ("a", 0, '{"loss": '))).code == "log-syntax"
    assert refused(trackio(tmp_path / "list.db", ("a", 0, "[1]"))).code == "log-syntax"
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE metrics (key TEXT)").connection.close()
    assert refused(tmp_path / "other.db").code == "unknown-format"
    (tmp_path / "cut.db").write_bytes(path.read_bytes()[:5000])
    assert refused(tmp_path / "cut.db").code == "log-syntax"


# --- JSON and CSV of others -------------------------------------------------------------------------------------------


@each(
    "name, text, losses",
    [
        ("history.json", '{"loss": [3.0, 2.5], "val_loss": [3.1, NaN]}', [(0, 3.0), (1, 2.5)]),
        ("h.json", '{"history": {"loss": [3.0, 2.5]}, "epoch": [0, 1]}', [(0, 3.0), (1, 2.5)]),
        ("log.csv", "epoch,accuracy,loss\n0,0.5,3.0\n1,0.6,2.5\n", [(0, 3.0), (1, 2.5)]),
        ("wandb-history.jsonl", '{"_step": 4, "_runtime": 1.5, "loss": 3.0}\n', [(4, 3.0)]),
        ("results.csv", "epoch,train/loss\n1,3.0\n2,2.5\n", [(1, 3.0), (2, 2.5)]),
        ("metrics.json", '{"iteration": 19, "total_loss": 3.0}\n{"iteration": 39, "total_loss": 2.5}\n',
         [(19, 3.0), (39, 2.5)]),
    ],
)  # fmt: skip
def test_the_steps_and_losses_of_others_are_known_by_their_names(
    name: str, text: str, losses: list[tuple[int, float]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    view = open_run(tmp_path / name)
    assert numbers(view, "loss") == losses
    assert "steps_are_row_numbers" not in view.notes


@each(
    "text",
    ['{"loss": [3.0, 2.5], "val_loss": [3.1]}', '{"loss": [[3.0], [2.5]]}', '{"loss": ["a"]}', '{"loss": 3.0}', "{}"],
)
def test_what_is_no_history_of_keras_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(text)
    assert refused(tmp_path / "h.json").code == "no-rows"


def test_a_log_that_two_processes_write_into_row_by_row_is_of_several_runs(tmp_path: Path) -> None:
    steps = [10, 10, 20, 20, 30, 40, 30, 40, 50, 60, 50, 60]
    log = tmp_path / "trainer_log.jsonl"
    log.write_text("".join(f'{{"current_steps": {step}, "loss": {1 / step}}}\n' for step in steps))
    problem = refused(log)
    assert problem.code == "several-runs"
    assert problem.what.startswith("every step is there twice or more, and steps fall 2 times")


def test_steps_that_each_epoch_counts_anew_are_refused_and_another_column_is_asked_for(tmp_path: Path) -> None:
    rows = "".join(f"{epoch},{step},{100 * epoch + step},1.5\n" for epoch in range(3) for step in range(4))
    (tmp_path / "log.csv").write_text(f"epoch,step,seen,loss\n{rows}")
    problem = refused(tmp_path / "log.csv")
    assert "each epoch counts anew" in problem.what
    assert problem.remedy == "split it, and bind one of them, or map `step` to a column that goes on"
    assert open_run(tmp_path / "log.csv", columns={"step": "seen"}).rows == 12


def test_steps_that_fall_are_one_run_where_some_step_is_there_once(tmp_path: Path) -> None:
    for steps in ([1, 2, 3, 2, 3, 2, 3, 4], [1, 1, 2, 2, 3, 3], [1, 2, 1, 2]):
        (tmp_path / "log.csv").write_text("step,loss\n" + "".join(f"{step},{step}\n" for step in steps))
        assert open_run(tmp_path / "log.csv").rows == len(steps)


def test_epochs_that_are_a_share_or_go_back_are_no_steps(tmp_path: Path) -> None:
    for cells in ("0.5,3\n1.0,2\n", "0,3\n0,2\n", "1,3\n0,2\n", "0,3\n,2\n"):
        (tmp_path / "log.csv").write_text(f"epoch,loss\n{cells}")
        assert open_run(tmp_path / "log.csv").notes == {"steps_are_row_numbers": True}


def test_runs_one_below_the_other_are_recognised_by_epochs_that_begin_again(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("epoch,loss\n0,3\n1,2\n2,1\n0,3.1\n1,2.1\n0,3.2\n")
    problem = refused(tmp_path / "log.csv")
    assert (problem.code, problem.what[:6]) == ("several-runs", "3 runs")
    for cells in ("0,3\n1,2\n2,1\n1,1.9\n2,1\n", "0,3\n0,2\n1,1\n1,1\n"):  # resumed from the first; rows of one epoch
        (tmp_path / "log.csv").write_text(f"epoch,loss\n{cells}")
        assert open_run(tmp_path / "log.csv").notes == {"steps_are_row_numbers": True}


def test_a_header_that_is_written_again_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text("index, power.draw [W]\n0, 22.5 W\n" * 3)
    view = open_run(tmp_path / "gpu.csv")
    assert (view.rows, view.column_names, view.facts["index"]) == (3, ("step", "power.draw"), 0)


def test_a_table_by_tabs_is_read_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step\tloss\n10\t8.4\n20\t7.6\n")
    assert numbers(open_run(tmp_path / "train.log"), "loss") == [(10, 8.4), (20, 7.6)]


@each("end", ["\r", "\r\n", "\r\r\n"])
def test_lines_end_as_a_monitor_on_windows_leaves_them(end: str, tmp_path: Path) -> None:
    rows = end.join(("r,l,t", "11.0,11,0.5", "9.0,9,0.9", ""))
    (tmp_path / "monitor.csv").write_bytes(f'#{{"t_start": 1.5, "env_id": "None"}}\n{rows}'.encode())
    assert numbers(open_run(tmp_path / "monitor.csv"), "r") == [(0, 11.0), (1, 9.0)]


def test_stable_baselines_progress_and_monitor_files() -> None:
    view = open_run(SAMPLES / "progress.csv")
    assert [step for step, _ in numbers(view, "loss")] == [128, 192, 256, 320, 384, 448, 512]
    assert numbers(view, "rollout/ep_rew_mean")[0] == (64, 15.75)
    monitor = open_run(SAMPLES / "cartpole.monitor.csv")
    assert [value for _, value in numbers(monitor, "r")][:3] == [11.0, 9.0, 12.0]
    assert monitor.column_names == ("step", "r", "l", "t")


def test_a_folder_of_metadata_is_a_row_an_epoch(tmp_path: Path) -> None:
    for epoch in (10, 2, 0):
        text = json.dumps({"epoch": epoch, "train_loss": 9.0 - epoch / 4, "optimizer_state_sha": "ab"})
        (tmp_path / f"epoch-{epoch}.metadata.json").write_text(text)
    view = open_run(tmp_path)
    assert numbers(view, "loss") == [(0, 9.0), (2, 8.5), (10, 6.5)]
    assert len(view.digest()) == 3
    assert kind_of(str(tmp_path)) is SubjectKind.RUN
    (tmp_path / "epoch-2.metadata.json").write_text('{"epoch": 2, "tr')
    assert refused(tmp_path).code == "log-syntax"
    (tmp_path / "epoch-2.safetensors").touch()
    assert kind_of(str(tmp_path)) is SubjectKind.CHECKPOINT


def test_predictions_of_the_trainer_are_no_training_rows(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 3.0 - step / 8} for step in range(1, 9)]
    state = {"global_step": 8, "max_steps": 8, "log_history": [*rows, {"test_loss": 2.0, "test_runtime": 0.5}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    view = open_run(tmp_path / "trainer_state.json")
    assert (view.rows, view.notes["predictions_left_out"]) == (8, 1)
    state["log_history"] = [*rows, {"loss": 2.0}]  # a training row that lost its step stays one
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert open_run(tmp_path / "trainer_state.json").rows == 9


def test_what_is_constant_by_nature_is_a_fact_and_no_column(tmp_path: Path) -> None:
    rows = [
        {"step": at, "loss": 3.0 - at / 8, "n_parameters": 124, "preemption_count": 0, "seed": at} for at in range(9)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    view = open_run(tmp_path / "a.jsonl")
    assert view.column_names == ("step", "loss", "seed")  # a seed that changes is a column
    assert (view.facts["n_parameters"], view.facts["preemption_count"]) == (124, 0)
    logged = {"roi_head/num_bg_samples": 3, "num_batches": 0.5, "index": 0, "accuracy": 1}
    logged |= {"H_v_thresh": 0.15, "target_stop_rate": 0.25, "train/ent_coef": 0.01, "target": 0.5}
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"step": at, "loss": 3.0 - at, **logged}) + "\n" for at in (0, 1))
    )
    assert open_run(tmp_path / "b.jsonl").column_names == ("step", "loss", "num_batches", "accuracy", "target")
    kept = open_run(tmp_path / "a.jsonl", {"n_parameters": "n_parameters"})
    assert "n_parameters" in kept.column_names


@each(
    "name, units, found",
    [
        ("tok_s", {}, 512.0),
        ("tok_s", {"tokens_per_sec": "tok/s"}, 512.0),
        ("tokens_per_s", {}, 512.0),
        ("train/tokens_s", {"tokens_per_sec": "1/s"}, 512.0),
    ],
)
def test_a_rate_whose_name_ends_like_seconds_is_a_rate(
    name: str, units: dict[str, str], found: float, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"step": 0, name: 512.0}) + "\n")
    view = open_run(tmp_path / "a.jsonl", {"tokens_per_sec": name}, units)
    assert numbers(view, "tokens_per_sec") == [(0, found)]


def test_a_time_stays_no_rate(tmp_path: Path) -> None:
    for name in ("wall_s", "step_time_s", "elapsed_sec"):
        (tmp_path / "a.jsonl").write_text(json.dumps({"step": 0, name: 5.0}) + "\n")
        assert refused(tmp_path / "a.jsonl", columns={"tokens_per_sec": name}).code == "unit"


# --- MLPerf -----------------------------------------------------------------------------------------------------------


def mllog(key: str, value: object, **metadata: object) -> str:
    said = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f"0: :::MLLOG {json.dumps({**said, 'metadata': {'file': 'a.py', 'lineno': 1, **metadata}})}\n"


def test_a_share_of_an_epoch_is_no_step(tmp_path: Path) -> None:
    text = "".join(mllog("eval_accuracy", 0.5 + at / 9, epoch_num=at / 4) for at in range(4))
    (tmp_path / "a.log").write_text(
        text + mllog("eval_start", 3, epoch_num=1.5).replace("POINT_IN_TIME", "INTERVAL_START")
    )
    view = open_run(tmp_path / "a.log")
    assert view.column_names == ("step", "epoch_num", "eval_accuracy")
    assert (view.rows, view.notes) == (4, {"steps_are_row_numbers": True})


def test_mlperf_lines_are_rows_by_what_their_metadata_count(tmp_path: Path) -> None:
    text = "a banner\n" * 9000 + mllog("global_batch_size", 64) + mllog("seed", 7)
    for step in range(1, 6):
        text += mllog("train_loss", 5.0 - step / 2, step_num=step, epoch_num=1) + "noise\n"
        text += mllog("tracked_stats", {"throughput": 100.0 + step}, step_num=step, epoch_num=1)
    path = tmp_path / "result_0.txt"
    path.write_text(text + mllog("run_stop", None, status="success"))
    view = open_run(path)
    assert numbers(view, "loss") == [(step, 5.0 - step / 2) for step in range(1, 6)]
    assert numbers(view, "throughput")[4] == (5, 105.0)
    assert (view.rows, view.facts["global_batch_size"]) == (5, 64)
    assert facts(view)["ended"] == "ended"
    path.write_text(text + mllog("run_stop", None, status="aborted"))
    assert facts(open_run(path))["ended"] == "raised"
    path.write_text(text + mllog("train_loss", 1.0, step_num=6)[:-30])
    assert open_run(path).notes["torn_last_line"] == 9000 + 2 + 15 + 1
    path.write_text(text + ":::MLLOG {broken}\n" + text)
    assert refused(path).code == "log-syntax"


# --- Encodings --------------------------------------------------------------------------------------------------------


CSV = "step,loss\n" + "".join(f"{step},{9.5 - step / 4}\n" for step in range(30))


@each(
    "name, data",
    [
        ("a.csv", CSV.encode("utf-16")),
        ("a.csv", "\ufeff".encode("utf-16-be") + CSV.encode("utf-16-be")),
        ("a.csv", CSV.encode("utf-8-sig")),
        ("a.csv.gz", gzip.compress(CSV.encode())),
        ("a.csv.gz", gzip.compress(CSV[:100].encode()) + gzip.compress(CSV[100:].encode())),
        ("a.log.gz", gzip.compress(CSV.encode("utf-16"))),
        ("a.jsonl", b"\xef\xbb\xbf" + b"".join(b'{"step": %d, "loss": %f}\n' % (n, 9.5 - n / 4) for n in range(30))),
        ("a.txt", CSV.encode("utf-16")),
    ],
)
def test_a_log_is_read_in_its_encoding_and_packed(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    view = open_run(path)
    assert numbers(view, "loss") == [(step, 9.5 - step / 4) for step in range(30)]
    assert kind_of(str(path)) is SubjectKind.RUN


def test_packed_blocks_are_all_read_whatever_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (1, 7, 64, 97):
        monkeypatch.setattr(log_file, "BLOCK", block + 40)
        for name, data in (("a.csv.gz", gzip.compress(CSV.encode())), ("a.csv", CSV.encode("utf-16"))):
            (tmp_path / name).write_bytes(data)
            assert open_run(tmp_path / name).rows == 30


@each(
    "name, data, code",
    [
        ("a.csv.gz", gzip.compress(CSV.encode())[:-9], "gzip"),
        ("a.csv.gz", gzip.compress(CSV.encode())[:60] + b"\xff" * 40, "gzip"),
        ("a.csv.gz", gzip.compress(b""), "empty-file"),
        ("a.csv", b"\xff\xfe" + "step,loss\n0,1\n".encode("utf-16-le") + b"\x00\xd8\x41\x00\n\x00", "not-utf8"),
        ("a.jsonl", b'{"step": 0, "loss": 1.5}\n' + bytes(40) + b"\n", "log-syntax"),
        ("a.csv", b"\xff\xfe", "empty-file"),
    ],
)
def test_what_is_broken_in_its_packing_is_one_clear_error(name: str, data: bytes, code: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    problem = refused(tmp_path / name)
    assert problem.code in {code, "no-rows"} if code == "empty-file" else problem.code == code
    assert problem.remedy


@each("name", ["out.log", "out.jsonl"])
@each("before", ["", "Loading weights\n  0%|          | 0/60\n"])
def test_rows_that_a_trainer_printed_are_named_with_where_they_stand(name: str, before: str, tmp_path: Path) -> None:
    rows = [{"loss": 5.1, "grad_norm": float("nan"), "learning_rate": 1e-4, "epoch": at / 10} for at in range(60)]
    before = before if name == "out.log" else ""
    (tmp_path / name).write_text(before + "".join(f"{row}\n" for row in rows))
    problem = refused(tmp_path / name)
    assert (problem.code, problem.where) == ("log-syntax", f"{tmp_path / name}:{before.count(chr(10)) + 1}")
    assert (problem.what, problem.remedy) == (
        "a dict as Python prints it, no row of JSON", "bind the trainer_state.json that a Trainer saves"
    )  # fmt: skip


@pytest.mark.slow
def test_what_unpacks_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MAX_UNPACKED", 1 << 22)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"step,loss\n" + b"\n" * (1 << 23)))
    assert refused(tmp_path / "a.csv.gz").code == "gzip"


# --- What is looked at as a run ---------------------------------------------------------------------------------------


@each("name", ["tensorboardx.tfevents", "torch.tfevents", "run-eight.wandb", "mlflow", "progress.csv"])
def test_a_log_that_is_no_text_is_no_checkpoint(name: str) -> None:
    assert kind_of(str(SAMPLES / name)) is SubjectKind.RUN


def test_an_archive_of_weights_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "w.tar.gz").write_bytes(gzip.compress(b"weights" + bytes(1000)))
    assert kind_of(str(tmp_path / "w.tar.gz")) is SubjectKind.CHECKPOINT


def test_reading_costs_time_in_proportion(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    spent = []
    for count in (2_000, 8_000):
        path.write_bytes(b"".join(event(1.0 + step, step, "loss", step) for step in range(count)))
        begin = time.process_time()
        open_run(path)
        spent.append(time.process_time() - begin)
    assert spent[1] < 16 * spent[0]


def test_a_trainer_s_state_without_a_row_says_how_seldom_it_logs(tmp_path: Path) -> None:
    state = {"log_history": [], "global_step": 30, "max_steps": 30, "logging_steps": 500, "epoch": 1.0}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(SubjectError) as refused:
        open_run(tmp_path / "trainer_state.json")
    assert (refused.value.code, refused.value.what) == ("no-rows", "no step was logged: logging_steps is 500")
    assert refused.value.remedy == "train with logging_steps=1"
