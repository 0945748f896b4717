"""Placeholders are found in any column, and what only looks like them is not: rounding, load, a converged loss."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.test_run_verifiers import measured

from weighbridge.core.limits import read
from weighbridge.core.model import Outcome, Verdict
from weighbridge.gates import KINDS
from weighbridge.views.run import open_run

REQUIRED = {"required": ["loss", "grad_norm", "lr", "tokens", "wall_ms"]}
WINDOW = {"steps": [20, 49], "below_ms": 50}
SHORT = {"seq_len": 64, "batch_size": 8, "corpus_tokens": 10**9}


def rows(steps: int = 120, digits: int = 6) -> list[dict[str, Any]]:
    """Return rows of a run that trains: a loss that falls, times with a slow first step."""
    chance = random.Random(3)
    return [
        {
            "step": step,
            "loss": round(2 + 1.5 * 0.98**step + chance.gauss(0, 0.02), digits),
            "grad_norm": round(chance.lognormvariate(0.3, 0.2), digits),
            "lr": 3e-4,
            "tokens": 512,
            "wall_ms": 400.0 if step == 0 else 30 + chance.lognormvariate(0, 0.8),
        }
        for step in range(steps)
    ]


def judged(
    folder: Path, kind: str, logged: list[dict[str, Any]], limits: Mapping[str, Any], *,
    data: Mapping[str, Any] = SHORT, events: tuple[Mapping[str, Any], ...] = (), parameters: int = 10**6,
) -> Verdict:  # fmt: skip
    facts = {"schema": "weighbridge.run/v0", "pid": 1, "model": {"parameters": parameters}, "data": data}
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in logged))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    view, needs = open_run(folder), KINDS[kind].needs
    evidence = {name: measured(need.quantity, view) for name, need in needs.items()}
    return KINDS[kind].judge(evidence, read(KINDS[kind].limits, limits))


def codes(verdict: Verdict) -> set[tuple[str, str]]:
    return {(offence.place, offence.code) for offence in verdict.offences}


def test_half_a_run_of_placeholders_fails_without_any_fact_of_the_corpus(tmp_path: Path) -> None:
    dry = rows()
    for row in dry[60:]:
        row |= {"loss": 1.0, "grad_norm": 1.0}
    found = codes(judged(tmp_path, "step-metrics", dry, REQUIRED, data={}))
    assert {("loss", "placeholder"), ("grad_norm", "placeholder")} <= found
    verdict = judged(tmp_path, "wall-time-budget", dry, {"steps": [70, 99], "below_ms": 500})
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "placeholder-rows")
    assert (verdict.figures["first_step"], verdict.figures["last_step"]) == (60, 119)
    assert judged(tmp_path, "wall-time-budget", dry, {"steps": [20, 49], "below_ms": 500}).outcome is Outcome.PASS


def test_quick_placeholders_do_not_fill_a_budget(tmp_path: Path) -> None:
    dry, chance = rows(), random.Random(4)
    for row in dry:
        row["wall_ms"] = chance.uniform(65, 100) if row["step"] < 30 else chance.uniform(0.004, 0.006)
    assert judged(tmp_path, "wall-time-budget", dry, WINDOW).code == "placeholder-rows"
    assert ("wall_ms", "impossible-speed") in codes(judged(tmp_path, "step-metrics", dry, REQUIRED))


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_rounded_losses_that_converge_repeat_and_are_no_placeholder(tmp_path: Path, digits: int) -> None:
    chance, logged = random.Random(digits), rows(400)
    for row in logged:
        row["loss"] = round(3 * 0.97 ** row["step"] * chance.lognormvariate(0, 0.3), digits)
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS
    assert not judged(tmp_path, "corpus-wrap-around", logged, {}).offences


def test_a_loss_stuck_at_one_value_of_many_digits_is_a_placeholder(tmp_path: Path) -> None:
    stuck = rows(digits=4)
    for row in stuck[114:]:
        row["loss"] = 10.3735
    assert ("loss", "placeholder") in codes(judged(tmp_path, "step-metrics", stuck, REQUIRED))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("loss", lambda step: 3.25 if step else 5.5),
        ("loss", lambda step: 1.0 if step > 2 else 3.1 + step / 7),
        ("grad_norm", lambda step: (0.81, 1.37)[step * step % 5 % 2]),
        ("grad_norm", lambda step: (1.0, 2.0)[step % 2]),
        ("grad_norm", lambda step: 0.5 if step == 7 else 0.0),
        ("lr", lambda step: 0.0),
        ("tokens", lambda step: 0),
        ("wall_ms", lambda step: -30.0 - step % 7),
    ],
)
def test_a_column_that_nothing_measured_fails(tmp_path: Path, column: str, value: Any) -> None:
    logged = [{**row, column: value(row["step"])} for row in rows()]
    found = codes(judged(tmp_path, "step-metrics", logged, REQUIRED))
    assert {code for place, code in found if place == column} & {"constant", "impossible", "placeholder"}


DUST = 1e-6


@pytest.mark.parametrize(
    "stands_in",
    [
        lambda step, dust: 1.0 + dust if step >= 60 else None,
        lambda step, dust: 1.0 + dust if step % 2 else None,
        lambda step, dust: 2.5 + dust if step else None,
        lambda step, dust: 2.5 + dust if step >= 9 else None,
        lambda step, _: (1.0, 2.0)[step % 2] if step >= 60 else None,
        lambda step, _: 1.0 if step % 3 == 0 else None,
        lambda step, _: (1.25, 1.5, 1.75)[step % 3] if step >= 60 else None,
        lambda step, _: (0.81, 1.37, 1.1)[step % 3],
    ],
)
def test_placeholders_with_dust_on_them_or_now_and_then_fail(tmp_path: Path, stands_in: Any) -> None:
    chance, logged = random.Random(8), rows()
    for row in logged:
        value = stands_in(row["step"], chance.uniform(-DUST, DUST))
        row["loss"] = row["loss"] if value is None else value
    found = {code for place, code in codes(judged(tmp_path, "step-metrics", logged, REQUIRED)) if place == "loss"}
    assert found & {"placeholder", "constant", "recurring"}


@pytest.mark.parametrize("steps", [12, 20, 60])
@pytest.mark.parametrize("first", [1, 2, 3, 5])
def test_a_loss_that_is_constant_after_its_first_steps_fails(tmp_path: Path, steps: int, first: int) -> None:
    logged = [{**row, "loss": 2.5 if row["step"] >= first else row["loss"]} for row in rows(steps)]
    found = codes(judged(tmp_path, "corpus-wrap-around", logged, {}))
    found |= codes(judged(tmp_path, "step-metrics", logged, {**REQUIRED, "allow_undecided": ["wall_ms", "grad_norm"]}))
    assert found & {("loss", "constant-loss"), ("loss", "constant"), ("loss", "placeholder")}


@pytest.mark.parametrize("seconds", [False, True])
def test_times_with_the_dust_of_binary_arithmetic_are_healthy(tmp_path: Path, seconds: bool) -> None:
    chance, clock, logged = random.Random(5), 1234.5, rows(400)
    for row in logged:
        hundredths = round(326 + chance.gauss(0, 1.5))
        after = clock + hundredths / 1e5
        row["wall_ms"] = (after - clock) * 1000 if seconds else hundredths * 0.01
        clock = after
    assert any(len(str(row["wall_ms"])) > 15 for row in logged)
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS


@pytest.mark.parametrize("digits", [2, 3, 4, 6])
def test_a_clipped_norm_with_dust_and_losses_that_settle_are_healthy(tmp_path: Path, digits: int) -> None:
    chance, logged = random.Random(digits), rows(400)
    for row in logged:
        norm = chance.lognormvariate(0.1, 0.5)
        row["grad_norm"] = norm / (norm + 1e-6) if norm > 1 else norm  # as clip_grad_norm_ leaves it
        row["loss"] = round(0.3 + 2 * 0.96 ** row["step"] * chance.lognormvariate(0, 0.1), digits)
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS


def test_a_loss_that_converges_without_noise_is_no_placeholder(tmp_path: Path) -> None:
    logged = [{**row, "loss": 0.25 + 3 * 0.9 ** row["step"]} for row in rows(200)]
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS


def test_a_utilisation_from_a_normal_generator_is_noise(tmp_path: Path) -> None:
    chance, load = random.Random(6), 60.0
    logged = [{**row, "gpu_util_pct": 50 + chance.gauss(0, 3)} for row in rows()]
    assert ("gpu_util_pct", "noise") in codes(judged(tmp_path, "step-metrics", logged, REQUIRED))
    for row in logged:
        load += chance.gauss(0, 1)
        row["gpu_util_pct"] = load
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS
    for row in logged:
        row["gpu_util_pct"] = chance.choice((97, 98, 99))
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS


@pytest.mark.parametrize("steps", [50, 120])
def test_invented_noise_is_never_passed_and_fifty_rows_are_undecided(tmp_path: Path, steps: int) -> None:
    chance = random.Random(steps)
    logged = [{**row, "wall_ms": 50 + chance.uniform(-5, 5)} for row in rows(steps)]
    verdict = judged(tmp_path, "step-metrics", logged, REQUIRED)
    assert verdict.code == ("column-undecided" if steps == 50 else "noise")
    budget = judged(tmp_path, "wall-time-budget", logged, {**WINDOW, "below_ms": 500})
    assert budget.code == ("column-undecided" if steps == 50 else "column-noise")


@pytest.mark.parametrize(("unit_ms", "found"), [(1e3, set()), (1.0, {("wall_ms", "beyond-hardware")})])
def test_seconds_under_the_name_of_milliseconds_are_faster_than_any_hardware(
    tmp_path: Path, unit_ms: float, found: set[tuple[str, str]]
) -> None:
    """124 million parameters and half a million tokens in 0.85 s are what an accelerator does; in 0.85 ms none does."""
    chance, logged = random.Random(5), rows()
    for row in logged:
        row |= {"tokens": 1024 * 512, "wall_ms": unit_ms * (chance.gauss(0.85, 0.02) if row["step"] else 3.0)}
    said: Any = {"data": {"seq_len": 1024, "batch_size": 512}, "parameters": 124_000_000}
    assert codes(judged(tmp_path, "step-metrics", logged, REQUIRED, **said)) == found
    budget = judged(tmp_path, "wall-time-budget", logged, {**WINDOW, "below_ms": 1000}, **said)
    assert budget.code == ("beyond-hardware" if found else "pass")


def test_a_short_run_with_a_slow_first_step_is_judged(tmp_path: Path) -> None:
    assert judged(tmp_path, "wall-time-budget", rows(32), {"steps": [20, 29], "below_ms": 500}).outcome is Outcome.PASS
    assert judged(tmp_path, "step-metrics", rows(32), REQUIRED).outcome is Outcome.PASS


def test_repeated_steps_dilute_no_window(tmp_path: Path) -> None:
    logged = [{**row, "wall_ms": 820.0 + row["wall_ms"]} for row in rows(60)]
    more = [{**logged[25], "loss": 3 + turn / 97, "grad_norm": 1 + turn % 9 / 7} for turn in range(40)]
    again = logged + [{**row, "wall_ms": 1.0 + turn / 100} for turn, row in enumerate(more)]
    assert judged(tmp_path, "wall-time-budget", again, WINDOW).code in ("placeholder-rows", "repeated-steps")
    close = logged + [{**row, "wall_ms": 840.0 + turn / 100} for turn, row in enumerate(more)]
    assert judged(tmp_path, "wall-time-budget", close, WINDOW).code == "repeated-steps"
    declared = judged(tmp_path, "wall-time-budget", close, {**WINDOW, "repeated": "first"})
    assert declared.code == "over-budget"


@pytest.mark.parametrize(
    ("column", "where", "value", "code"),
    [
        ("loss", slice(1, None), None, "no-losses"),
        ("loss", slice(60, None), float("nan"), "no-losses"),
        ("wall_ms", slice(100, None), None, "no-wall-time"),
    ],
)
def test_a_corpus_is_not_judged_over_what_is_not_there(
    tmp_path: Path, column: str, where: slice, value: Any, code: str
) -> None:
    logged = rows()
    for row in logged[where]:
        row[column] = value
    assert judged(tmp_path, "corpus-wrap-around", logged, {}).code == code


def test_more_tokens_a_step_than_declared_are_not_taken_for_a_wrap_that_nobody_saw(tmp_path: Path) -> None:
    logged = [{**row, "tokens": 264, "corpus_position": 256 * (row["step"] % 80 + 1)} for row in rows()]
    data = {"seq_len": 64, "batch_size": 4, "corpus_tokens": 20480}
    verdict = judged(tmp_path, "corpus-wrap-around", logged, {}, data=data, events=({"event": "wrap", "step": 80},))
    assert codes(verdict) == {("tokens", "tokens-mismatch")}
    short = judged(tmp_path, "corpus-wrap-around", logged, {"slack_steps": 1000}, data=data)
    (long,) = [one for one in short.offences if one.code == "long-pass"]
    assert (long.figures["per_step"], long.figures["tokens_per_step"]) == (264.0, 256)
    unlogged = [{**row, "corpus_position": 264 * (row["step"] + 1)} for row in logged]
    assert {code for _, code in codes(judged(tmp_path, "corpus-wrap-around", unlogged, {}, data=data))} == {
        "tokens-mismatch", "long-pass"
    }  # fmt: skip


PASSES = tuple({"event": "wrap", "step": step} for step in range(1, 120))


@pytest.mark.parametrize(
    ("position", "events", "metrics", "corpus"),
    [
        (512, PASSES, set(), set()),
        (512, (), {"constant"}, {"unlogged"}),
        (512, PASSES[:70] + PASSES[71:], {"constant"}, {"unlogged"}),
        (512, (*PASSES, PASSES[9]), set(), {"logged-twice"}),
        (512, ({"event": "wrap", "step": [1]}, *PASSES[1:]), {"constant"}, {"unlogged", "unfounded"}),
        (300, PASSES, {"constant"}, {"unfounded", "long-pass"}),
    ],
)
def test_a_position_that_stands_still_is_one_pass_a_step_where_tokens_and_every_wrap_say_so(
    tmp_path: Path, position: int, events: Any, metrics: set[str], corpus: set[str]
) -> None:
    logged = [{**row, "corpus_position": position} for row in rows()]
    data = {"seq_len": 64, "batch_size": 8, "corpus_tokens": 512}
    for kind, limits, wanted in (("step-metrics", REQUIRED, metrics), ("corpus-wrap-around", {}, corpus)):
        verdict = judged(tmp_path, kind, logged, limits, data=data, events=events)
        assert {code for _, code in codes(verdict)} == wanted
        assert verdict.outcome is (Outcome.FAIL if wanted else Outcome.PASS)


def test_a_position_clamped_at_the_end_of_its_corpus_fails_with_and_without_wraps(tmp_path: Path) -> None:
    logged = [{**row, "corpus_position": min(512 * (row["step"] + 1), 5120)} for row in rows()]
    data = {"seq_len": 64, "batch_size": 8, "corpus_tokens": 5120}
    for events in ((), tuple({"event": "wrap", "step": step} for step in range(10, 120, 10)), PASSES):
        verdict = judged(tmp_path, "corpus-wrap-around", logged, {}, data=data, events=events)
        assert ("coverage", "clamped-coverage") in codes(verdict)


def test_passes_of_a_step_each_that_differ_in_tokens_wrap_as_they_say(tmp_path: Path) -> None:
    logged = [{**row, "tokens": 500 + row["step"] % 13} for row in rows()]
    logged = [{**row, "corpus_position": row["tokens"]} for row in logged]
    verdict = judged(tmp_path, "corpus-wrap-around", logged, {}, data={"corpus_tokens": 512}, events=PASSES)
    assert (verdict.outcome, codes(verdict)) == (Outcome.PASS, set())


def test_what_the_recorder_says_was_lost_blocks(tmp_path: Path) -> None:
    failed = judged(tmp_path, "corpus-wrap-around", rows(), {}, events=({"event": "recorder-failure", "step": 3},))
    assert failed.code == "recorder-failure"
    beside = {"event": "recorder-failure", "step": 3, "costs": ["padding_change"]}  # which no pass over a corpus needs
    assert judged(tmp_path, "corpus-wrap-around", rows(), {}, events=(beside,)).code != "recorder-failure"
    lost = judged(tmp_path, "corpus-wrap-around", rows(), {}, events=({"event": "end", "steps": 700, "by": ""},))
    assert lost.code == "steps-not-recorded"


def test_three_steps_that_no_neighbour_disturbed_did_not_skip_their_work(tmp_path: Path) -> None:
    chance, logged = random.Random(9), rows()
    for row in logged:
        row |= {"wall_ms": chance.uniform(40, 90), "cpu_ms": 8 + chance.lognormvariate(0, 0.3)}
    for row in logged[70:73]:
        row["wall_ms"] = 8.2 + row["step"] / 1000
    assert judged(tmp_path, "corpus-wrap-around", logged, {}).outcome is Outcome.PASS
    assert judged(tmp_path, "step-metrics", logged, REQUIRED).outcome is Outcome.PASS


def test_sampled_batches_are_counted_in_tokens_and_wrap_nowhere(tmp_path: Path) -> None:
    data = {**SHORT, "corpus_tokens": 5120}
    assert "unlogged" in {code for _, code in codes(judged(tmp_path, "corpus-wrap-around", rows(), {}, data=data))}
    sampled = judged(tmp_path, "corpus-wrap-around", rows(), {}, data={**data, "sampled": True})
    assert (sampled.outcome, sampled.figures["passes"]) == (Outcome.PASS, 12.0)
