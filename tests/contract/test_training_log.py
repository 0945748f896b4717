"""The contracts `training-log` and `training-run`: what a log lacks is no fault of it, and is never green."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from weighbridge.api import Verification
from weighbridge.core import Outcome
from weighbridge.core.exit_code import ExitCode
from weighbridge.core.model import Finding
from weighbridge.evaluation.verification import VerifyRequest, code_of, verify

Rows: TypeAlias = list[dict[str, Any]]
ROWS = 400


def log(path: Path, *columns: str, rows: int = ROWS, change: Callable[[Rows], object] = lambda _: None) -> Path:
    """Write a log of a loss that falls and of these columns beside it, changed."""
    chance, made = random.Random(3), Rows()
    for step in range(rows):
        row = {
            "loss": 2 + 4 * math.exp(-step / 80) + chance.gauss(0, 0.05), "grad_norm": 1 + chance.gauss(0, 0.1),
            "val_loss": 2.1 + 4 * math.exp(-step / 80) + chance.gauss(0, 0.01) if step % 50 == 49 else None,
        }  # fmt: skip
        made.append({"step": step, **{name: row[name] for name in ("loss", *columns) if row[name] is not None}})
    change(made)
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def verified(contract: str, run: Path) -> Verification:
    """Return what a contract comes to; no bundle is sealed of it."""
    request = VerifyRequest(
        contracts=(f"builtin:{contract}",), subjects=(f"run={run}",), evidence=None, ledger=run.parent / "ledger"
    )
    results = verify(request, lambda _text: None)
    return Verification(results=results, exit_code=code_of(results, request.excuses), report="")


def by_gate(found: Verification) -> Mapping[str, Finding]:
    """Return what each gate came to, by the end of its id."""
    return {one.gate.split("-", 2)[2]: one for one in found.findings}


def judged(contract: str, run: Path) -> Mapping[str, Finding]:
    """Return what each gate comes to, by the end of its id."""
    return by_gate(verified(contract, run))


def outcomes(contract: str, run: Path) -> dict[str, str]:
    """Return the outcome of each gate."""
    return {name: str(one.verdict.outcome) for name, one in judged(contract, run).items()}


COLUMNS = ("grad_norm", "val_loss")


@pytest.fixture(scope="module")
def of_a_good_log(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Judge a log that nothing is wrong with, once."""
    return outcomes("training-log", log(tmp_path_factory.mktemp("good") / "log.jsonl", *COLUMNS))


def spike(made: Rows) -> None:
    """Let the loss leap for one step."""
    made[300]["loss"] = 9.0


def level_off(made: Rows) -> None:
    """Let the loss stay where it began."""
    for row in made:
        row["loss"] += 4 - 4 * math.exp(-row["step"] / 80)


def rise(made: Rows) -> None:
    """Let the loss rise from the middle on."""
    for row in made[200:]:
        row["loss"] += (row["step"] - 200) / 50


def explode(made: Rows) -> None:
    """Let the gradient norm grow by a tenth a step."""
    for row in made[300:]:
        row["grad_norm"] *= 1.1 ** (row["step"] - 300)


def overfit(made: Rows) -> None:
    """Let the evaluations rise while the loss falls."""
    for row in made[49::50]:
        row["val_loss"] += row["step"] / 100


def test_a_log_that_says_neither_its_end_nor_more_than_a_loss_passes_and_the_rest_is_not_applicable(
    tmp_path: Path,
) -> None:
    path = log(tmp_path / "log.jsonl")
    whole = verified("training-log", path)
    assert whole.exit_code is ExitCode.PASSED
    found = by_gate(whole)
    green = {name for name, one in found.items() if one.verdict.outcome == "PASS"}
    assert green == {"FINITE", "UNFILTERED", "LEARNED", "STAYED", "SPIKES"}
    rest = {str(one.verdict.outcome) for name, one in found.items() if name not in green}
    assert rest == {"NOT_APPLICABLE"}


def test_a_log_without_steps_is_judged_row_by_row(tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl", change=lambda made: [row.pop("step") for row in made])
    assert outcomes("training-log", path)["LEARNED"] == "PASS"


def test_a_log_without_a_loss_is_blocked(tmp_path: Path) -> None:
    path = log(tmp_path / "log.jsonl", "grad_norm", change=lambda made: [row.pop("loss") for row in made])
    whole = verified("training-log", path)
    assert whole.exit_code is ExitCode.BLOCKED
    assert by_gate(whole)["FINITE"].verdict.code == "absent"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "gate"),
    [
        (lambda made: made[200].update(loss=math.nan), "FINITE"),
        (lambda made: made[200].update(grad_norm=math.nan), "NORMS"),
        (level_off, "LEARNED"), (rise, "STAYED"), (spike, "SPIKES"),
        (lambda made: made[300].update(grad_norm=50.0), "JUMP"), (explode, "GROWTH"), (overfit, "PARTING"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_log_is_found_by_the_gate_for_it(
    change: Callable[[Rows], object], gate: str, of_a_good_log: Mapping[str, str], tmp_path: Path
) -> None:
    assert of_a_good_log[gate] == "PASS"
    assert outcomes("training-log", log(tmp_path / "bad.jsonl", *COLUMNS, change=change))[gate] == "FAIL"


@pytest.mark.parametrize("reward", ["rollout/ep_rew_mean", "reward", "time/fps"])
def test_the_course_of_a_loss_beside_rewards_is_not_judged_and_a_nan_in_it_is(reward: str, tmp_path: Path) -> None:
    def surrogate(made: Rows) -> None:
        for row in made:
            row |= {
                "loss": 0.02 * math.sin(row["step"]) - 0.1 + row["step"] / 4000,
                reward: 19.0 + math.sqrt(row["step"]),
            }

    def broken(made: Rows) -> None:
        surrogate(made)
        made[200].update(loss=math.nan)

    found = outcomes("training-log", log(tmp_path / "log.jsonl", change=surrogate))
    assert [found[name] for name in ("LEARNED", "STAYED", "SPIKES")] == ["NOT_APPLICABLE"] * 3
    assert found["FINITE"] == "PASS"
    assert outcomes("training-log", log(tmp_path / "log.jsonl", change=broken))["FINITE"] == "FAIL"


@pytest.mark.slow
def test_a_vocabulary_that_is_known_bounds_the_loss_and_an_end_that_is_asked_for_is_looked_at(tmp_path: Path) -> None:
    for vocab, first, sign, factor in (
        (256, "PASS", "PASS", 1.0),
        (64, "FAIL", "PASS", 1.0),
        (256, "PASS", "FAIL", -1),
    ):
        path = log(
            tmp_path / "log.jsonl",
            change=lambda made, v=vocab, f=factor: [  # type: ignore[misc]
                row.update(vocab=v, total_steps=1000, loss=f * row["loss"]) for row in made
            ],
        )
        found = outcomes("training-log", path)
        assert (found["FIRST"], found["SIGN"], found["ENDED"]) == (first, sign, "BLOCKED")


# --- A run whose batches differ in tokens -----------------------------------------------------------------------------


def fine_tune(folder: Path, change: Callable[[Rows], object] = lambda _: None) -> Path:
    """Write what a recorder writes of a fine-tune: padded batches of other lengths, two passes over 100 of them."""
    folder.mkdir()
    chance, made = random.Random(5), Rows()
    lengths, position = [8 * chance.randrange(20, 60) for _ in range(100)], 0
    for step in range(200):
        position = lengths[step % 100] + (position if step % 100 else 0)
        made.append({
            "step": step, "loss": 1 + math.exp(-step / 60) + chance.gauss(0, 0.05), "lr": 1e-5 * (1 - step / 200),
            "grad_norm": 1 + math.exp(-step / 60) + chance.gauss(0, 0.05), "wall_ms": chance.gauss(100, 3),
            "tokens": lengths[step % 100], "corpus_position": position, "wraps": step // 100,
        })  # fmt: skip
    change(made)
    head = {"schema": "weighbridge.run/v0", "data": {"corpus_tokens": sum(lengths)}, "requested_steps": 200}
    (folder / "run.json").write_text(json.dumps(head))
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    events = [{"event": "wrap", "step": 100, "wraps": 1}, {"event": "end", "steps": 200, "by": ""}]
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    return folder


def double(made: Rows) -> None:
    """Let every row log twice its tokens."""
    for row in made:
        row["tokens"] *= 2


@pytest.mark.slow
def test_batches_that_differ_in_tokens_are_compared_with_the_position(tmp_path: Path) -> None:
    good = judged("training-run", fine_tune(tmp_path / "good"))["002"].verdict
    assert (good.outcome, good.figures["by"], good.measured) == ("PASS", "corpus_position", 1)
    bad = judged("training-run", fine_tune(tmp_path / "bad", double))["002"].verdict
    assert (bad.outcome, bad.offences[0].code) == ("FAIL", "tokens-mismatch")
    gone = fine_tune(tmp_path / "gone", lambda made: made[7].pop("corpus_position"))
    assert judged("training-run", gone)["002"].verdict.code == "unknown-tokens"


def lose(cell: object, since: int) -> Callable[[Rows], object]:
    """Return what puts a cell in the place of each gradient norm from a row on."""

    def change(rows: Rows) -> None:
        for row in rows[since:]:
            row["grad_norm"] = cell

    return change


@pytest.mark.parametrize(
    ("cell", "since", "code"),
    [
        (None, 5, "column-hole"), (None, 200, "column-hole"), ("overflow", 200, "column-unreadable"),
        (10**400, 399, "column-unreadable"), ({"norm": 1.0}, 200, "column-unreadable"),
    ],
)  # fmt: skip
def test_norms_that_end_or_cannot_be_read_are_no_sound_norms(
    tmp_path: Path, cell: object, since: int, code: str
) -> None:
    verdict = judged("training-log", log(tmp_path / "log.jsonl", "grad_norm", change=lose(cell, since)))[
        "NORMS"
    ].verdict
    assert (str(verdict.outcome), verdict.code) == ("BLOCKED", code)


def test_a_hole_of_the_whole_log_and_one_of_two_intervals_are_none_of_a_column(tmp_path: Path) -> None:
    for name, change in (
        ("lost.jsonl", lambda rows: rows.__delitem__(slice(100, 160))),
        ("one.jsonl", lambda rows: rows[7].__setitem__("grad_norm", None)),
    ):
        found = judged("training-log", log(tmp_path / name, "grad_norm", change=change))
        assert found["NORMS"].verdict.outcome is Outcome.PASS


def test_steps_that_are_no_whole_numbers_are_no_samples(tmp_path: Path) -> None:
    def halved(rows: Rows) -> None:
        for row in rows[200:]:
            row["step"] += 0.5

    verdict = judged("training-log", log(tmp_path / "log.jsonl", change=halved))["LEARNED"].verdict
    assert (str(verdict.outcome), verdict.code) == ("BLOCKED", "column-unreadable")


# What the Trainer of Transformers logged of a GPT-2 of 33 words at a rate far too high: each step, or the means of ten.
EACH = (
    3.38, 10.85, 10.25, 11.92, 11.39, 12.96, 10.48, 8.02, 10.94, 8.62, 6.18, 6.67, 5.55, 7.24, 6.83, 5.31, 6.49, 5.93,
    5.68, 5.32, 4.36, 5.47, 5.19, 5.35, 4.97, 4.48, 3.92, 4.58, 4.01, 4.52,
)  # fmt: skip
MEANS = (1052.9, 1084.9, 751.5, 765.2, 705.8, 545.1, 532.1, 374.5, 354.8, 319.8, 236.8, 221.0, 168.6, 95.0, 53.9)


def saved(folder: Path, losses: Sequence[float], every: int, **config: object) -> Path:
    """Write a checkpoint of a Trainer: its state, and what its model is."""
    history = [{"step": every * (1 + at), "loss": loss} for at, loss in enumerate(losses)]
    steps = every * len(losses)
    state = {"log_history": history, "global_step": steps, "max_steps": steps, "logging_steps": every}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    (folder / "config.json").write_text(json.dumps({"vocab_size": 33, **config}))
    return folder / "trainer_state.json"


def test_a_run_that_left_its_first_loss_at_once_diverged_though_it_fell_ever_after(tmp_path: Path) -> None:
    """A median of the first losses is one of what it diverged to."""
    found = judged("training-log", saved(tmp_path, EACH, 1))
    assert {name for name, one in found.items() if one.verdict.outcome is Outcome.FAIL} == {"STAYED"}
    assert found["STAYED"].verdict.offences[0].figures["best_step"] == 1


@pytest.mark.parametrize(
    ("architecture", "failed"), [("GPT2LMHeadModel", {"FIRST"}), ("GPT2ForSequenceClassification", set())]
)
def test_a_run_whose_first_row_is_a_mean_of_what_it_diverged_to_lies_above_chance(
    architecture: str, failed: set[str], tmp_path: Path
) -> None:
    """How large the vocabulary is stands in the model's config.json; only a loss over all of it is held to it."""
    found = judged("training-log", saved(tmp_path, MEANS, 10, architectures=[architecture]))
    assert {name for name, one in found.items() if one.verdict.outcome is Outcome.FAIL} == failed
