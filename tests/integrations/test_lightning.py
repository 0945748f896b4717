"""The callback inside Lightning: the same training to the bit, and rows that a hand computes alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")

from tests.integrations.recorded import as_inspect_says, events, passed_the_gates, rows, typed  # noqa: E402
from tests.recorder.scenarios import learnt  # noqa: E402
from tests.recorder.training import BATCH, PASS, ROWS, SEQ, training  # noqa: E402
from torch import nn  # noqa: E402

from weighbridge.integrations.lightning import Callback  # noqa: E402
from weighbridge.views.run import open_run  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # their warnings are theirs
EPOCHS = 4
SCALE = 2.0**26  # infinite gradients, until it has been halved often enough


def recording(directory: Path, **options: Any) -> Callback:
    return Callback(directory, seq_len=SEQ, on_fail="raise", **options)


class Module(lightning.LightningModule):  # type: ignore[misc,name-defined,unused-ignore]  # it may be absent
    model: Any

    def __init__(self, *, compiled: bool = False, fails_at: int = -1) -> None:
        super().__init__()
        self.work, self.fails_at = training(), fails_at
        self.model = torch.compile(self.work.model, backend="aot_eager") if compiled else self.work.model
        self.losses: list[float] = []
        self.norms: list[float] = []

    def loss_of(self, batch: Any) -> Any:
        return nn.functional.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    def training_step(self, batch: Any, number: int) -> Any:
        if len(self.losses) == self.fails_at:
            raise RuntimeError("a cosmic ray")
        loss = self.loss_of(batch)
        self.losses.append(loss.item())
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("valid/loss", self.loss_of(batch))

    def on_before_optimizer_step(self, _: Any) -> None:
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        self.norms.append(float(torch.nn.utils.get_total_norm(gradients)))

    def configure_optimizers(self) -> Any:
        return self.work.optimizer


def fitted(
    folder: Path, *recording: Any, evaluated: bool = False, scaled: bool = False, resumed: Any = None, **options: Any
) -> Any:
    of_module = {name: options.pop(name) for name in ("compiled", "fails_at") if name in options}
    module = Module(**of_module)
    plugins = []
    if scaled:
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        plugins = [lightning.pytorch.plugins.MixedPrecision("16-mixed", "cpu", scaler)]
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    given = {"devices": 1, "max_epochs": EPOCHS, "limit_val_batches": 2 if evaluated else 0}
    kept = any(isinstance(one, lightning.pytorch.callbacks.ModelCheckpoint) for one in recording)
    trainer = lightning.Trainer(
        accelerator="cpu", callbacks=list(recording), plugins=plugins, default_root_dir=folder,
        **{"enable_checkpointing": kept, **quiet, **given, **options},
    )  # fmt: skip
    checkpoint = {"ckpt_path": resumed, "weights_only": False} if resumed else {}
    trainer.fit(module, module.work.loader, module.work.loader if evaluated else None, **checkpoint)
    return module


def updates(losses: list[float], accumulated: int) -> list[list[float]]:
    passes = [losses[at : at + PASS] for at in range(0, len(losses), PASS)]
    return [one[at : at + accumulated] for one in passes for at in range(0, len(one), accumulated)]


WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "clipped": {"gradient_clip_val": 0.1},
    "accumulation": {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
    "bfloat16": {"precision": "bf16-mixed"},
    "evaluation": {"evaluated": True, "accumulate_grad_batches": 2},
    "every-channel": {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1},
    "compiled": {"compiled": True, "gradient_clip_val": 0.1},
}
RARE = ("bfloat16", "compiled")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.exhaustive] if way in RARE else []) for way in WAYS]
)
def test_lightning_learns_the_same_and_each_row_is_what_a_hand_computes_of_its_update(way: str, tmp_path: Path) -> None:
    made: list[Any] = []
    looking = "all" if way == "every-channel" else "default"

    def train(*recording: Any) -> Any:
        made.append(fitted(tmp_path, *recording, **WAYS[way]))
        return made[-1].work.model

    alone = learnt(train)
    assert learnt(lambda: train(recording(tmp_path / "a", channels=looking))) == alone
    assert bool(alone.graphs) == (way == "compiled")
    found, by_hand = rows(tmp_path / "a"), updates(made[-1].losses, WAYS[way].get("accumulate_grad_batches", 1))
    assert [row["loss"] for row in found] == pytest.approx([sum(one) / len(one) for one in by_hand], rel=1e-6)
    assert [row["tokens"] for row in found] == [BATCH * SEQ * len(one) for one in by_hand]
    assert [row["grad_norm"] for row in found] == pytest.approx(made[-1].norms, rel=1e-6)
    if limit := WAYS[way].get("gradient_clip_val"):
        assert all(row["grad_norm"] > limit > row["grad_norm_used"] * 0.999 for row in found)
    assert [row["wraps"] for row in found] == sorted(list(range(EPOCHS)) * (len(found) // EPOCHS))
    assert not any("skipped" in row for row in found)
    assert not events(tmp_path / "a", "recorder-failure")
    assert events(tmp_path / "a", "end")[0]["steps"] == len(found)
    assert json.loads((tmp_path / "a" / "run.json").read_text())["requested_steps"] == len(found)


def test_each_evaluation_stands_in_the_row_of_the_update_before_it(tmp_path: Path) -> None:
    metrics: list[float] = []

    class Metrics(lightning.Callback):  # type: ignore[misc,name-defined,unused-ignore]
        def on_validation_end(self, trainer: Any, _: Any) -> None:
            if not trainer.sanity_checking:
                metrics.append(trainer.callback_metrics["valid/loss"].item())

    fitted(tmp_path, Metrics(), recording(tmp_path / "a"), evaluated=True)
    found = {row["step"]: row["val_loss"] for row in rows(tmp_path / "a") if "val_loss" in row}
    assert found == {PASS * epoch - 1: pytest.approx(loss) for epoch, loss in enumerate(metrics, 1)}
    assert len(metrics) == EPOCHS


def test_an_update_that_a_gradient_scaler_skipped_is_a_row_with_its_loss_and_no_norm(tmp_path: Path) -> None:
    alone = learnt(lambda: fitted(tmp_path, scaled=True).work.model)
    made: list[Any] = []

    def train() -> Any:
        made.append(fitted(tmp_path, recording(tmp_path / "a"), scaled=True))
        return made[0].work.model

    assert learnt(train) == alone
    found = rows(tmp_path / "a")
    skipped = [row for row in found if row.get("skipped")]
    assert len(found) == PASS * EPOCHS > len(skipped) > 0
    assert [row["loss"] for row in found] == pytest.approx(made[0].losses, rel=1e-6)
    assert all("grad_norm" not in row and row["gradients_finite"] == 0 for row in skipped)
    unscaled = [norm for row, norm in zip(found, made[0].norms, strict=True) if row not in skipped]
    assert [row["grad_norm"] for row in found if row not in skipped] == pytest.approx(unscaled, rel=1e-6)


def test_an_epoch_of_a_few_batches_is_no_pass_over_the_corpus(tmp_path: Path) -> None:
    fitted(tmp_path, recording(tmp_path / "a"), limit_train_batches=1)
    assert [event["step"] for event in events(tmp_path / "a", "restart")] == [1, 2, 3]
    assert not events(tmp_path / "a", "wrap")


def test_a_training_that_fails_leaves_its_rows_and_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a cosmic ray"):
        fitted(tmp_path, recording(tmp_path / "a"), fails_at=7)
    assert len(rows(tmp_path / "a")) == 7
    assert [event["by"] for event in events(tmp_path / "a", "end")] == ["RuntimeError"]


SAVED = {
    "within-a-pass": {"every_n_train_steps": 7},
    "at-the-last-batch": {"every_n_train_steps": PASS},
    "between-two": {"every_n_epochs": 1},
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.exhaustive] if how != "within-a-pass" else []) for how in SAVED]
)
def test_a_training_that_resumes_is_the_next_attempt_and_goes_on_with_its_steps(how: str, tmp_path: Path) -> None:
    steps = 2 * EPOCHS * PASS
    of_run: dict[str, Any] = {"requested_device": "cpu", "corpus_tokens": ROWS * SEQ}
    kept = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=tmp_path, save_top_k=-1, **SAVED[how])
    with pytest.raises(RuntimeError, match="a cosmic ray"):
        fitted(tmp_path, kept, recording(tmp_path / "a", **of_run), fails_at=9)
    (saved,) = tmp_path.glob("*.ckpt")
    alone = learnt(lambda: fitted(tmp_path, resumed=saved, max_epochs=2 * EPOCHS).work.model)
    assert (
        learnt(
            lambda: (
                fitted(tmp_path, recording(tmp_path / "a", **of_run), resumed=saved, max_epochs=2 * EPOCHS).work.model
            )
        )
        == alone
    )
    first = 7 if how == "within-a-pass" else PASS
    again = rows(tmp_path / "a" / "attempt-2")
    assert [row["step"] for row in again] == list(range(first, steps))
    assert [row["wraps"] for row in again] == [step // PASS for step in range(first, steps)]
    assert list(open_run(tmp_path / "a").dense("step").values) == list(range(steps))
    assert passed_the_gates(tmp_path / "a")


def test_the_gates_of_a_training_run_pass_on_a_recorded_lightning(tmp_path: Path) -> None:
    fitted(tmp_path, recording(tmp_path / "a", requested_device="cpu", corpus_tokens=ROWS * SEQ), max_epochs=12)
    assert passed_the_gates(tmp_path / "a")


def test_the_command_that_inspect_names_passes_a_healthy_lightning_and_fails_one_that_was_to_use_a_gpu(
    tmp_path: Path,
) -> None:
    for name, options in (("a", {}), ("b", {"requested_device": "cuda"})):
        fitted(tmp_path, recording(tmp_path / name, **options), max_epochs=12)
    code, printed = as_inspect_says("a", tmp_path)
    assert (code, "worked on cpu, asked for auto" in printed) == (0, True), printed
    code, printed = as_inspect_says("b", tmp_path)
    assert (code, "places: asked for cuda, resolved to cpu (step 0" in printed) == (1, True), printed


def test_a_version_that_logged_no_step_by_default_is_a_run_that_could_not_be_told_and_its_checkpoints_are_looked_at(
    tmp_path: Path,
) -> None:
    logger = lightning.pytorch.loggers.CSVLogger(tmp_path)
    fitted(tmp_path, logger=logger, enable_checkpointing=True)
    version = tmp_path / "lightning_logs" / "version_0"
    assert not (version / "metrics.csv").exists()
    kept = next(version.glob("checkpoints/*.ckpt"))
    for at in (version, version.parent, tmp_path):
        code, printed = typed(f"weighbridge inspect {at} --strict", tmp_path)
        assert (code, "no step was logged" in printed) == (3, True), printed
        assert "train with log_every_n_steps=1" in printed
        assert f"{kept.stem}.ckpt  8 tensors" in printed or f"{kept.name}  " in printed
    code, printed = typed("weighbridge verify builtin:training-log --subject run=lightning_logs/version_0", tmp_path)
    assert (code, "train with log_every_n_steps=1" in printed) == (3, True), printed
    state = torch.load(kept, weights_only=False)
    state["state_dict"] = {name: torch.full_like(one, torch.nan) for name, one in state["state_dict"].items()}
    torch.save(state, kept.with_name("last.ckpt"))
    code, printed = typed("weighbridge inspect lightning_logs/version_0 --strict", tmp_path)
    assert (code, "checkpoints/last.ckpt: " in printed, "NaN" in printed) == (1, True, True), printed
    assert f"last in order      checkpoints/{kept.name}" in printed


class Adversaries(Module):
    """Two optimizers by hand, of which each rests while the other updates."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, number: int) -> Any:
        loss = self.loss_of(batch)
        optimizer = self.optimizers()[number % 2]
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.model[0], self.model[2])]


def test_of_two_optimizers_that_take_turns_no_update_is_called_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "Module", Adversaries)
    made = fitted(tmp_path, recording(tmp_path / "a"))
    found = rows(tmp_path / "a")
    assert [row["loss"] for row in found] == pytest.approx(made.losses, rel=1e-6)
    assert not any("skipped" in row for row in found)
