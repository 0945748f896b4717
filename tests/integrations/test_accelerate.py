"""The recorder inside loops under Accelerate: a row an update, and the same training to the bit."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install accelerate")

from tests.integrations.recorded import events, passed_the_gates, rows  # noqa: E402
from tests.recorder.scenarios import learnt  # noqa: E402
from tests.recorder.training import BATCH, PASS, ROWS, SEQ, training  # noqa: E402
from torch import nn  # noqa: E402

from weighbridge.integrations.accelerate import Recorder  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # their warnings are theirs
PASSES, OVERFLOWS = 3, 4


def trained(
    directory: Path | None, losses: list[float], norms: list[float], *, accumulated: int = 1, clip: float = 0.0,
    scaled: bool = False, passes: int = PASSES, watched: bool = True, **options: Any,
) -> Any:  # fmt: skip
    work: Any = training()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    if scaled:  # as of a GPU in half precision
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        work.model[2].weight.register_hook(lambda gradient: gradient * (torch.inf if len(losses) < OVERFLOWS else 1))
        accelerator.native_amp, accelerator.state._mixed_precision = True, "fp16"
    prepared = accelerator.prepare(work.optimizer, work.loader)
    model, (optimizer, loader) = accelerator.prepare_model(work.model) if not scaled else work.model, prepared
    given = {"loader": loader} if watched else {}
    made = directory and Recorder(accelerator, directory, model, optimizer, on_fail="raise", **given, **options)
    with made or contextlib.nullcontext() as rec:
        for _ in range(passes):
            for batch in rec.loader if rec and watched else loader:
                with accelerator.accumulate(model):
                    logits = model(batch[:, :-1])
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                    accelerator.backward(loss)
                    losses.append(loss.item())
                    if accelerator.sync_gradients:
                        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), clip or 1e9)))
                    optimizer.step()
                    optimizer.zero_grad()
                if rec:
                    rec.step(loss, **({} if watched else {"tokens": batch[:, 1:].numel()}), twice=2 * loss)
    accelerator.state._mixed_precision = "no"
    return work.model


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_loop_learns_the_same_and_each_update_is_a_row_with_the_mean_of_its_losses(
    accumulated: int, watched: bool, tmp_path: Path
) -> None:
    losses: list[float] = []
    norms: list[float] = []
    of: dict[str, Any] = {"accumulated": accumulated, "clip": 0.1}
    looking: dict[str, Any] = {"watched": watched, "seq_len": SEQ, "channels": "all" if watched else "default"}
    alone = learnt(lambda: trained(None, [], [], **of))
    recorded = learnt(lambda: trained(tmp_path / "a", losses, norms, **of, **looking))
    assert recorded == alone
    passes = [losses[at : at + PASS] for at in range(0, len(losses), PASS)]
    by_hand = [one[at : at + accumulated] for one in passes for at in range(0, PASS, accumulated)]
    found = rows(tmp_path / "a")
    assert [row["loss"] for row in found] == pytest.approx([sum(one) / len(one) for one in by_hand], rel=1e-6)
    assert [row["tokens"] for row in found] == [BATCH * SEQ * len(one) for one in by_hand]
    assert [row["twice"] for row in found] == pytest.approx([2 * one[-1] for one in by_hand], rel=1e-6)
    assert [row["grad_norm"] for row in found] == pytest.approx(norms, rel=1e-6)
    assert all(row["grad_norm"] > 0.1 > row["grad_norm_used"] * 0.999 for row in found)
    assert not any("skipped" in row for row in found)


def test_an_update_that_the_scaler_skipped_is_a_row_with_its_loss_and_no_norm(tmp_path: Path) -> None:
    losses: list[float] = []
    norms: list[float] = []
    alone = learnt(lambda: trained(None, [], [], scaled=True))
    assert learnt(lambda: trained(tmp_path / "a", losses, norms, scaled=True)) == alone
    found = rows(tmp_path / "a")
    skipped = [row for row in found if row.get("skipped")]
    assert (len(found), len(skipped)) == (PASS * PASSES, OVERFLOWS)
    assert [row["loss"] for row in found] == pytest.approx(losses, rel=1e-6)
    assert all("grad_norm" not in row and row["gradients_finite"] == 0 for row in skipped)
    unscaled = [norm for row, norm in zip(found, norms, strict=True) if row not in skipped]
    assert [row["grad_norm"] for row in found if row not in skipped] == pytest.approx(unscaled, rel=1e-5)


def test_what_cannot_be_recorded_is_an_event_and_the_loop_goes_on(tmp_path: Path) -> None:
    work, accelerator = training(), accelerate.Accelerator(cpu=True)
    with Recorder(accelerator, tmp_path / "a", work.model, work.optimizer) as rec:
        with pytest.warns(RuntimeWarning, match="micro_loss: TypeError: .*; training goes on"):
            rec.step("3.9")
        rec.step()
        rec.step(work.step(next(iter(work.loader))))
    found = events(tmp_path / "a", "recorder-failure")
    assert [event["what"].partition(": ")[2][:9] for event in found] == ["TypeError"] * 2


def test_the_gates_of_a_training_run_pass_on_a_recorded_loop(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"seq_len": SEQ, "requested_device": "cpu", "corpus_tokens": ROWS * SEQ}
    trained(tmp_path / "a", [], [], clip=0.1, passes=12, requested_steps=60, **shape)
    assert passed_the_gates(tmp_path / "a")
