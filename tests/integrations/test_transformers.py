"""The callback inside the Trainer: the same training to the bit, and rows that a hand computes alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed: pip install transformers")
pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install accelerate")

from tests.integrations.recorded import as_inspect_says, events, passed_the_gates, rows, typed  # noqa: E402
from tests.recorder.scenarios import learnt  # noqa: E402
from torch import nn  # noqa: E402

import weighbridge  # noqa: E402
from weighbridge.integrations.transformers import Callback  # noqa: E402
from weighbridge.views.run import open_run  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # their warnings are theirs
VOCAB, SEQ, BATCH, ROWS, STEPS = 50, 8, 4, 28, 10
PASS = ROWS // BATCH  # micro-batches of a pass: 7, which no accumulation here divides


class Plain(nn.Module):
    """A model that knows nothing of how many items are in an update."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dropout, self.head = nn.Embedding(VOCAB, 16), nn.Dropout(0.1), nn.Linear(16, VOCAB)

    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        logits = self.head(self.dropout(self.embedding(input_ids)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def llama() -> Any:
    shape = {"vocab_size": VOCAB, "max_position_embeddings": SEQ, "hidden_size": 16, "intermediate_size": 32}
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "attention_dropout": 0.1}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **small))


def gpt2() -> Any:
    shape = {"vocab_size": VOCAB, "n_positions": SEQ, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0))


class Watching(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]  # it may be absent
    """A Trainer that notes what each micro-batch came to, and what the Trainer itself says of each update."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noted: list[tuple[float, int, int]] = []  # by micro-batch: loss summed over its targets, targets, tokens
        self.logged: list[dict[str, float]] = []

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        if model.training and "labels" in inputs:
            labels, logits = inputs["labels"], outputs["logits"].detach().double()
            if not isinstance(self.model, Plain):
                labels, logits = labels[:, 1:], logits[:, :-1]
            summed = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            self.noted.append((summed.item(), int((labels != -100).sum()), inputs["input_ids"].numel()))
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: Any, *args: Any, **kwargs: Any) -> None:
        self.logged.append(dict(logs))
        super().log(logs, *args, **kwargs)


def trainer(
    folder: Path,
    *recording: Any,
    model: Callable[[], Any] = llama,
    kind: Any = Watching,
    smoothed: float = 0.0,
    **options: Any,
) -> Any:
    torch.manual_seed(0)
    made = model()
    ids = torch.randint(0, VOCAB, (ROWS, SEQ))
    labels = ids.masked_fill(torch.rand(ids.shape) < 0.3, -100)  # batches of unequal numbers of targets
    data = [{"input_ids": row, "labels": target} for row, target in zip(ids, labels, strict=True)]
    given = {"max_steps": STEPS, "per_device_train_batch_size": BATCH, "learning_rate": 1e-2, "logging_steps": 1}
    quiet = {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    return kind(
        model=made,
        args=transformers.TrainingArguments(
            **{"output_dir": str(folder / "out"), "label_smoothing_factor": smoothed, **given, **quiet, **options}
        ),
        train_dataset=data,
        eval_dataset=data[:6],
        callbacks=list(recording),
    )


def updates(noted: list[Any], accumulated: int) -> list[list[Any]]:
    """Group micro-batches as the Trainer does, which begins anew with each pass."""
    passes = [noted[at : at + PASS] for at in range(0, len(noted), PASS)]
    return [one[at : at + accumulated] for one in passes for at in range(0, len(one), accumulated)]


def of_all_targets(micro_batches: list[tuple[float, int, int]]) -> float:
    return sum(loss for loss, _, _ in micro_batches) / sum(targets for _, targets, _ in micro_batches)


def of_micro_batches(micro_batches: list[tuple[float, int, int]]) -> float:
    return sum(loss / targets for loss, targets, _ in micro_batches) / len(micro_batches)


WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "clipped": {"max_grad_norm": 0.1},
    "not-clipped": {"max_grad_norm": 0.0},
    "accumulation": {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1},
    "accumulation-of-means": {"gradient_accumulation_steps": 3, "model": Plain},
    "bfloat16": {"bf16": True},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 4, "gradient_accumulation_steps": 2},
    "every-channel": {"gradient_accumulation_steps": 3, "max_grad_norm": 0.1},
    "compiled": {"torch_compile": True, "torch_compile_backend": "aot_eager", "max_grad_norm": 0.1},
}
RARE = ("not-clipped", "bfloat16", "compiled")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.exhaustive] if way in RARE else []) for way in WAYS]
)
def test_the_trainer_learns_the_same_and_each_row_is_what_a_hand_computes_of_its_update(
    way: str, tmp_path: Path
) -> None:
    options, made = WAYS[way], list[Any]()
    looking = "all" if way == "every-channel" else "default"

    def train(*recording: Any) -> Any:
        made.append(trainer(tmp_path, *recording, **options))
        made[-1].train()
        return made[-1].model

    alone = learnt(train)
    assert learnt(lambda: train(Callback(tmp_path / "a", on_fail="raise", channels=looking))) == alone
    assert bool(alone.graphs) == (way == "compiled")
    found, noted = rows(tmp_path / "a"), updates(made[-1].noted, options.get("gradient_accumulation_steps", 1))
    by_hand = of_micro_batches if options.get("model") else of_all_targets
    assert len(found) == len(noted) == STEPS
    rough = 1e-2 if way == "bfloat16" else 1e-6
    assert [row["loss"] for row in found] == pytest.approx([by_hand(update) for update in noted], rel=rough)
    assert [row["tokens"] for row in found] == [sum(tokens for _, _, tokens in update) for update in noted]
    logged = [one for one in made[-1].logged if "grad_norm" in one]
    assert [row["grad_norm"] for row in found] == pytest.approx([one["grad_norm"] for one in logged], rel=1e-6)
    assert [row["lr"] for row in found] == [one["learning_rate"] for one in logged]
    if limit := options.get("max_grad_norm"):
        assert all(row["grad_norm"] > limit > row["grad_norm_used"] * 0.999 for row in found)
    assert not any("skipped" in row for row in found)
    assert not events(tmp_path / "a", "recorder-failure")


@pytest.mark.parametrize("unlike", [{"smoothed": 0.1}, {"model": gpt2}])
def test_the_loss_is_what_the_training_went_backward_from_where_that_is_no_mean_of_the_targets(
    unlike: dict[str, Any], tmp_path: Path
) -> None:
    # Of a GPT-2 this Trainer counts a target that the model does not use, and divides by it.
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), **unlike, gradient_accumulation_steps=2)
    made.train()
    logged = [one["loss"] for one in made.logged if "loss" in one]
    found = rows(tmp_path / "a")
    assert [row["loss"] for row in found] == pytest.approx(logged, rel=1e-6)
    if "model" in unlike:
        whole = [row for row in found if "loss_gradient_scale" in row]
        assert [row["own_loss"] / row["loss"] for row in whole] == pytest.approx([1] * len(whole), rel=1e-5)
        assert [row["loss_gradient_scale"] for row in whole] == pytest.approx([1] * len(whole), rel=1e-5)
        assert len(whole) >= 4


def test_each_evaluation_stands_in_the_row_of_the_update_before_it_and_trains_on_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 4, "max_steps": 10}
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), **options)
    made.train()
    found = rows(tmp_path / "a")
    logged = [one["eval_loss"] for one in made.logged if "eval_loss" in one]
    assert {row["step"]: row["val_loss"] for row in found if "val_loss" in row} == dict(
        zip((3, 7, 9), logged, strict=True)
    )
    assert {row["tokens"] for row in found} == {BATCH * SEQ}
    assert not any("runtime" in name or "second" in name for row in found for name in row if name != "tokens_per_sec")


class Writes(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
    def on_evaluate(self, _: Any, state: Any, control: Any, model: Any, **__: Any) -> None:
        if state.global_step == 5:
            with torch.no_grad():
                model.model.norm.weight.mul_(1.01)


def test_what_writes_to_a_small_weight_after_an_evaluation_is_seen(tmp_path: Path) -> None:
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), Writes(), eval_strategy="steps", eval_steps=5)
    made.train()
    assert [row.get("outside_writes") for row in rows(tmp_path / "a")] == [None, *[0] * 4, 1, *[0] * 4]


def test_of_what_an_evaluation_computes_numbers_are_recorded_and_all_else_costs_no_row(tmp_path: Path) -> None:
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), eval_strategy="steps", eval_steps=5)
    made.compute_metrics = lambda _: {"accuracy": np.float32(0.5), "confusion": [[1, 2], [3, 4]], "best": "none"}
    made.train()
    found = [row for row in rows(tmp_path / "a") if "val_loss" in row]
    assert [(row["step"], row["val_accuracy"], "val_confusion" in row) for row in found] == [
        (4, 0.5, False),
        (9, 0.5, False),
    ]


def test_each_evaluation_after_an_epoch_stands_in_its_last_row(tmp_path: Path) -> None:
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), eval_strategy="epoch", max_steps=2 * PASS)
    made.train()
    assert [row["step"] for row in rows(tmp_path / "a") if "val_loss" in row] == [PASS - 1, 2 * PASS - 1]


def test_a_pass_over_the_corpus_wraps_once_and_the_run_ended(tmp_path: Path) -> None:
    trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), max_steps=2 * PASS + 2).train()
    found = rows(tmp_path / "a")
    assert [row["wraps"] for row in found] == [0] * PASS + [1] * PASS + [2] * 2
    assert [event["step"] for event in events(tmp_path / "a", "wrap")] == [PASS, 2 * PASS]
    assert events(tmp_path / "a", "end") == [{"event": "end", "step": len(found), "steps": len(found), "by": ""}]
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert (run["requested_device"], run["requested_steps"], run["model"]["vocab"]) == ("cpu", len(found), VOCAB)


class BreaksOff(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
    def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
        control.should_epoch_stop = state.global_step == 3


def test_a_pass_that_was_broken_off_is_no_wrap(tmp_path: Path) -> None:
    trainer(tmp_path, BreaksOff(), Callback(tmp_path / "a", on_fail="raise"), max_steps=3 * PASS).train()
    assert [event["step"] for event in events(tmp_path / "a", "restart")] == [3]
    assert [event["step"] for event in events(tmp_path / "a", "wrap")] == [3 + PASS]


def test_the_gates_of_a_training_run_pass_on_a_recorded_trainer(tmp_path: Path) -> None:
    trainer(tmp_path, Callback(tmp_path / "a", corpus_tokens=ROWS * SEQ), max_steps=60, max_grad_norm=0.1).train()
    assert passed_the_gates(tmp_path / "a")


@pytest.mark.parametrize("whole", [{"per_device_train_batch_size": ROWS}, {"gradient_accumulation_steps": PASS}])
@pytest.mark.parametrize("corpus", [None, ROWS * SEQ])
def test_the_gates_pass_on_updates_of_a_whole_pass_each(tmp_path: Path, whole: Any, corpus: int | None) -> None:
    trainer(tmp_path, Callback(tmp_path / "a", corpus_tokens=corpus), max_steps=30, max_grad_norm=0.1, **whole).train()
    assert {row["corpus_position"] for row in rows(tmp_path / "a")} == {ROWS * SEQ}
    judged = weighbridge.verify(
        "builtin:training-run", subjects={"run": tmp_path / "a"}, evidence=tmp_path / "evidence"
    )
    said = {one.gate: one.verdict.outcome.name for one in judged.findings if one.gate != "GATE-RUN-004"}
    assert (said["GATE-RUN-001"], said["GATE-RUN-002"]) == ("PASS", "PASS" if corpus else "NOT_APPLICABLE")
    assert set(said.values()) <= {"PASS", "NOT_APPLICABLE"}, said


def test_a_run_that_diverged_so_far_that_its_softmax_is_certain_is_charged_with_no_other_fault(tmp_path: Path) -> None:
    run = tmp_path / "a"
    trainer(tmp_path, Callback(run), model=gpt2, max_steps=60, learning_rate=5, lr_scheduler_type="constant").train()
    judged = weighbridge.verify("builtin:training-run", subjects={"run": run}, evidence=tmp_path / "evidence")
    said = {one.gate: one.verdict.outcome.name for one in judged.findings}
    assert (said["GATE-RUN-STAYED"], said["GATE-RUN-SCALE"], said["GATE-RUN-REPORTED"]) == ("FAIL", "PASS", "PASS")


def on_the_cpu(folder: Path, **options: Any) -> Path:
    trainer(folder, Callback(folder / "a", **options), max_steps=60, max_grad_norm=0.1).train()
    return folder


def test_a_healthy_run_on_the_cpu_passes_by_the_commands_of_the_tutorial_for_it(tmp_path: Path) -> None:
    code, printed = as_inspect_says("a", on_the_cpu(tmp_path))
    assert (code, "worked on cpu, asked for cpu" in printed) == (0, True), printed
    code, printed = typed("weighbridge verify builtin:training-run --subject run=a --param device=auto", tmp_path)
    assert code == 1
    assert "2 of 2 places: the run asked for cpu, the contract expects auto" in printed
    assert "try first: --param device=cpu, where cpu was meant; else" in printed


def test_a_trainer_that_was_to_use_a_gpu_and_trained_on_the_cpu_fails_by_every_command(tmp_path: Path) -> None:
    code, printed = as_inspect_says("a", on_the_cpu(tmp_path, requested_device="cuda"))
    assert (code, "places: asked for cuda, resolved to cpu (step 0, step 10)" in printed) == (1, True), printed
    for device in ("auto", "cpu"):
        judge = "weighbridge verify builtin:training-run --subject run=a"
        code, printed = typed(f"{judge} --param device={device}", tmp_path)
        assert (code, f"the run asked for cuda, the contract expects {device}" in printed) == (1, True), printed


def test_a_trainer_told_to_log_nan_is_no_filter_where_its_log_shows_one_and_may_be_named_so_where_it_shows_none(
    tmp_path: Path,
) -> None:
    class Breaks(Watching):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            return loss * float("nan") if self.state.global_step >= STEPS - 3 else loss

    said = {}
    for name, kind in (("healthy", Watching), ("broken", Breaks)):
        made = trainer(tmp_path, kind=kind, logging_nan_inf_filter=False, output_dir=str(tmp_path / name))
        made.train()
        made.save_state()
        said[name] = typed(f"weighbridge verify builtin:training-log --subject run={name} --verbose", tmp_path)
    assert (said["broken"][0], "puts another number" in said["broken"][1]) == (1, False), said["broken"][1]
    assert "    loss: 3 NaN and 0 infinite of 10 samples, first at step 8\n" in said["broken"][1]
    assert "its log does not say whether" in said["healthy"][1], said["healthy"][1]


# --- What goes wrong --------------------------------------------------------------------------------------------------


class Fails(Watching):
    at = 3

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == self.at:
            raise KeyboardInterrupt
        return super().training_step(*args, **kwargs)


def test_a_training_that_is_interrupted_leaves_its_rows_and_how_it_ended_and_the_trainer_as_it_was(
    tmp_path: Path,
) -> None:
    made = trainer(tmp_path, Callback(tmp_path / "a", on_fail="raise"), kind=Fails)
    step, clip = made.training_step, made.accelerator.clip_grad_norm_
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert len(rows(tmp_path / "a")) == 3
    assert [event["by"] for event in events(tmp_path / "a", "end")] == ["KeyboardInterrupt"]
    assert (made.training_step, made.accelerator.clip_grad_norm_) == (step, clip)


def breaks(_: object) -> int:
    raise OSError("no tokens in /home/me/corpus")


def test_what_fails_in_the_callback_is_an_event_and_the_training_learns_the_same(tmp_path: Path) -> None:
    def train(*recording: Any) -> Any:
        made = trainer(tmp_path, *recording)
        made.train()
        return made.model

    alone = learnt(train)
    with pytest.warns(RuntimeWarning, match="training goes on"):
        assert learnt(lambda: train(Callback(tmp_path / "a", tokens_of=breaks))) == alone
    assert len(rows(tmp_path / "a")) == STEPS
    assert {event["what"] for event in events(tmp_path / "a", "recorder-failure")} == {
        "batch_drawn: OSError: no tokens in <path>"
    }


def test_an_update_of_which_one_loss_could_not_be_read_has_no_loss_and_costs_no_training(tmp_path: Path) -> None:
    class Odd(torch.Tensor):  # type: ignore[misc,name-defined,unused-ignore]
        def detach(self) -> Any:
            raise ValueError("an odd loss")

    class Strange(Watching):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            return loss.as_subclass(Odd) if len(self.noted) == 3 else loss

    made = trainer(tmp_path, Callback(tmp_path / "a"), kind=Strange, gradient_accumulation_steps=2)
    with pytest.warns(RuntimeWarning, match="micro_loss: ValueError: an odd loss; training goes on"):
        made.train()
    assert [row["step"] for row in rows(tmp_path / "a") if "loss" not in row] == [1]
    assert all("grad_norm" in row for row in rows(tmp_path / "a"))


def test_a_run_that_cannot_be_opened_costs_the_record_and_no_training(tmp_path: Path) -> None:
    made = trainer(tmp_path, Callback(tmp_path / "a", requested_device="gpu"))
    with pytest.warns(RuntimeWarning, match="on_train_begin: requested_device is 'gpu'.*; training goes on"):
        made.train()
    assert made.state.global_step == STEPS
    assert not (tmp_path / "a").exists()


def test_an_option_that_the_recorder_does_not_know_is_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="corpus_token"):
        Callback(tmp_path / "a", corpus_token=5)


# --- Resumed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails_at", "saved"),
    [pytest.param(10, 9, id="within-a-pass"), pytest.param(8, 7, id="between-two", marks=pytest.mark.exhaustive)],
)
def test_a_training_that_resumes_is_the_next_attempt_and_goes_on_with_its_steps(
    fails_at: int, saved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fails, "at", fails_at)
    options: dict[str, Any] = {
        "save_strategy": "steps",
        "save_steps": saved,
        "max_steps": 4 * PASS,
        "max_grad_norm": 0.1,
    }

    def recording() -> Any:
        return Callback(tmp_path / "a", corpus_tokens=ROWS * SEQ, on_fail="raise")

    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, recording(), kind=Fails, **options).train()

    def resume(*recording: Any) -> Any:
        made = trainer(tmp_path, *recording, **options)
        made.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{saved}"))
        return made.model

    alone = learnt(resume)
    assert learnt(lambda: resume(recording())) == alone
    assert [row["step"] for row in rows(tmp_path / "a")] == list(range(fails_at))
    again = rows(tmp_path / "a" / "attempt-2")
    assert [row["step"] for row in again] == list(range(saved, 4 * PASS))
    assert [row["wraps"] for row in again] == [step // PASS for step in range(saved, 4 * PASS)]
    run = open_run(tmp_path / "a")
    assert list(run.dense("step").values) == list(range(4 * PASS))
    assert passed_the_gates(tmp_path / "a")
