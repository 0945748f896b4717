"""What training prints is read a line a step, by known words or a person's pattern; nothing else is taken for a row."""

from __future__ import annotations

import json
import math
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.run_logs.test_formats import facts, numbers, refused
from tests.verifiers.logs_of_others import weighed

from weighbridge.contract.load import load_contract
from weighbridge.core.errors import ContractError, SubjectError
from weighbridge.core.model import Outcome
from weighbridge.run_logs.formats.console import MAX_LOOKED_AT, line_pattern
from weighbridge.views.run import open_run

SOURCE = """import os, sys
with open(sys.argv[0]) as f:
    code = f.read()
args = {"loss": 1, "step:0/1 x": 2}
[x for x in range(10)]
print(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f}")
"""
NANOGPT = "number of parameters: 10.65M\nstep 0: train loss 4.2874, val loss 4.2823\n" + "".join(
    f"iter {step}: loss {4.2 - step / 100:.4f}, time {30 + step / 10:.2f}ms, mfu {'-100.00' if step < 5 else '17.5'}%\n"
    for step in range(60)
)
MODDED = SOURCE * 500 + "step:0/20 val_loss:10.8258 train_time:0ms step_avg:nanms\n" + "".join(
    f"step:{step}/20 train_loss:{10.8 - step / 10:.4f} train_time:{140 * step}ms step_avg:{139 + step / 7:.2f}ms\n"
    for step in range(1, 21)
) + "step:20/20 val_loss:8.7000 train_time:2850ms step_avg:140.00ms\npeak memory consumption: 40000 MiB\n"  # fmt: skip
LLM_C = "| gelu_fusion | 1 |\nval loss 11.033154\n" + "".join(
    f"step {step:4}/20 | loss {11 - step / 10:.6f} (+nanz)| norm {22 - step / 3:.4f} (+0.12z)| lr {step}.57e-07 |"
    f" {2500 + step:.2f} ms | -100.0% bf16 MFU | {209661 + step} tok/s\n"
    for step in range(1, 21)
)
LLM_C_MAIN = "s:0 tel:11.0092\n" + "".join(
    f"s:{step} trl:{11 - step / 10:.4f} lr:0.00000{step} norm:{22 - step / 3:.2f}\n" for step in range(10)
) + "s:10 tel:9.8700\ns:10 eval:0.2437\n"  # fmt: skip
TITAN = (
    "\x1b[33m[titan] \x1b[39m2025-06-04 08:51:48,074 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2254  "
    "\x1b[38;5;208mgrad_norm:  8.2782  \x1b[33mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 375  \x1b[36mtflops: 21.73"
    "  \x1b[35mmfu: 2.20%\x1b[39m\n"
    + "".join(
        f"[rank0]:[titan] 2025-06-04 08:51:58,557 - root - INFO - step: {step}  loss: {12 - step / 10:7.4f}  grad_norm:"
        f"  {1 + step / 9:.4f}  memory: 30.99GiB(32.62%)  tps: 7,{step:03}  tflops: 407.{step}  mfu: 41.{step}%\n"
        for step in (10, 20, 30)
    )
    + "[rank0]:[titan] 2025-06-04 08:53:58,557 - root - INFO - validate step: 30  loss:  9.1000  memory: 1.0GiB(1%)"
    "  tps: 9,000\n[rank0]:[titan] 2025-06-04 08:59:58,557 - root - INFO - Training completed\n"
)
MEGATRON = "[before the start of training step] datetime: 2024-08-01 09:44:51\n" + "".join(
    f" [2024-08-01 09:44:{step:02}] iteration {step:8}/      20 | consumed samples: {32 * step:12} | elapsed time per"
    f" iteration (ms): {3902.7 + step:.1f} | throughput per GPU (TFLOP/s/GPU): 1.{step}   | learning rate: 6.{step}E-05"
    f" | global batch size:    32 | lm loss: 1.0{30 - step}E+01 | loss scale: 1.0 | grad norm: {2 + step / 9:.3f} |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n time (ms) | forward-compute: 92.25 |\n"
    for step in range(1, 21)
)
NANOTRON = "12/21 01:39:51 [INFO|DP=0|PP=0|TP=0]: Memory usage: 64.15MiB. Peak allocated 309.29MiB.\n" + "".join(
    f"12/21 01:39:51 [INFO|DP=0|TP=0|n1]: iteration: {step} / 20 | consumed_tokens: {1.28 * step:.3g}K | "
    f"time_per_iteration_ms: 8.{step:02}K | tokens_per_sec: 182K | tokens_per_sec_per_gpu: 699 | global_batch_size: 1M"
    f" | grad_norm: 0.1{step} | lm_loss: {4 - step / 10:.3g} | lr: 0.0001 | eta: 131 days, 1:45:39\n"
    for step in range(1, 21)
)
EPOCHS = "loading ...\n" + "".join(
    f"Epoch {step}/20 - Train Loss: {4 - step / 10:.4f}, Val Loss: {4.1 - step / 11:.4f}\n  saved (val_loss=1.0)\n"
    for step in range(1, 21)
)  # fmt: skip
BRACKETS = "".join(
    f"2024-05-01 10:00:{step:02} INFO Epoch: [{step}/20] | loss={4 - step / 10:.4f} | val_loss=3.5 | acc: {step}.0%\n"
    for step in range(20)
)


def opened(text: str, folder: Path, **how: Any) -> Any:
    (folder / "log.txt").write_text(text)
    return open_run(folder / "log.txt", **how)


@each(
    "text, first, columns, ended",
    [
        (NANOGPT, {"loss": (0, 4.2), "wall_ms": (0, 30.0)}, ("step", "eval/train_loss", "val_loss", "loss",
         "wall_ms", "mfu"), "unknown"),
        (MODDED, {"loss": (1, 10.7), "train_time": (1, 140.0)},
         ("step", "val_loss", "validation/train_time", "loss", "train_time", "step_avg", "validation/step_avg"),
         "ended"),
        (LLM_C, {"loss": (1, 10.9), "tokens_per_sec": (1, 209662.0)}, ("step", "loss", "grad_norm", "lr", "wall_ms",
         "tokens_per_sec"), "ended"),
        (LLM_C_MAIN, {"loss": (0, 11.0), "val_loss": (0, 11.0092), "eval/accuracy": (10, 0.2437)},
         ("step", "val_loss", "loss", "lr", "grad_norm", "eval/accuracy"), "unknown"),
        (TITAN, {"loss": (1, 12.2254), "tokens_per_sec": (1, 375.0)}, ("step", "loss", "grad_norm", "memory",
         "tokens_per_sec", "tflops", "mfu", "val_loss", "validation/memory",
         "validation/tokens_per_sec"), "ended"),
        (EPOCHS, {"loss": (1, 3.9), "val_loss": (1, 4.0091)}, ("step", "loss", "val_loss"), "unknown"),
        (BRACKETS, {"loss": (0, 4.0), "val_loss": (0, 3.5)}, ("step", "loss", "val_loss", "acc"), "unknown"),
        (MEGATRON, {"loss": (1, 10.29), "wall_ms": (1, 3903.7)}, ("step", "consumed samples", "wall_ms",
         "throughput per GPU (TFLOP/s/GPU)", "lr", "loss", "grad_norm"), "ended"),
        (NANOTRON, {"loss": (1, 3.9), "wall_ms": (1, 8010.0)}, ("step", "consumed_tokens", "wall_ms", "tokens_per_sec",
         "tokens_per_sec_per_gpu", "grad_norm", "loss", "lr"), "ended"),
    ],
)  # fmt: skip
def test_the_rows_of_known_programs_are_read(
    text: str, first: dict[str, tuple[int, float]], columns: tuple[str, ...], ended: str, tmp_path: Path
) -> None:
    view = opened(text, tmp_path)
    assert view.column_names == columns
    for name, sample in first.items():
        assert numbers(view, name)[0] == pytest.approx(sample)
    assert facts(view)["ended"] == ended
    cut = "".join(text.splitlines(keepends=True)[:-3])
    assert facts(opened(cut, tmp_path))["ended"] == "unknown" if ended == "ended" else True
    assert len({step for step, _ in numbers(view, "loss")}) == len(numbers(view, "loss"))


@each(
    "row, columns",
    [
        ("iter 0: loss nan, time 30.00ms, mfu 17.5%\n", ("loss",)),
        ("step:1/20 train_loss:nan train_time:140ms step_avg:139.00ms\n", ("loss",)),
        ("step    1/20 | loss     nan (+nanz)| norm    nan (+nanz)| lr 8.57e-07 | 2500.00 ms | 209661 tok/s\n",
         ("loss", "grad_norm")),
        ("s:0 trl:nan lr:0.000001 norm:-nan\n", ("loss", "grad_norm")),
        ("step:  1  loss:      nan  grad_norm:      nan  memory: 27.34GiB(28.78%)  tps: 375\n", ("loss", "grad_norm")),
        (" iteration        1/      20 | learning rate: 6.0E-05 | lm loss: NAN | grad norm: nan |\n",
         ("loss", "grad_norm")),
        ("Epoch 1/20 - Train Loss: nan, Val Loss: nan\n", ("loss", "val_loss")),
        ("iteration: 1 / 20 | consumed_tokens: 1.28K | grad_norm: nan | lm_loss: nan | lr: 0.0001\n",
         ("loss", "grad_norm")),
    ],
)  # fmt: skip
def test_a_nan_is_read_however_wide_a_program_prints_it(row: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    view = opened(row * 2, tmp_path)
    for name in columns:
        assert all(math.isnan(value) for _, value in numbers(view, name))
        assert len(numbers(view, name)) == 2


def test_a_line_of_a_step_within_an_epoch_is_no_epoch(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("Epoch [1/5], Step [100/600], Loss: 0.1\n" * 3)
    assert refused(tmp_path / "log.txt").code == "unknown-format"


def test_a_column_is_known_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("Epoch,Train Loss,Validation Loss,Learning Rate\n1,2.5,2.6,0.1\n2,2.4,2.5,0.1\n")
    assert open_run(tmp_path / "log.csv").column_names == ("step", "epoch", "loss", "val_loss", "lr")


def test_evaluations_stand_on_the_row_of_their_step(tmp_path: Path) -> None:
    view = opened(MODDED, tmp_path)
    assert numbers(view, "val_loss") == [(0, 10.8258), (20, 8.7)]
    assert view.rows == 21
    assert not any(math.isnan(value) for _, value in numbers(view, "step_avg"))


@each("text", [NANOGPT, MODDED, LLM_C, LLM_C_MAIN, TITAN, MEGATRON, NANOTRON])
def test_a_row_without_its_end_is_noted_and_left_out(text: str, tmp_path: Path) -> None:
    lines = text.splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if ("loss" in line or "trl:" in line) and "val" not in line)
    whole = opened("".join(lines[: last + 1]), tmp_path)
    torn = opened("".join(lines[: last + 1])[:-1], tmp_path)
    assert torn.notes["torn_last_line"] == last + 1
    assert "torn_last_line" not in whole.notes
    assert torn.rows <= whole.rows


@each(
    "text",
    [
        SOURCE,
        SOURCE * 3 + "1,2\n",
        "number of parameters: 10.65M\ncompiling the model...\n",
        "val loss 11.033154\n",
        "loss\n2.5\n",
        "epoch,loss,acc = train(model), 1\n0,1,2\n3,4,5\n",
        "step 0: starting\niter 3: saving\n",
        "[2026-01-01 10:00] Starting, 12 workers\n[2026-01-01 10:01] Done, 3 files\n",
    ],
)
def test_a_text_without_a_row_of_training_is_no_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(text)
    problem = refused(tmp_path / "log.txt")
    assert problem.code == "unknown-format"
    assert "lines:" in problem.remedy
    assert "import" not in problem.what


def test_two_runs_in_one_console_are_both_there(tmp_path: Path) -> None:
    view = opened(LLM_C + LLM_C, tmp_path)
    assert [step for step, _ in numbers(view, "loss")] == [*range(1, 21), *range(1, 21)]


def test_a_billion_steps_and_lines_of_any_length_are_read(tmp_path: Path) -> None:
    view = opened("x" * 900_000 + "\niter 1000000000: loss 4.2, time 30.00ms, mfu 1.00%\n", tmp_path)
    assert numbers(view, "loss") == [(10**9, 4.2)]


# --- By a person's pattern --------------------------------------------------------------------------------------------


VST = "Epoch [3] (120/480) {'total_loss': '2.5'} lr=1.0e-03\nsaved\nEpoch [3] (140/480) {'total_loss': '2.25'} lr=nan\n"


@each(
    "pattern, text, found",
    [
        (r"\((?P<step>\d+)/.*'total_loss': '(?P<loss>[^']+)'.*lr=(?P<lr>\S+)", VST,
         {"step": [120, 140], "loss": [2.5, 2.25], "lr": [0.001, math.nan]}),
        (r"(?P<step>\d+)/\d+\) .*(?:total_)?loss': '(?P<loss>[\d.]+)", VST, {"step": [120, 140], "loss": [2.5, 2.25]}),
        (r"loss=(?P<loss>[\d.e+-]+)", "loss=2.5e-1\nx\nloss=3\n", {"loss": [0.25, 3.0]}),
        (r"s (?P<step>\d{1,4}) l (?P<loss>\S+?)", "s 12 l 2.5\n", {"step": [12], "loss": [2.5]}),
        (r"(?:step|iter) (?P<step>\d+) loss (?P<loss>.+)", "iter 3 loss 1,024.5\nstep 4 loss nan\n",
         {"step": [3, 4], "loss": [1024.5, math.nan]}),
    ],
)  # fmt: skip
def test_a_pattern_reads_any_text(pattern: str, text: str, found: dict[str, list[float]], tmp_path: Path) -> None:
    if pattern.endswith("?)"):
        with pytest.raises(SubjectError, match="pattern"):
            line_pattern(pattern)
        return
    view = opened(text, tmp_path, lines=pattern)
    for name, values in found.items():
        assert list(view.dense(name).values) == pytest.approx(values, nan_ok=True)


@each(
    "pattern",
    [
        r"(?P<a>(x+)+)y", r"(?P<a>(?:x|xx)+)y", r"(?P<a>x)(?=y)", r"(?P<a>x)\1", r"(?P<a>x)(?P=a)", r"(?P<a>x{9999})",
        "(?P<a>x", "(?P<a>x))", "", "x" * 501, "loss", r"(?P<a>x)(?P<a>y)", r"(?P<a>x**)", "(?P<a>x)+", r"(?P<a>x)(?i)",
        r"(?P<a>[)", r"(?#x)(?P<a>x)", r"(?P<a>x)(?(1)y|z)", r"\p{L}(?P<a>x)", "(?P<a>x{1}{1})", "(?P<a>[[]])",
        "(?P<a>[a--b])", "(?P<a>[a||b])",
    ],
)  # fmt: skip
def test_a_pattern_that_could_take_long_or_names_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(SubjectError) as caught:
        line_pattern(pattern)
    assert caught.value.code == "pattern"
    assert "(?P<step>" in caught.value.remedy


@each(
    "pattern",
    [
        r"(?P<a>x*)x*x*x*x*x*x*x*x*x*y",
        r"x*.*x*.*x*.*x*.*(?P<a>y)",
        r"(?P<a>(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?)(?:x?))y",
        r"(?P<a>(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x)(?:x|x))y",
        r".*.*.*.*.*.*.*.*.*.*.*.*(?P<a>z)",
        r"(?P<a>x{0,999})x{0,999}x{0,999}y",
        r"((((((((((x{0,9})?){0,1}(?P<a>y)",
    ],
)
def test_no_pattern_and_no_line_takes_long(pattern: str, tmp_path: Path) -> None:
    begin = time.process_time()
    try:
        refused(tmp_path / "none", lines=pattern)
        found = line_pattern(pattern)
        assert found.row("x" * 100_000) is None
    except SubjectError as problem:
        assert problem.code == "pattern"
    assert time.process_time() - begin < 5


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(text=st.text("x(?:P<a>)|*+{}0,9[]\\d.y", max_size=40), line=st.text("xy0 ", max_size=200))
def test_any_text_is_a_pattern_that_ends_or_one_clear_refusal(text: str, line: str) -> None:
    begin = time.process_time()
    try:
        line_pattern(f"(?P<a>x){text}").row(line * 5)
    except SubjectError as problem:
        assert problem.code == "pattern"
    assert time.process_time() - begin < 5


def test_only_the_beginning_of_a_line_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="no-rows"):
        opened(" " * MAX_LOOKED_AT + "loss=2\n", tmp_path, lines="loss=(?P<loss>[0-9]+)")


# --- As a contract judges it ------------------------------------------------------------------------------------------


def test_a_console_that_counts_to_its_end_passes_without_a_word_on_how_far_it_goes(tmp_path: Path) -> None:
    chance = random.Random(3)
    rows = [
        f"step {step:4}/60 | loss {9 * 0.97**step + chance.random() / 9:.6f} (+nanz)| norm"
        f" {2 * 0.98**step + chance.random() / 5:.4f} (+nanz)| lr {step * 1e-5:.2e} | {139 + chance.gauss(0, 3):.2f} ms"
        f" | -100.0% bf16 MFU | {3e6 + chance.gauss(0, 3e4):.0f} tok/s\n"
        for step in range(1, 61)
    ]
    required = {"with": {"required": ["loss", "grad_norm"]}}
    (tmp_path / "log.txt").write_text("".join(rows))
    assert weighed(tmp_path / "log.txt", tmp_path, **required).verdict.outcome is Outcome.PASS
    for text, code in (("".join(rows[:50]), "not-ended"), ("".join(rows)[:-9], "reader-noted")):
        (tmp_path / "log.txt").write_text(text)
        assert weighed(tmp_path / "log.txt", tmp_path, **required).verdict.code == code
        assert facts(open_run(tmp_path / "log.txt"))["ended"] == "unknown"
    broken = "".join(rows).replace(rows[30], re.sub(r"loss [\d.]+", "loss nan", rows[30]))
    (tmp_path / "log.txt").write_text(broken)
    assert weighed(tmp_path / "log.txt", tmp_path, **required).verdict.outcome is Outcome.FAIL


def test_a_contract_gives_the_pattern_and_one_that_changes_it_says_why(tmp_path: Path) -> None:
    subject = {"kind": "run", "lines": r"at (?P<step>\d+) loss (?P<loss>\S+)"}
    gate = {"id": "G-1", "title": "t", "kind": "step-metrics", "subjects": {"run": "run"}}
    gate |= {"with": {"required": ["loss"]}}
    head = {"weighbridge": "contract/v0", "version": "1.0.0", "title": "t", "owner": "o"}
    (tmp_path / "a.yaml").write_text(json.dumps({**head, "id": "a", "subjects": {"run": subject}, "gates": [gate]}))
    loaded = load_contract(str(tmp_path / "a.yaml")).contract
    assert loaded.subjects["run"].lines == subject["lines"]
    other = {**head, "id": "b", "extends": "a.yaml", "subjects": {"run": {"kind": "run", "lines": "(?P<loss>x)"}}}
    (tmp_path / "b.yaml").write_text(json.dumps(other))
    with pytest.raises(ContractError, match="lines of run were"):
        load_contract(str(tmp_path / "b.yaml"))
