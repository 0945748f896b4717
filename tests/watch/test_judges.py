"""A run is judged while it goes on: what is broken for good stops it at its row, and nothing else does."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path

import pytest
from tests.watch.logs import GATES, HEAD, Writer, judges, rows, written

from weighbridge.core import Offence, Outcome, UsageError
from weighbridge.evaluation.verification import VerifyRequest
from weighbridge.report import verdict_lines
from weighbridge.watch.judges import Judges

ALIVE = "- {id: ALIVE, title: a, kind: row-gaps, subjects: {run: run}, with: {at_most_s: 30}}"


def test_a_healthy_run_is_not_stopped_and_stays_pending(tmp_path: Path) -> None:
    of = judges(tmp_path, tmp_path / "run")
    assert written(of, Writer(tmp_path / "run"), rows(120)) is None
    assert of.unconfirmed == []
    assert {one.gate.id: (one.judged, one.due_in_words) for one in of.gates if not one.done} == dict.fromkeys(
        ("METRICS", "LOW", "CORPUS", "LEARNS"), (None, "the run's end")
    )
    assert of.waiting() == "4 until the run's end"


@pytest.mark.parametrize("at", [0, 1, 7, 64, 119])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_stops_the_run_at_its_row(tmp_path: Path, at: int, value: float) -> None:
    of = judges(tmp_path, tmp_path / "run")
    some = (row | ({"loss": value} if row["step"] == at else {}) for row in rows(130))
    found = written(of, Writer(tmp_path / "run"), some)
    assert found is not None
    step, stop = found
    assert (step, stop.step, stop.gate, stop.code) == (at, at, "METRICS", "non-finite")
    assert "loss" in stop.why


def test_a_run_of_one_step_a_pass_is_not_stopped(tmp_path: Path) -> None:
    of = judges(tmp_path, tmp_path / "run")
    head = HEAD | {"data": {"seq_len": 64, "batch_size": 8, "corpus_tokens": 512}}
    assert written(of, Writer(tmp_path / "run", head), rows(120, corpus=512)) is None
    assert of.unconfirmed == []


def test_a_wrap_without_an_event_stops_the_run_two_rows_later(tmp_path: Path) -> None:
    of, writer = judges(tmp_path, tmp_path / "run"), Writer(tmp_path / "run")
    silent = (row | {"corpus_position": float(row["corpus_position"])} for row in rows(120))
    writer.event = lambda event: None  # type: ignore[method-assign]
    found = written(of, writer, silent)
    assert found is not None
    assert (found[0], found[1].gate, found[1].code) == (52, "CORPUS", "unlogged")


def test_what_is_found_row_by_row_waits_while_the_whole_judge_cannot_say_it(tmp_path: Path) -> None:
    gates = (
        "- {id: LOW, title: b, kind: series-bound, subjects: {run: run}, with: {at_most: 3, min_samples: 1}, "
        'when: {"has:loss:30": true}}'
    )
    of = judges(tmp_path, tmp_path / "run", gates)
    some = (row | {"loss": 9.0 if row["step"] == 5 else row["loss"] / 9} for row in rows(60))
    found = written(of, Writer(tmp_path / "run"), some)
    assert found is not None
    assert 29 <= found[0] <= 44
    assert (found[1].step, found[1].code) == (5, "beyond")
    assert of.unconfirmed == []


def test_an_advisory_gate_that_is_broken_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    gates = "- {id: LOW, title: b, kind: series-bound, subjects: {run: run}, with: {at_most: 2}, severity: advisory}"
    of = judges(tmp_path, tmp_path / "run", gates)
    assert written(of, Writer(tmp_path / "run"), rows(40)) is None
    assert [(one.gate, one.step, one.code) for one in of.advice] == [("LOW", 1, "beyond")]


def test_what_a_later_row_may_mend_stops_no_run(tmp_path: Path) -> None:
    of = judges(tmp_path, tmp_path / "run", GATES.splitlines()[-1])
    assert written(of, Writer(tmp_path / "run"), (row | {"loss": 3.0 + row["step"] / 99} for row in rows(90))) is None


def test_a_gate_is_judged_with_the_step_that_it_is_due(tmp_path: Path) -> None:
    gates = GATES.splitlines()[-1].replace("kind:", "due: {step: 60}, kind:")
    of = judges(tmp_path, tmp_path / "run", gates)
    found = written(of, Writer(tmp_path / "run"), (row | {"loss": 1 + row["grad_norm"] ** 3} for row in rows(90)))
    assert found is not None
    assert (found[0], found[1].step, found[1].gate) == (60, 60, "LEARNS")


def test_a_gate_that_cannot_be_judged_when_it_is_due_is_blocked_by_its_code(tmp_path: Path) -> None:
    gates = GATES.splitlines()[-1].replace("kind:", "due: {after_s: 5}, kind:")
    of = judges(tmp_path, tmp_path / "run", gates)
    assert written(of, Writer(tmp_path / "run"), rows(4)) is None
    assert of.waiting() == "1 until 5 s after the start"
    of.look(9.0)
    assert of.waiting() == "1 BLOCKED (column-undecided) when due"


def test_a_gate_with_a_window_is_due_with_its_end(tmp_path: Path) -> None:
    gates = (
        "- {id: FAST, title: f, kind: wall-time-budget, subjects: {run: run}, where: {tokens_per_step: 512}, "
        "with: {statistic: median, steps: [20, 49], below_ms: 50, min_samples: 30}}"
    )
    of = judges(tmp_path, tmp_path / "run", gates)
    assert of.waiting() == ""
    found = written(of, Writer(tmp_path / "run"), rows(90))
    assert found is not None
    assert (found[0], found[1].gate) == (49, "FAST")


def test_the_folder_may_come_after_the_watch_has_begun(tmp_path: Path) -> None:
    of = judges(tmp_path, tmp_path / "run")
    assert of.look(0.0) is None
    assert of.waiting() == "4 until the run's end"
    writer = Writer(tmp_path / "run")
    assert of.look(1.0) is None
    some = (row | ({"loss": math.nan} if row["step"] == 3 else {}) for row in rows(9))
    assert written(of, writer, some) is not None


def test_each_rank_is_judged_and_one_that_comes_later_too(tmp_path: Path) -> None:
    of, run = judges(tmp_path, tmp_path / "run"), tmp_path / "run"
    assert of.look(0.0) is None
    first = Writer(run / "rank-0", HEAD | {"world_size": 2})
    assert written(of, first, rows(5)) is None
    second = Writer(run / "rank-1", HEAD | {"world_size": 2})
    for row in rows(9, 5):
        first.row(row)
    found = written(of, second, (row | ({"loss": math.nan} if row["step"] == 8 else {}) for row in rows(12)))
    assert found is not None
    assert (found[0], found[1].instance, found[1].gate) == (8, "rank-1", "METRICS")
    assert {path.parent.name for path in of.files()} == {"rank-0", "rank-1"}  # the folder itself is no run any more


def test_a_later_attempt_stands_for_the_rows_of_the_one_before(tmp_path: Path) -> None:
    of, run = judges(tmp_path, tmp_path / "run"), tmp_path / "run"
    assert written(of, Writer(run), rows(40)) is None
    again = Writer(run / "attempt-2", HEAD | {"first_step": 30})
    found = written(of, again, (row | ({"loss": math.nan} if row["step"] == 45 else {}) for row in rows(30, 30)))
    assert found is not None
    assert (found[0], found[1].code) == (45, "non-finite")
    assert of.unconfirmed == []


def test_a_break_in_an_attempt_that_was_given_up_is_none_of_the_run(tmp_path: Path) -> None:
    gates = "- {id: LOW, title: b, kind: series-bound, subjects: {run: run}, with: {at_most: 50}, severity: advisory}"
    of, run = judges(tmp_path, tmp_path / "run", gates), tmp_path / "run"
    assert written(of, Writer(run), (row | ({"loss": 99.0} if row["step"] == 35 else {}) for row in rows(36))) is None
    assert [one.step for one in of.advice] == [35]
    assert written(of, Writer(run / "attempt-2", HEAD | {"first_step": 30}), rows(30, 30)) is None
    assert len(of.advice) == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [("truncated", "was shortened"), ("replaced", "was replaced by another file"), ("removed", "was taken away")],
)
def test_a_log_that_is_taken_away_is_reported_by_name(tmp_path: Path, how: str, said: str) -> None:
    of, run = judges(tmp_path, tmp_path / "run"), tmp_path / "run"
    assert written(of, Writer(run), rows(20)) is None
    log = run / "steps.jsonl"
    if how == "truncated":
        log.write_text(log.read_text()[:100])
    elif how == "replaced":
        (run / "other").write_text("".join(log.read_text().splitlines(keepends=True)[:5]))
        (run / "other").replace(log)
    else:
        log.unlink()
    assert of.look(99.0) is None
    assert {path.name: file.befell for path, file in of.files().items() if file.befell} == {"steps.jsonl": [said]}


def test_a_log_that_is_no_recorders_is_followed_by_its_column_map(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    of = judges(tmp_path, log, GATES.splitlines()[2])
    log.write_text("")
    for now, row in enumerate(rows(20)):
        with log.open("a") as file:
            file.write(json.dumps({"iter": row["step"], "train_loss": 99.0 if now == 12 else 1.0 + now / 100}) + "\n")
        stop = of.look(float(now))
        assert (stop is not None) == (now == 12)
        if stop:
            assert (stop.step, stop.code) == (12, "beyond")
            return


def test_a_table_with_a_header_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "metrics.csv"
    of = judges(tmp_path, log, GATES.splitlines()[2])
    lines = ["step,loss\n", *(f"{step},{99 if step == 12 else 1 + step / 100}\n" for step in range(20))]
    stops = []
    for now, line in enumerate(lines):
        with log.open("a") as file:
            file.write(line)
        stops.append(of.look(float(now)))
    assert [one.step for one in stops if one][:1] == [12]
    assert stops.index(next(filter(None, stops))) == 13


def test_half_a_line_is_carried_until_it_ends(tmp_path: Path) -> None:
    of, writer = judges(tmp_path, tmp_path / "run"), Writer(tmp_path / "run")
    assert written(of, writer, rows(4)) is None
    line = json.dumps(next(rows(1, 4)) | {"loss": math.nan}) + "\n"
    writer.text(line[:20])
    assert of.look(5.0) is None
    writer.text(line[20:])
    stop = of.look(6.0)
    assert stop is not None
    assert stop.step == 4


def test_what_cannot_be_followed_is_said_and_judged_whole(tmp_path: Path) -> None:
    of, writer = judges(tmp_path, tmp_path / "run"), Writer(tmp_path / "run")
    assert written(of, writer, rows(4)) is None
    writer.text("no row of JSON\n")
    assert of.look(5.0) is None
    assert "is not followed: not a row of JSON" in of.notes[0]
    finding = of.finish()[0].evaluation.findings[0]
    assert (finding.verdict.outcome, finding.verdict.code) == (Outcome.ERROR, "log-syntax")


def test_the_end_is_what_verify_says(tmp_path: Path) -> None:
    of, writer = judges(tmp_path, tmp_path / "run"), Writer(tmp_path / "run")
    assert written(of, writer, rows(200)) is None
    writer.event({"event": "end", "step": 199, "steps": 200})
    found = {one.gate: one.verdict.outcome for one in of.finish()[0].evaluation.findings}
    assert found == dict.fromkeys(("METRICS", "LOW", "CORPUS", "LEARNS"), Outcome.PASS)
    assert of.notes == []


def test_a_contract_without_a_gate_over_a_run_is_refused(tmp_path: Path) -> None:
    gates = "- {id: A, title: a, kind: checkpoint-integrity, subjects: {candidate: run}}"
    contract = tmp_path / "c.yaml"
    contract.write_text(
        "weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: t\nowner: o\nsubjects:\n  run: {kind: checkpoint}\n"
        f"gates:\n  {gates}\n"
    )
    request = VerifyRequest(contracts=(str(contract),), evidence=None, ledger=tmp_path)
    with pytest.raises(UsageError, match="no gate over a run"):
        Judges(request, tmp_path / "run", verdict_lines)


def test_a_baseline_is_read_once_and_compared_with_row_by_row(tmp_path: Path) -> None:
    base = Writer(tmp_path / "base")
    for row in rows(60):
        base.row(row)
    gates = (
        "- {id: NEAR, title: n, kind: series-bound, subjects: {run: run, baseline: base}, "
        "with: {relative_to: baseline, at_most: 1.5}}"
    )
    of = judges(tmp_path, tmp_path / "run", gates, subjects=[f"base={tmp_path / 'base'}"])
    some = (row | {"loss": row["loss"] * (3 if row["step"] == 33 else 1.01)} for row in rows(60))
    found = written(of, Writer(tmp_path / "run"), some)
    assert found is not None
    assert (found[0], found[1].step, found[1].code) == (33, 33, "beyond")


def test_a_gate_over_a_subject_that_nobody_bound_leaves_the_others_to_stop_the_run(tmp_path: Path) -> None:
    gates = (
        f"{GATES}- {{id: NEAR, title: n, kind: series-bound, subjects: {{run: run, baseline: base}}, "
        "with: {relative_to: baseline, at_most: 1.5}, severity: advisory}"
    )
    of = judges(tmp_path, tmp_path / "run", gates)
    some = (row | ({"loss": math.nan} if row["step"] == 33 else {}) for row in rows(60))
    found = written(of, Writer(tmp_path / "run"), some)
    assert found is not None
    assert (found[0], found[1].gate, found[1].code) == (33, "METRICS", "non-finite")


def test_a_run_that_hangs_is_stopped_although_no_row_comes(tmp_path: Path) -> None:
    of = judges(
        tmp_path,
        tmp_path / "run",
        ALIVE,
    )
    assert of.look(0.0) is None
    assert of.look(500.0) is None  # nothing has begun
    writer = Writer(tmp_path / "run")
    assert written(of, writer, (row | {"monotonic_s": 500.0 + row["step"]} for row in rows(9))) is None
    assert of.look(38.0) is None
    stop = of.look(38.5)
    assert stop is not None
    assert (stop.gate, stop.code, stop.step) == ("ALIVE", "silent", 8)
    assert "no row for 30.5 s" in stop.why


def test_a_run_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    of = judges(
        tmp_path,
        tmp_path / "run",
        ALIVE,
    )
    writer = Writer(tmp_path / "run")
    assert written(of, writer, (row | {"monotonic_s": 500.0 + row["step"]} for row in rows(9))) is None
    writer.event({"event": "end", "step": 8, "steps": 9})
    assert of.look(10.0) is None
    assert of.look(99.0) is None


def test_a_run_that_an_exception_ended_is_waited_for_as_long_as_something_of_it_is_there(tmp_path: Path) -> None:
    of = judges(tmp_path, tmp_path / "run", ALIVE)
    writer = Writer(tmp_path / "run")
    assert written(of, writer, (row | {"monotonic_s": 500.0 + row["step"]} for row in rows(9))) is None
    writer.event({"event": "end", "step": 8, "steps": 9, "by": "RuntimeError"})
    assert of.look(38.0) is None
    stop = of.look(38.5)  # its launcher began another attempt, which hangs before its first row
    assert stop is not None
    assert (stop.gate, stop.code, stop.step) == ("ALIVE", "silent", 8)


def test_a_probe_on_another_device_stops_the_run_at_its_event(tmp_path: Path) -> None:
    gates = "- {id: DEVICE, title: d, kind: no-silent-cpu-fallback, subjects: {run: run}, with: {requested: cpu}}"
    of, writer = judges(tmp_path, tmp_path / "run", gates), Writer(tmp_path / "run")
    writer.event({"event": "device", "step": 0, "parameters": {"cpu": 64}})
    assert written(of, writer, rows(5)) is None
    writer.event({"event": "device", "step": 5, "parameters": {"cpu": 32, "cuda:0": 32}})
    found = written(of, writer, rows(5, 5))
    assert found is not None
    assert (found[0], found[1].code) == (5, "parameters")
    assert of.unconfirmed == []


def test_what_a_judge_of_rows_says_alone_is_no_stop_and_a_fault_of_ours(tmp_path: Path) -> None:
    class Wrong:
        codes = ("beyond",)

        def row(self, step: float | None, _numbers: object, _events: object = ()) -> Offence | None:
            return Offence(place="loss", code="beyond") if step == 80 else None

    of, writer = judges(tmp_path, tmp_path / "run", GATES.splitlines()[2]), Writer(tmp_path / "run")
    some = rows(90)
    assert written(of, writer, islice(some, 70)) is None
    of.gates[0].tripwire = Wrong()  # type: ignore[assignment]
    assert written(of, writer, some) is None
    assert of.unconfirmed == ["LOW on default: `beyond` at loss of 81 rows, found row by row, is `pass` of all of them"]


def test_the_run_stands_still_while_it_is_asked_whether_to_stop(tmp_path: Path) -> None:
    of, asked = judges(tmp_path, tmp_path / "run"), []
    of.stand_still = lambda: asked.append("now")
    some = (row | ({"loss": math.nan} if row["step"] == 6 else {}) for row in rows(9))
    assert written(of, Writer(tmp_path / "run"), some) is not None
    assert asked == ["now"]


def test_contracts_that_call_a_column_otherwise_are_judged_each_by_its_own(tmp_path: Path) -> None:
    log, contracts = tmp_path / "run.jsonl", []
    for name, column in (("one", "a"), ("other", "b")):
        contracts.append(str(tmp_path / f"{name}.yaml"))
        Path(contracts[-1]).write_text(
            f"weighbridge: contract/v0\nid: {name}\nversion: 1.0.0\ntitle: t\nowner: o\n"
            f"subjects:\n  run: {{kind: run, columns: {{loss: {column}}}}}\ngates:\n"
            f"  - {{id: {name.upper()}, title: b, kind: series-bound, subjects: {{run: run}}, with: {{at_most: 3}}}}\n"
        )
    request = VerifyRequest(contracts=tuple(contracts), evidence=None, ledger=tmp_path)
    of, stops = Judges(request, log, verdict_lines), []
    for step in range(12):
        with log.open("a") as file:
            file.write(
                json.dumps({"step": step, "a": 1 + step % 5 / 9, "b": 9.0 if step == 8 else 2 - step % 7 / 9}) + "\n"
            )
        stops += [stop] if (stop := of.look(float(step))) else []
    assert [(one.gate, one.step) for one in stops] == [("OTHER", 8)]


def test_a_text_of_a_pattern_is_judged_at_lengths_that_grow_and_at_the_end(tmp_path: Path) -> None:
    contract, log = tmp_path / "c.yaml", tmp_path / "run.log"
    contract.write_text(
        "weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: t\nowner: o\nsubjects:\n"
        "  run: {kind: run, lines: 'step (?P<step>[0-9]+) loss (?P<loss>[^ ]+)'}\ngates:\n"
        "  - {id: LOW, title: b, kind: series-bound, subjects: {run: run}, with: {at_most: 3}}\n"
    )
    of, stops = (
        Judges(VerifyRequest(contracts=(str(contract),), evidence=None, ledger=tmp_path), log, verdict_lines),
        [],
    )
    for step in range(400):
        with log.open("a") as file:
            file.write(f"step {step} loss {9.0 if step == 20 else 1 + step % 7 / 9}\n")
        if stop := of.look(float(step)):
            stops.append((step, stop.code))
            break
    assert "is not followed" in of.notes[0]
    assert [code for _, code in stops] == ["beyond"]
    assert 20 <= stops[0][0] <= 45


def test_what_broke_a_run_before_it_was_begun_again_stops_only_what_goes_on_with_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "run")
    for row in rows(20):
        writer.row(row | ({"loss": math.nan} if row["step"] == 17 else {}))
    of = judges(tmp_path, tmp_path / "run")
    of.begin_again()
    assert of.look(0.0) is None
    assert written(of, Writer(tmp_path / "run" / "attempt-2", HEAD | {"first_step": 15}), rows(20, 15)) is None
    of = judges(tmp_path, tmp_path / "other")
    writer = Writer(tmp_path / "other")
    for row in rows(20):
        writer.row(row | ({"loss": math.nan} if row["step"] == 17 else {}))
    of.begin_again()
    found = written(of, writer, rows(5, 20))
    assert found is not None
    assert (found[0], found[1].step, found[1].code) == (20, 17, "non-finite")


def test_a_log_that_is_judged_as_a_whole_stops_the_run_at_its_last_step(tmp_path: Path) -> None:
    of, state = judges(tmp_path, tmp_path / "run", GATES), tmp_path / "run" / "trainer_state.json"
    state.parent.mkdir()
    logged = [{**row, "loss": math.nan} for row in rows(30)]
    state.write_text(json.dumps({"log_history": logged, "global_step": 29, "max_steps": 40}))
    assert (stop := of.look(0.0)) is not None
    assert (stop.gate, stop.step) == ("METRICS", 29)
