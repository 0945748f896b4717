"""Logs of other people's tools: a healthy one passes, and what was not seen, or did not end, passes nowhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.logs_of_others import trainer_state, weighed

from weighbridge.core.data import data_path
from weighbridge.core.errors import ContractError, SubjectError
from weighbridge.core.model import Fields, Finding, Outcome, SubjectKind
from weighbridge.core.pseudonym import key_file, pseudonym
from weighbridge.run_logs.run_end import GOING, KILLED, UNKNOWN, run_end
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.verifier import Canary
from weighbridge.views.run import open_run

RUNS = data_path("verifiers") / "specimens" / "runs"
METRICS = {"required": ["loss", "grad_norm", "lr"], "allow_filtered": ["loss"]}


def trained(folder: Path, every: int) -> None:
    """Train by the Trainer of Transformers, which logs so often and evaluates."""
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": (self.linear(x) ** 2).mean()}

    torch.manual_seed(7)
    data: Any = [{"x": torch.randn(4)} for _ in range(32)]
    arguments = TrainingArguments(
        str(folder), max_steps=60 * every, logging_steps=every, use_cpu=True, report_to=[], seed=7,
        save_strategy="no", disable_tqdm=True, eval_strategy="steps", eval_steps=20,
    )  # fmt: skip
    trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:4])
    trainer.train()
    trainer.save_state()


def came_to(finding: Finding) -> tuple[Outcome, str]:
    return finding.verdict.outcome, finding.verdict.code


# --- What others log --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "evaluate"), [(1, 0), (10, 0), (5, 20), (7, 50), (30, 7), (4, 5)])
def test_logging_intervals_evaluation_and_summary_rows_are_no_offence(
    every: int, evaluate: int, tmp_path: Path
) -> None:
    steps = 24 * every
    log = trainer_state(tmp_path / "trainer_state.json", every=every, evaluate=evaluate, reached=steps, asked=steps)
    assert came_to(weighed(log, tmp_path, **{"with": METRICS})) == (Outcome.PASS, "pass")


def test_a_log_too_short_to_tell_from_noise_is_blocked_unless_its_columns_are_named(tmp_path: Path) -> None:
    log = trainer_state(tmp_path / "trainer_state.json", every=30, evaluate=7)
    short = weighed(log, tmp_path, **{"with": METRICS})
    assert came_to(short) == (Outcome.BLOCKED, "column-undecided")
    assert short.verdict.figures == {"column": "loss", "samples": 4, "columns": ["loss", "grad_norm", "lr"]}
    named = {**METRICS, "allow_undecided": ["loss", "grad_norm", "lr"]}
    assert came_to(weighed(log, tmp_path, **{"with": named})) == (Outcome.PASS, "pass")
    assert (
        came_to(weighed(log, tmp_path, **{"with": {**named, "allow_undecided": ["loss", "lr"]}}))[1]
        == short.verdict.code
    )
    with pytest.raises(ContractError, match="name each by itself"):
        weighed(log, tmp_path, **{"with": {**METRICS, "allow_undecided": ["*"]}})


@pytest.mark.parametrize(("seconds", "came"), [(0.0005, (Outcome.PASS, "pass")), (12.3456, (Outcome.FAIL, "constant"))])
def test_evaluations_too_quick_for_the_decimals_they_are_printed_with_are_no_placeholder(
    seconds: float, came: tuple[Outcome, str], tmp_path: Path
) -> None:
    log = trainer_state(tmp_path / "trainer_state.json", evaluate=10)
    state = json.loads(log.read_text())
    for row in state["log_history"]:
        row.update({"eval_runtime": seconds} if "eval_runtime" in row else {})
    log.write_text(json.dumps(state))
    assert came_to(weighed(log, tmp_path, **{"with": METRICS})) == came


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # its warnings are its own
def test_a_log_of_the_trainer_itself(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for every in (1, 4):
        trained(tmp_path / str(every), every)
        log = tmp_path / str(every) / "trainer_state.json"
        passed, filtered = (weighed(log, tmp_path, **{"with": one}) for one in (METRICS, {"required": ["loss"]}))
        assert (every, came_to(passed)) == (every, (Outcome.PASS, "pass"))
        assert (every, came_to(filtered)) == (every, (Outcome.BLOCKED, "nan-filtered"))


@pytest.mark.parametrize("last", ["step", "loss"])
def test_the_canary_is_put_over_the_last_column_whichever_it_is(last: str, tmp_path: Path) -> None:
    keys = [key for key in ("grad_norm", "loss", "step") if key != last] + [last]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({key: place + turn for turn, key in enumerate(keys)}) + "\n" for place in range(9))
    )
    verifier, view = VERIFIERS["step_columns", (SubjectKind.RUN,)], open_run(path)
    measured = verifier.measure((view,), {})
    canary = verifier.canary((view,), {}, measured)  # type: ignore[arg-type]
    assert isinstance(canary, Canary)
    assert canary.place == f"{last}, last row"
    assert canary.seen(verifier.measure(canary.views, {}))
    assert not canary.seen(measured)


def rows(*steps: int) -> str:
    return "".join(
        json.dumps({"step": step, "loss": 9 * 0.97**at + at * 37 % 101 / 99}) + "\n" for at, step in enumerate(steps)
    )


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([*range(40), *range(30, 80)], "pass"),  # resumed at step 30
        ([*range(40), *range(30, 80), *range(60, 120)], "pass"),
        ([*range(40), *range(40)], "backward-steps"),  # two runs in one file
        ([*range(80), *range(30, 60)], "backward-steps"),  # resumed, and never came as far again
        ([*range(40), 39, *range(40, 80)], "repeated-steps"),
        ([*range(40), 40, 40, *range(41, 80)], "repeated-steps"),
        ([*range(0, 400, 10)], "pass"),
        ([*range(0, 200, 10), *range(210, 400, 10)], "gap"),
    ],
)  # fmt: skip
def test_a_resumed_run_logs_some_steps_again_and_a_lost_row_is_lost(
    steps: list[int], code: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(rows(*steps))
    finding = weighed(tmp_path / "a.jsonl", tmp_path, **{"with": {"required": ["loss"]}, "where": {"ended": "unknown"}})
    assert finding.verdict.code == code


def test_a_metric_that_nobody_logged_is_blocked_not_failed(tmp_path: Path) -> None:
    finding = weighed(RUNS / "wrapped", tmp_path, **{"with": {"required": ["loss", "gpu_util_pct"]}})
    assert came_to(finding) == (Outcome.BLOCKED, "absent")
    assert [offence.place for offence in finding.verdict.offences] == ["gpu_util_pct"]


def test_rows_without_a_step_are_counted_as_what_they_are(tmp_path: Path) -> None:
    rows_of_both = [
        json.dumps({"step": at, "loss": 9 * 0.97**at} if half else {"loss": 9.0}) for at in range(64) for half in (0, 1)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows_of_both) + "\n")
    finding = weighed(tmp_path / "a.jsonl", tmp_path, **{"with": {"required": ["loss"]}, "where": {"ended": "unknown"}})
    (missing,) = [offence for offence in finding.verdict.offences if offence.code == "no-step"]
    assert (missing.place, missing.figures["missing"], missing.figures["rows"]) == ("step", 64, 128)


@pytest.mark.parametrize(
    ("said", "code"), [({"skipped": True}, "pass"), ({}, "missing"), ({"skipped": False}, "missing")]
)
def test_a_step_that_the_scaler_skipped_owes_no_norm(said: dict[str, bool], code: str, tmp_path: Path) -> None:
    run = shutil.copytree(RUNS / "wrapped", tmp_path / "run")
    logged = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    for row in (*logged[:6], logged[40]):
        del row["grad_norm"]
        row.update(said)
    (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in logged))
    found = weighed(run, tmp_path, **{"with": {"required": ["loss", "grad_norm"]}})
    assert found.verdict.code == "pass" if code == "pass" else code in {one.code for one in found.verdict.offences}
    if code == "pass":
        del logged[20]["grad_norm"]  # another step that lost its own
        (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in logged))
        assert came_to(weighed(run, tmp_path, **{"with": {"required": ["loss", "grad_norm"]}}))[1] == "missing"


# --- How a run ended --------------------------------------------------------------------------------------------------


def ended(folder: Path, **end: Any) -> Path:
    run = shutil.copytree(RUNS / "wrapped", folder / "run")
    kept = (run / "events.jsonl").read_text().splitlines()[0]
    (run / "events.jsonl").write_text(f"{kept}\n{json.dumps({'event': 'end', **end}) if end else ''}\n")
    return run


@pytest.mark.parametrize(
    ("end", "found"),
    [({}, "unknown"), ({"by": "RuntimeError", "steps": 60}, "raised"), ({"by": "", "steps": 700}, "ended")],
)
def test_a_gate_over_a_whole_run_waits_until_it_ended_as_asked(end: dict[str, Any], found: str, tmp_path: Path) -> None:
    run, gate = ended(tmp_path, **end), {"with": {"required": ["loss"]}}
    finding = weighed(run, tmp_path, **gate)
    assert came_to(finding) == (Outcome.BLOCKED, "not-ended")
    assert finding.verdict.figures["ended"] == found
    assert finding.uncounted is not None
    fact: Any = finding.facts["ended"]
    assert fact["value"] == found
    assert came_to(weighed(run, tmp_path, measure={"steps": [0, 20]}, **gate)) == (Outcome.PASS, "pass")


@pytest.mark.slow
def test_a_contract_may_say_how_far_a_log_goes_or_how_a_run_is_meant_to_end(tmp_path: Path) -> None:
    gate = {"with": {"required": ["loss"]}}
    shutil.copy(RUNS / "wrapped" / "steps.jsonl", tmp_path / "a.jsonl")
    said: tuple[dict[str, Any], ...] = {"steps": 60}, {"last_step": 59}, {"ended": "unknown"}, {"steps": 61}, {}
    codes = [came_to(weighed(tmp_path / "a.jsonl", tmp_path, where=where, **gate))[1] for where in said]
    assert codes == ["pass", "pass", "pass", "where-false", "not-ended"]
    raised = ended(tmp_path, by="RuntimeError", steps=60)
    assert came_to(weighed(raised, tmp_path, where={"steps": 60}, **gate)) == (Outcome.BLOCKED, "not-ended")
    assert came_to(weighed(raised, tmp_path, where={"ended": "raised"}, **gate)) == (Outcome.PASS, "pass")


def test_a_contract_may_ask_for_any_fact_that_a_run_states(tmp_path: Path) -> None:
    run, gate = ended(tmp_path, by="", steps=60), {"with": {"required": ["loss"]}}
    stated = {"device_name": "RTX 4090", "regime": "from_scratch", "lr_max": 3e-4, "bf16": True, "seen": 1}
    more = {**stated, "hyper": {"warmup_steps": 1000, "lr_max": 3e-4}, "other": {"regime": "finetune"}}
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {**more, "odd": [1]}))
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({"device_name": "RTX 4090", "lr_max": 3e-4, "bf16": True, "warmup_steps": 1000}, "pass"),
        *(({"device_name": "H100"}, "where-false"), ({"lr_max": True}, "where-false"), ({"seen": True}, "where-false")),
        *(({"regime": "from_scratch"}, "where-contradicted"), ({"odd": 1}, "where-unknown")),
    )
    found = [weighed(run, tmp_path, where=where, **gate) for where, _ in asked]
    assert [came_to(one)[1] for one in found] == [code for _, code in asked]
    fact: Any = found[0].facts["device_name"]
    assert fact["basis"] == "reported"
    assert "regime" not in found[0].facts  # nobody asked
    (tmp_path / "report.json").write_text(json.dumps({"status": "completed", "regime": "finetune", "rows": [
        {"step": step, "loss": 3 * 0.97**step} for step in range(60)
    ]}))  # fmt: skip
    assert came_to(weighed(tmp_path / "report.json", tmp_path, where={"regime": "finetune"}, **gate))[1] == "pass"


def test_what_is_broken_is_broken_however_the_run_ended(tmp_path: Path) -> None:
    run = ended(tmp_path)
    lines = (run / "steps.jsonl").read_text().splitlines()
    (run / "steps.jsonl").write_text(
        "\n".join([*lines[:-1], lines[-1].replace('"loss": ', '"loss": -Infinity, "old": ')])
    )
    assert came_to(weighed(run, tmp_path, **{"with": {"required": ["loss"]}})) == (Outcome.FAIL, "non-finite")


def test_a_trainer_that_did_not_take_all_its_steps_is_not_known_to_have_ended(tmp_path: Path) -> None:
    log = trainer_state(tmp_path / "trainer_state.json", reached=60)
    assert came_to(weighed(log, tmp_path, **{"with": METRICS})) == (Outcome.BLOCKED, "not-ended")


def test_a_process_that_reported_no_end_is_looked_for_on_its_own_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    key = key_file(os.environ)
    assert key is not None
    here = pseudonym("host", socket.gethostname(), key)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    processes = ((os.getpid(), here), (gone.pid, here), (os.getpid(), "host-0123456789ab"))
    found = [run_end({"pid": pid, "host": host}, (), 5).ended for pid, host in processes]
    assert found == [GOING, KILLED, UNKNOWN]


def test_fewer_steps_than_asked_for_are_an_early_end() -> None:
    assert run_end({"requested_steps": 100}, ({"event": "end", "steps": 60, "by": ""},), 60).ended == "early"


@pytest.mark.parametrize(
    ("facts", "by"),
    [
        ({"requested_steps": 50}, ""),
        ({"requested_steps": 50}, "KeyError"),
        ({"max_steps": 50, "global_step": 120}, None),
        ({"max_steps": 50, "status": "completed"}, None),
        ({"requested_steps": 50}, None),
    ],
)
def test_more_steps_than_asked_for_contradict_every_end(facts: Any, by: str | None) -> None:
    events: list[Fields] = [] if by is None else [{"event": "end", "steps": 120, "by": by}]
    assert run_end(facts, events, 120, 119).contradicted_by == ("50 steps were asked for, 120 were taken",)


def test_a_run_of_more_steps_than_were_asked_for_passes_no_gate_over_the_whole_of_it(tmp_path: Path) -> None:
    run = ended(tmp_path)
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"requested_steps": 50}))
    assert came_to(weighed(run, tmp_path, **{"with": METRICS})) == (Outcome.BLOCKED, "not-ended")
    window = weighed(run, tmp_path, measure={"steps": [0, 49]}, **{"with": METRICS})
    assert came_to(window) == (Outcome.PASS, "pass")


@pytest.mark.parametrize(
    ("facts", "by", "last", "ended", "basis"),
    [
        ({"requested_steps": 60}, "", 59, "ended", "derived"),
        ({"requested_steps": 70}, "", 59, "early", "derived"),
        ({}, "", 59, "ended", "reported"),
        ({"requested_steps": 60}, "KeyError", 59, "raised", "reported"),
        ({"max_steps": 60, "global_step": 60}, None, 60, "ended", "derived"),
        ({"max_steps": 60, "global_step": 60}, None, 50, "ended", "reported"),
        ({"max_steps": 60, "global_step": 50}, None, 50, "unknown", "reported"),
        ({"status": "completed"}, None, 59, "ended", "reported"),
        ({}, None, 59, "unknown", "reported"),
    ],
)
def test_an_end_is_derived_only_where_the_log_bears_it_out(
    facts: Any, by: str | None, last: float, ended: str, basis: str
) -> None:
    events: list[Fields] = [] if by is None else [{"event": "end", "steps": 60, "by": by}]
    found = run_end(facts, events, 60, last)
    assert (found.ended, found.basis) == (ended, basis)


# --- What the reader noted --------------------------------------------------------------------------------------------


def test_what_the_reader_noted_is_reported_and_blocks_the_gates_that_stand_on_it(tmp_path: Path) -> None:
    run = shutil.copytree(RUNS / "wrapped", tmp_path / "run")
    whole = (run / "steps.jsonl").read_text()
    (run / "steps.jsonl").write_text(whole + '{"step": 60, "lo')
    gate = {"with": {"required": ["loss"]}}
    finding = weighed(run, tmp_path, **gate)
    assert came_to(finding) == (Outcome.BLOCKED, "reader-noted")
    assert finding.verdict.figures == {"fact": "torn_last_line", "found": 61}
    assert came_to(weighed(run, tmp_path, where={"torn_last_line": 61}, **gate)) == (Outcome.PASS, "pass")
    stepless = [{key: value for key, value in json.loads(line).items() if key != "step"} for line in whole.splitlines()]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in stepless))
    where = {"ended": "unknown"}
    finding = weighed(tmp_path / "a.jsonl", tmp_path, where=where, **gate)
    assert finding.verdict.figures == {"fact": "steps_are_row_numbers", "found": True}
    bare = "".join(f"{row['wraps'] * 0 + at},{row['loss']}\n" for at, row in enumerate(stepless))
    (tmp_path / "a.csv").write_text(bare)
    finding = weighed(tmp_path / "a.csv", tmp_path, where=where, **{"with": {"required": ["2"]}})
    assert finding.verdict.figures == {"fact": "no_header", "found": True}
    mapped = weighed(tmp_path / "a.csv", tmp_path, where=where, columns={"step": "1", "loss": "2"}, **gate)
    assert came_to(mapped) == (Outcome.PASS, "pass")


@pytest.mark.parametrize(
    ("costs", "metrics", "budget"),
    [
        ({"costs": ["loss", "wall_ms", "device"]}, "reader-noted", "reader-noted"),
        ({"costs": ["lr", "grad_norm"]}, "pass", "pass"),  # which neither gate names
        ({"costs": ["device"]}, "pass", "pass"),
        ({}, "reader-noted", "reader-noted"),  # it may have cost anything
    ],
)
def test_a_failure_of_the_recorder_blocks_the_gates_that_name_a_column_of_its_costs(
    costs: dict[str, Any], metrics: str, budget: str, tmp_path: Path
) -> None:
    run = shutil.copytree(RUNS / "wrapped", tmp_path / "run")
    failure = {"event": "recorder-failure", "step": 3, "what": "step: RuntimeError", **costs}
    with (run / "events.jsonl").open("a") as events:
        events.write(json.dumps(failure) + "\n")
    loss: dict[str, Any] = {"with": {"required": ["loss"]}}
    time: dict[str, Any] = {"kind": "wall-time-budget", "with": {"steps": [20, 49], "below_ms": 10**6}}
    assert [came_to(weighed(run, tmp_path, **gate))[1] for gate in (loss, time)] == [metrics, budget]
    if lost := " ".join(sorted({*costs.get("costs", ["all"])} - {"device"})):
        assert came_to(weighed(run, tmp_path, where={"recorder_failed": lost}, **loss)) == (Outcome.PASS, "pass")


# --- Units ------------------------------------------------------------------------------------------------------------

SECONDS = "".join(json.dumps({"step": step, "time": 2.5 + step}) + "\n" for step in range(3))


def test_a_declared_unit_is_converted_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(SECONDS)
    view = open_run(tmp_path / "a.jsonl", {"wall_ms": "time"}, {"wall_ms": "s"})
    assert list(view.dense("wall_ms").values) == [2500, 3500, 4500]
    with pytest.raises(SubjectError, match="nothing tells the unit") as refused:
        open_run(tmp_path / "a.jsonl", {"wall_ms": "time"})
    assert refused.value.code == "unit"


@pytest.mark.parametrize(
    ("unit", "ms"), [("ns", 1e-6), ("us", 1e-3), ("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000)]
)
def test_every_unit_of_time_is_so_many_milliseconds(unit: str, ms: float, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(SECONDS)
    view = open_run(tmp_path / "a.jsonl", {"wall_ms": "time"}, {"wall_ms": unit})
    assert list(view.dense("wall_ms").values) == pytest.approx([2.5 * ms, 3.5 * ms, 4.5 * ms])


@pytest.mark.parametrize(("unit", "outcome"), [("s", Outcome.FAIL), ("ms", Outcome.PASS)])
def test_a_contract_gives_the_unit_of_a_column(unit: str, outcome: Outcome, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"step": s, "time": 2.5 + s % 7 / 9}) + "\n" for s in range(60))
    )
    columns = {"wall_ms": {"from": "time", "unit": unit}}
    gate = {"with": {"steps": [20, 49], "below_ms": 1000}, "where": {"steps": 60}}
    finding = weighed(tmp_path / "a.jsonl", tmp_path, kind="wall-time-budget", columns=columns, **gate)
    assert finding.verdict.outcome is outcome


@pytest.mark.parametrize(
    ("text", "columns", "units"),
    [
        ("step,wall_ms [s]\n0,0.85\n", {}, {}),
        ("step,wall_ms\n0,0.85 s\n", {}, {}),
        ("step,wall_ms\n0,850 ms\n1,851\n", {}, {}),
        ("step,wall_ms [ms]\n0,0.85 s\n", {}, {}),
        ("step,wall_ms [ms]\n0,0.85 s\n1,850\n", {}, {}),
        ("step,time_s\n0,0.85\n", {"wall_ms": "time_s"}, {}),
        ("step,time_s\n0,0.85\n", {"wall_ms": "time_s"}, {"wall_ms": "ms"}),
        ("step,power\n0,85 W\n", {"wall_ms": "power"}, {}),
        ("step,time [s]\n0,0.85\n1,0.86\n", {"wall_ms": "time"}, {}),
    ],
)
def test_a_unit_that_contradicts_its_column_is_refused(text: str, columns: Any, units: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(SubjectError) as refused:
        open_run(tmp_path / "a.csv", columns, units)
    assert (refused.value.code, refused.value.where) == ("unit", str(tmp_path / "a.csv"))


def test_a_unit_that_only_the_header_gives_is_converted_where_it_is_declared(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,time [s]\n0,0.85\n1,0.86\n")
    assert list(open_run(tmp_path / "a.csv", {"wall_ms": "time"}, {"wall_ms": "s"}).dense("wall_ms").values) == [
        850,
        860,
    ]


def test_a_share_a_date_and_a_truth_value_are_no_loss(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,loss\n0,3 %\n1,2026-01-02 03:04:05\n2,1.5\n")
    (tmp_path / "a.jsonl").write_text('{"step": 0, "loss": true}\n{"step": 1, "loss": 2.5}\n')
    assert [list(open_run(tmp_path / name).dense("loss").state) for name in ("a.csv", "a.jsonl")] == [[2, 2, 1], [2, 1]]


# --- What is no log ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "round 0: train loss 4.2874, val loss 4.2823\nround 0: loss 4.2654, time 12745.20ms, mfu -100.00%\n",
        "at:0/10 val_loss:10.8 train_time:0ms\nat:1/10 val_loss:9.8 train_time:100ms\n",
        '::MLLOG {"namespace": "", "key": "a, b", "value": 1}\n::MLLOG {"namespace": "", "key": "c", "value": 2}\n',
    ],
)
def test_a_text_log_is_refused_with_the_formats_that_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(text)
    with pytest.raises(SubjectError) as refused:
        open_run(tmp_path / "log.txt")
    assert refused.value.code == "unknown-format"
    assert "JSONL" in refused.value.remedy
