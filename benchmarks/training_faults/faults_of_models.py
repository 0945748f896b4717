"""Faults of the optimizer, the model and its weights."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from benchmarks.training_faults.fault import fault
from torch import nn

LATE = 60


def weight(p: Any) -> torch.Tensor:
    found: torch.Tensor = p.middle.weight.data
    return found


# --- Optimizer ---


@fault("optimizer", "gpt conv fine-tune")
def rate_zero(p: Any) -> None:
    p.rate(0.0)


@fault("optimizer", "gpt conv fine-tune")
def rate_hot(p: Any) -> None:
    p.rate(100.0)


@fault("optimizer", "gpt conv fine-tune")
def layer_in_no_group(p: Any) -> None:
    mine = {id(one) for one in p.middle.parameters()}
    p.optimize([one for one in p.model.parameters() if id(one) not in mine])
    rescheduled(p)


@fault("optimizer", "gpt conv fine-tune")
def optimizer_of_a_copy(p: Any) -> None:
    p.optimize(copy.deepcopy(p.model).parameters())
    rescheduled(p)


def rescheduled(p: Any) -> None:
    if p.schedule is not None:
        p.scheduled(p.schedule.lr_lambdas[0])


@fault("optimizer", "gpt")
def parameter_moved_after_it_was_made(p: Any) -> None:
    made = p.middle.weight
    del p.middle.weight
    p.middle.weight = made.clone()  # what `nn.Parameter(…).to(device)` gives on another device
    p.optimize(p.model.parameters())
    rescheduled(p)


@fault("optimizer", "gpt conv fine-tune")
def layer_frozen(p: Any) -> None:
    p.middle.requires_grad_(False)


@fault("optimizer", "gpt conv fine-tune")
def updates_skipped(p: Any) -> None:
    plain = p.optimizer.step
    p.optimizer.step = lambda *given, **named: plain(*given, **named) if p.step % 3 == 0 else None


@fault("optimizer", "gpt conv fine-tune", LATE)
def state_reset(p: Any) -> None:
    def forget() -> None:
        p.optimizer.state.clear()  # looked up late: Accelerate lays it anew

    p.between.append(p.at_step(LATE - 1, forget))


@fault("optimizer", "gpt conv fine-tune")
def weight_decay_wrong(p: Any) -> None:
    for group in p.optimizer.param_groups:
        group["weight_decay"] *= 300


@fault("optimizer", "gpt conv fine-tune")
def schedule_not_stepped(p: Any) -> None:
    p.scheduled(lambda step: 1 - step / p.steps)
    declare_fall(p)
    p.schedule.step = lambda *_: None


@fault("optimizer", "gpt conv fine-tune")
def schedule_stepped_twice(p: Any) -> None:
    p.scheduled(lambda step: max(0.0, 1 - step / p.steps))
    declare_fall(p)
    p.between.append(p.schedule.step)


def declare_fall(p: Any) -> None:
    p.declare_rate(float(p.params["peak"]), "linear")


@fault("optimizer", "gpt conv fine-tune", LATE)
def resumed_with_another_rate(p: Any) -> None:
    p.between.append(p.at_step(LATE - 1, lambda: p.rate(5.0)))


# --- Model ---


@fault("model", "gpt conv fine-tune")
def layer_detached(p: Any) -> None:
    p.middle.register_forward_hook(lambda _module, _given, output: output.detach())


@fault("model", "gpt fine-tune")
def units_dead(p: Any) -> None:
    p.middle.bias.data.fill_(-100.0)


@fault("model", "gpt")
def not_causal(p: Any) -> None:
    for block in p.model.blocks:
        block.causal = False


class Mixing(nn.Module):
    """A mean over the batch, where one over time was meant."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.mean(0)


@fault("model", "gpt")
def mean_over_the_batch(p: Any) -> None:
    p.model.norm = nn.Sequential(p.model.norm, Mixing())


class Alone(nn.Module):
    """A block to which each place is a row of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(x.flatten(0, 1)[:, None])
        return found.view_as(x)


@fault("model", "gpt")
def places_as_rows(p: Any) -> None:
    p.model.blocks = nn.ModuleList(map(Alone, p.model.blocks))


class Unresting(nn.Module):
    """Dropout that was called as a function, and so knows no evaluation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.1)


@fault("model", "gpt fine-tune")
def dropout_in_evaluation(p: Any) -> None:
    p.evaluate_every = 20
    owner, name = (p.model, "norm") if p.name == "gpt" else (p.model.transformer, "ln_f")
    setattr(owner, name, nn.Sequential(getattr(owner, name), Unresting()))


@fault("model", "gpt conv", 20)
def evaluation_not_restored(p: Any) -> None:
    p.evaluate_every = 20
    for module in p.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1

    def evaluate() -> torch.Tensor:
        p.model.eval()
        with torch.no_grad():
            loss: torch.Tensor = p.evaluation_loss()
        return loss

    p.evaluate = evaluate


@fault("model", "gpt conv")
def begun_fifty_times_too_wide(p: Any) -> None:
    for one in p.model.parameters():
        if one.dim() > 1:
            one.data.mul_(50.0)


@fault("model", "gpt conv")
def begun_with_ones(p: Any) -> None:
    weight(p).fill_(0.02)


@fault("model", "gpt")
def untied(p: Any) -> None:
    p.model.head.weight = nn.Parameter(p.model.embed.weight.detach().clone())
    p.optimize(p.model.parameters())


@fault("model", "gpt")
def attention_scale(p: Any) -> None:
    for block in p.model.blocks:
        block.scale = 1 / math.sqrt(math.sqrt(16))


@fault("model", "conv")
def batch_norm_in_evaluation(p: Any) -> None:
    for module in p.model:
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


class Adapted(nn.Module):
    """A frozen layer with a trainable one of low rank beside it."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        width = layer.weight.shape
        self.layer, self.down = layer, nn.Linear(width[0], 4, bias=False)
        self.up = nn.Linear(4, width[1], bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = self.layer(x) + self.up(self.down(x))
        return adapted


@fault("model", "fine-tune")
def adapter_in_no_group(p: Any) -> None:
    p.model.requires_grad_(False)
    p.model.lm_head.weight.requires_grad_(True)
    p.optimize([one for one in p.model.parameters() if one.requires_grad])
    rescheduled(p)
    p.model.transformer.h[1].mlp.c_fc = Adapted(p.middle)


# --- Weights ---


@fault("weights", "gpt conv fine-tune", LATE)
def bit_of_exponent(p: Any) -> None:
    p.between.append(p.at_step(LATE - 1, lambda: flip(p, 1 << 30)))


@fault("weights", "gpt conv fine-tune", LATE)
def bit_of_mantissa(p: Any) -> None:
    p.between.append(p.at_step(LATE - 1, lambda: flip(p, 1 << 18)))


def flip(p: Any, bit: int) -> None:
    weight(p).view(torch.int32).view(-1)[5] ^= bit


@fault("weights", "gpt conv fine-tune")
def written_as_bf16(p: Any) -> None:
    def rounded() -> None:
        for one in p.model.parameters():
            one.data.copy_(one.data.bfloat16())

    p.after_update.append(rounded)


@fault("weights", "gpt conv fine-tune", LATE)
def checkpoint_of_bf16_loaded(p: Any) -> None:
    def load() -> None:
        p.model.load_state_dict(
            {name: one.bfloat16() if one.is_floating_point() else one for name, one in p.model.state_dict().items()}
        )

    p.between.append(p.at_step(LATE - 1, load))


@fault("weights", "gpt conv fine-tune", LATE)
def average_written_over(p: Any) -> None:
    average: dict[str, torch.Tensor] = {}

    def follow() -> None:
        for name, one in p.model.named_parameters():
            average[name] = average.get(name, one.detach().clone()).lerp(one.detach(), 0.1)
            if p.step >= LATE - 1:
                one.data.copy_(average[name])

    p.between.append(follow)


@fault("weights", "gpt conv fine-tune", LATE)
def stale_checkpoint_loaded(p: Any) -> None:
    kept: dict[str, Any] = {}
    p.between.append(p.at_step(19, lambda: kept.update(copy.deepcopy(p.model.state_dict()))))
    p.between.append(p.at_step(LATE - 1, lambda: p.model.load_state_dict(kept)))


@fault("weights", "gpt conv fine-tune", 20)
def evaluation_updates(p: Any) -> None:
    p.evaluate_every = 20

    def evaluate() -> None:
        p.optimizer.zero_grad()
        p.evaluation_loss().backward()
        p.optimizer.step()
        p.optimizer.zero_grad()

    p.evaluate = evaluate


@fault("weights", "conv", 20)
def evaluation_in_training_mode(p: Any) -> None:
    p.evaluate_every = 20

    def evaluate() -> None:
        with torch.no_grad():
            p.evaluation_loss()

    p.evaluate = evaluate
