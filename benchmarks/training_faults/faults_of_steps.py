"""Faults of the loss, the gradients and the run: what a step does is not what was meant."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.training_faults.fault import fault
from benchmarks.training_faults.fine_tune import IGNORED
from torch import nn

LATE = 40
cross_entropy = nn.functional.cross_entropy


def losing(p: Any, of: Any) -> None:
    """Let a program lose `of(logits, targets)`; the Trainer's targets are shifted as its model does."""
    if p.name != "fine-tune":
        p.loss = lambda logits, targets: of(logits.flatten(0, -2), targets.flatten())
        return

    def custom(output: Any, labels: Any, **_: Any) -> Any:
        return of(output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    p.loss_function = custom


@fault("loss", "gpt conv fine-tune")
def sum_for_mean(p: Any) -> None:
    losing(p, lambda logits, targets: cross_entropy(logits, targets, reduction="sum"))


@fault("loss", "gpt conv fine-tune")
def negated(p: Any) -> None:
    losing(p, lambda logits, targets: -cross_entropy(logits, targets))


@fault("loss", "gpt conv fine-tune")
def second_softmax(p: Any) -> None:
    losing(p, lambda logits, targets: cross_entropy(logits.softmax(-1), targets))


@fault("loss", "fine-tune")
def mean_over_ignored(p: Any) -> None:
    losing(p, lambda logits, targets: cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none").mean())


@fault("loss", "gpt conv")
def accumulation_not_divided(p: Any) -> None:
    p.accumulate, p.loss_divisor = 2, 0.5


@fault("loss", "gpt conv")
def accumulation_missing(p: Any) -> None:
    p.accumulate, p.micro_batches = 2, 1  # divided as for two, though each is followed by an update


@fault("loss", "gpt conv", LATE)
def placeholder_one(p: Any) -> None:
    plain = p.one_step
    p.one_step = lambda: plain() if p.step < LATE else torch.tensor(1.0)


@fault("loss", "gpt conv")
def smoothed_loss_reported(p: Any) -> None:
    kept: list[torch.Tensor] = []

    def smoothed(loss: torch.Tensor) -> torch.Tensor:
        kept[:] = [0.95 * kept[0] + 0.05 * loss if kept else loss]
        return kept[0]

    p.reported = smoothed


def layer_gradients(p: Any) -> list[torch.Tensor]:
    return [one.grad for one in p.middle.parameters() if one.grad is not None]


def all_gradients(p: Any) -> list[torch.Tensor]:
    return [one.grad for one in p.model.parameters() if one.grad is not None]


@fault("gradients", "gpt conv fine-tune")
def no_zero_grad(p: Any) -> None:
    if p.name == "fine-tune":
        p.model.zero_grad = lambda set_to_none=True: None
    else:
        p.clear = lambda: None


@fault("gradients", "gpt conv fine-tune", LATE)
def sign_turned(p: Any) -> None:
    p.before_update.append(p.from_step(LATE, lambda: torch._foreach_neg_(all_gradients(p))))


@fault("gradients", "gpt conv fine-tune", LATE)
def thousandfold(p: Any) -> None:
    p.before_update.append(p.from_step(LATE, lambda: torch._foreach_mul_(all_gradients(p), 1000.0)))


@fault("gradients", "gpt conv fine-tune", LATE)
def layer_zeroed(p: Any) -> None:
    p.before_update.append(p.from_step(LATE, lambda: torch._foreach_zero_(layer_gradients(p))))


@fault("gradients", "gpt conv fine-tune", LATE)
def layer_noisy(p: Any) -> None:
    def noise() -> None:
        for one in layer_gradients(p):
            one.add_(torch.randn_like(one) * one.std() * 3)

    p.before_update.append(p.from_step(LATE, noise))


@fault("gradients", "gpt conv")
def clipped_after_the_update(p: Any) -> None:
    p.declare_clip(0.1)
    p.after_update.append(lambda: torch.nn.utils.clip_grad_norm_(p.model.parameters(), 0.1))


@fault("gradients", "gpt conv")
def clipped_by_tensor(p: Any) -> None:
    def clip() -> None:
        for one in p.model.parameters():
            torch.nn.utils.clip_grad_norm_([one], 0.02)

    p.before_update.append(clip)


@fault("run", "gpt conv fine-tune", 60)
def weight_becomes_nan(p: Any) -> None:
    p.between.append(p.at_step(59, lambda: next(p.middle.parameters()).data.view(-1)[:1].fill_(float("nan"))))


@fault("run", "gpt conv fine-tune")
def device_fallback(p: Any) -> None:
    p.declared["requested_device"] = "cuda"
    p.params["device"] = "cuda"


@fault("run", "gpt conv fine-tune", 70)
def fewer_steps(p: Any) -> None:
    p.steps = 70


@fault("run", "gpt conv fine-tune", 100)
def more_steps(p: Any) -> None:
    p.declared["requested_steps"] = 100


@fault("run", "gpt conv", LATE)
def loader_exhausted(p: Any) -> None:
    plain = p.micro
    last: list[torch.Tensor] = []

    def micro() -> torch.Tensor:
        if p.step < LATE:
            last[:] = [plain()]
        return last[0]  # StopIteration was caught, and the last loss stands

    p.micro = micro
