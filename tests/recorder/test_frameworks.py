"""The recorder inside what other people made: Accelerate, the Trainer of Transformers, Lightning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.scenarios import Learnt, learnt  # noqa: E402
from tests.recorder.training import training  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # their warnings are theirs
STEPS = 6
RATES = [1e-2 * (1 - step / STEPS) for step in range(STEPS)]  # linear decay to 0


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "steps.jsonl").read_text().splitlines()]


def probe(path: Path) -> dict[str, Any]:
    found = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    assert not [event for event in found if event["event"] == "recorder-failure"]
    return next(event for event in found if event["event"] == "device")


def norm_of(model: Any) -> float:
    return float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


# --- Accelerate -------------------------------------------------------------------------------------------------------


def accelerated(directory: Path | None, norms: list[float]) -> Any:
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install accelerate")
    work = training()
    accelerator = accelerate.Accelerator(cpu=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(work.optimizer, lambda step: 1 - step / STEPS)
    model, optimizer, schedule = accelerator.prepare(work.model, work.optimizer, schedule)
    rec = Recorder(directory, model, optimizer, on_fail="raise", probe_every=1).__enter__() if directory else None
    for _, batch in zip(range(STEPS), [*work.loader, *work.loader], strict=False):
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        accelerator.backward(loss)
        norms.append(norm_of(model))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if rec:
            rec.step(loss)
    if rec:
        rec.__exit__(None, None, None)
    return work.model


def test_an_optimizer_that_accelerate_wraps_is_watched_inside(tmp_path: Path) -> None:
    norms: list[float] = []
    assert learnt(lambda: accelerated(tmp_path / "a", norms)) == learnt(lambda: accelerated(None, []))
    found = rows(tmp_path / "a")
    assert [row["grad_norm"] for row in found] == norms
    assert [row["lr"] for row in found] == pytest.approx(RATES)
    assert all(0 < row["wall_ms"] < 60_000 for row in found)
    assert probe(tmp_path / "a")["dispatch"] == "audited"


# --- The Trainer ------------------------------------------------------------------------------------------------------


def trained(directory: Path | None, folder: Path, logged: list[dict[str, float]], **options: Any) -> Any:
    transformers = pytest.importorskip("transformers", reason="Transformers is not installed: pip install transformers")
    pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install accelerate")
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, 50, (64, 8))
    records: list[Recorder] = []
    losses: list[Any] = []

    class Watched(transformers.Trainer):  # type: ignore[misc,name-defined,unused-ignore]  # it may be absent
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            losses.append((loss[0] if isinstance(loss, tuple) else loss).detach())
            return loss

    class Record(transformers.TrainerCallback):  # type: ignore[misc,name-defined,unused-ignore]
        def on_train_begin(self, _: Any, state: Any, __: Any, optimizer: Any = None, **___: Any) -> None:
            if directory:
                shape = {"seq_len": 8, "batch_size": 4, "requested_steps": state.max_steps}
                records.append(Recorder(directory, model, optimizer, on_fail="raise", **shape))
                records[0].__enter__()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if records:
                records[0].step(losses[-1], tokens=8 * 4)

        def on_log(self, *args: Any, logs: Any = None, **_: Any) -> None:
            logged.append(dict(logs))

    trainer = Watched(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            logging_steps=1,
            max_grad_norm=1e9,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            **options,
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in ids],
        callbacks=[Record()],
    )
    trainer.train()
    if records:
        records[0].__exit__(None, None, None)
    return model


WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "compiled": {"torch_compile": True, "torch_compile_backend": "aot_eager"},
    "accumulation": {"gradient_accumulation_steps": 2},
    "bfloat16": {"bf16": True},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_the_trainer_learns_the_same_and_every_row_is_of_its_own_step(way: str, tmp_path: Path) -> None:
    logged: list[dict[str, float]] = []
    alone = learnt(lambda: trained(None, tmp_path / "out", [], **WAYS[way]))
    recorded = learnt(lambda: trained(tmp_path / "a", tmp_path / "out", logged, **WAYS[way]))
    assert recorded == alone
    assert bool(alone.graphs) == (way == "compiled")
    found, printed = rows(tmp_path / "a"), [one for one in logged if "grad_norm" in one]
    assert [row["grad_norm"] for row in found] == pytest.approx([one["grad_norm"] for one in printed], rel=1e-4)
    assert [row["lr"] for row in found] == pytest.approx(RATES)
    assert all(0 < row["wall_ms"] < 600_000 for row in found)
    assert not any("skipped" in row for row in found)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["requested_steps"] == STEPS
    assert probe(tmp_path / "a")["dispatch"] == ("not-audited" if way == "compiled" else "audited")


# --- Lightning --------------------------------------------------------------------------------------------------------


def lit(directory: Path | None, folder: Path, norms: list[float], *, compiled: bool = False) -> Any:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
    work = training()
    forward = torch.compile(work.model, backend="aot_eager") if compiled else work.model

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model = work.model

        def training_step(self, batch: Any, _: int) -> Any:
            logits = forward(batch[:, :-1])
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

        def configure_optimizers(self) -> Any:
            schedule = torch.optim.lr_scheduler.LambdaLR(work.optimizer, lambda step: 1 - step / STEPS)
            return {"optimizer": work.optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

        def on_before_optimizer_step(self, _: Any) -> None:
            norms.append(norm_of(self))

    class Record(lightning.Callback):  # type: ignore[misc,name-defined,unused-ignore]
        rec: Recorder | None = None

        def on_train_start(self, trainer: Any, module: Any) -> None:
            if directory:
                self.rec = Recorder(directory, work.model, module.optimizers(), on_fail="raise").__enter__()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            if self.rec:
                self.rec.step(outputs["loss"])

        def on_train_end(self, *_: Any) -> None:
            if self.rec:
                self.rec.__exit__(None, None, None)

    trainer = lightning.Trainer(
        max_steps=STEPS, max_epochs=9, accelerator="cpu", devices=1, logger=False, callbacks=[Record()],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Module(), work.loader)
    return work.model


@pytest.mark.parametrize("compiled", [False, True])
def test_lightning_learns_the_same_and_the_norm_is_of_this_step(compiled: bool, tmp_path: Path) -> None:
    norms: list[float] = []
    alone = learnt(lambda: lit(None, tmp_path, [], compiled=compiled))
    recorded = learnt(lambda: lit(tmp_path / "a", tmp_path, norms, compiled=compiled))
    assert recorded == alone
    assert isinstance(alone, Learnt)
    assert bool(alone.graphs) == compiled
    found = rows(tmp_path / "a")
    assert len(norms) == STEPS
    assert [row["grad_norm"] for row in found] == norms
    assert [row["lr"] for row in found] == pytest.approx(RATES)
    assert probe(tmp_path / "a")["dispatch"] == ("not-audited" if compiled else "audited")
