"""Eight ways of training that are right, for each program; the first is the program as it is."""

from __future__ import annotations

import math
from typing import Any

import torch
from benchmarks.training_faults.fault import Patch
from benchmarks.training_faults.fine_tune import IGNORED


def clean(_: Any) -> None: ...


def clipped(p: Any) -> None:
    p.clip = 0.5
    p.declare_clip(0.5)


def unclipped(p: Any) -> None:
    p.settings["max_grad_norm"] = 0.0
    del p.params["clip"]


def with_sgd(p: Any) -> None:
    p.optimizer = torch.optim.SGD(p.model.parameters(), lr=0.3 if p.name == "gpt" else 0.1, momentum=0.9)
    p.params["peak"] = str(p.optimizer.defaults["lr"])
    p.declare_decay()
    if p.schedule is not None:
        p.scheduled(p.schedule.lr_lambdas[0])


def with_adamw(p: Any) -> None:
    p.optimizer = torch.optim.AdamW(p.model.parameters(), lr=3e-3)
    p.params["peak"] = "3e-3"
    p.declare_decay()


def with_schedule(p: Any) -> None:
    """Ten steps of warm-up, and half a cosine."""

    def factor(step: int) -> float:
        return step / 10 if step < 10 else 0.5 + 0.5 * math.cos(math.pi * (step - 10) / (p.steps - 10))

    p.scheduled(factor)
    p.declare_rate(float(p.params["peak"]), "cosine", warmup=10)


def with_evaluation(p: Any) -> None:
    p.evaluate_every = 20


def with_accumulation(p: Any) -> None:
    if p.name == "fine-tune":
        p.settings |= {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    else:
        p.batch_size //= 2
        p.accumulate = 2
        p.load(p.data)


def with_small_batches(p: Any) -> None:
    if p.name == "fine-tune":
        p.settings["per_device_train_batch_size"] = 4
        p.declared["batch_size"] = 4
    else:
        p.batch_size //= 2
        p.params["tokens_per_step"] = str(int(p.params["tokens_per_step"]) // 2)
        p.load(p.data)


def with_dropout(p: Any) -> None:
    for module in p.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1


def with_masked_labels(p: Any) -> None:
    """Learn nothing of each row's first quarter."""
    plain = p.pair

    def pair(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = plain(batch)
        targets = targets.clone()
        targets[:, : targets.shape[1] // 4] = IGNORED
        return inputs, targets

    p.pair = pair


def with_zeroed_gradients(p: Any) -> None:
    p.set_to_none = False


def with_bf16(p: Any) -> None:
    p.settings["bf16"] = True


VARIANTS: dict[str, tuple[Patch, ...]] = {
    "gpt": (
        clean, clipped, with_sgd, with_schedule, with_evaluation, with_accumulation, with_dropout, with_masked_labels,
    ),
    "conv": (
        clean, clipped, with_adamw, with_schedule, with_evaluation, with_accumulation, with_small_batches,
        with_zeroed_gradients,
    ),
    "fine-tune": (
        clean, unclipped, with_sgd, with_schedule, with_evaluation, with_accumulation, with_small_batches, with_bf16,
    ),
}  # fmt: skip
