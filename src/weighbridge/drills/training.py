"""Train one run of a drill, recorded: `python -m weighbridge.drills.training FOLDER SETUP DECLARED`."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from weighbridge.demo.train import standard_library
from weighbridge.drills.miniature import HEADS, LENGTH, VOCAB, Attention, model_of
from weighbridge.drills.setups import KNOCK, Setup
from weighbridge.recorder import Diagnostics, Recorder

BATCH, EVERY, TEXT, HELD_OUT = 8, 10, 900_000, 1 << 20
ROTATION = "rotation"


def train(folder: Path, setup: Setup, declared: Setup) -> None:
    """Train a run into a folder, beside the learning rate that the run which it is held against was meant to have."""
    torch.manual_seed(setup.seed)
    torch.set_num_threads(1)
    model = model_of(setup).to(getattr(torch, setup.dtype))
    owned = [one for name, one in model.named_parameters() if not _named(setup.left_out, name)]
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = kinds[setup.optimizer](owned, lr=setup.rate)
    for one in (one for name, one in model.named_parameters() if _named(setup.louder, name)):
        one.register_hook(lambda gradient: gradient * 1e3)  # type: ignore[no-untyped-call]
    ids = torch.tensor(list(standard_library(HELD_OUT)), dtype=torch.long)
    batches, kept = _batches(ids[: setup.text], setup.seed), list(zip(range(4), _batches(ids[TEXT:], 99), strict=False))
    learned = [(0, next(_batches(ids[: setup.text], setup.seed)))]
    inside = Diagnostics(every=setup.inside) if setup.inside else None
    with Recorder(folder, model, optimizer, vocab=VOCAB, seq_len=LENGTH, batch_size=BATCH, sampled=True, probe_every=5,
                  requested_steps=setup.steps, requested_device="cpu", diagnostics=inside) as recorder:  # fmt: skip
        for step in range(setup.steps):
            for group in optimizer.param_groups:
                group["lr"] = scheduled(setup, step)
            _set(model, setup, step)
            optimizer.zero_grad()
            loss = loss_of(model, next(batches))
            loss.backward()  # type: ignore[no-untyped-call]
            if setup.clip:
                nn.utils.clip_grad_norm_(model.parameters(), setup.clip)
            optimizer.step()
            more: dict[str, Any] = {"lr_declared": scheduled(declared, step)}
            if step % EVERY == EVERY - 1:
                found = {"val_loss": evaluated(model, kept), "slice": evaluated(model, learned)}
                more |= {"val_loss": found["val_loss"], "slice_ppl": math.exp(min(found["slice"], 99))}
            recorder.step(loss, **more)


def scheduled(setup: Setup, step: int) -> float:
    """Return the learning rate of a step: up in the warm-up, then down to a tenth along a cosine."""
    if step < setup.warmup:
        return setup.rate * (step + 1) / setup.warmup
    rest = (step - setup.warmup) / max(setup.steps - setup.warmup, 1)
    return setup.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * rest)))


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the mean cross-entropy of the next byte, in nats."""
    output = model(batch[:, :-1])
    return functional.cross_entropy(getattr(output, "logits", output).flatten(0, 1), batch[:, 1:].flatten())


def evaluated(model: nn.Module, kept: list[tuple[int, Tensor]]) -> float:
    """Return the mean loss over batches, each token seeing those before it alone."""
    parts = [one for one in model.modules() if isinstance(one, Attention)]
    model.eval()
    for part in parts:
        part.hides = True
    with torch.no_grad():
        losses = [float(loss_of(model, batch)) for _, batch in kept]
    for part in parts:
        part.hides = False
    model.train()
    return sum(losses) / len(losses)


def _batches(ids: Tensor, seed: int) -> Iterator[Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(0, len(ids) - LENGTH - 1, (BATCH,), generator=drawn).tolist()
        yield torch.stack([ids[at : at + LENGTH + 1] for at in starts])


def _set(model: nn.Module, setup: Setup, step: int) -> None:
    """Change the tensors that a setup names, or how far queries and keys are rotated, where a step is due."""
    if step == KNOCK and setup.knocked == ROTATION:
        for part in model.modules():
            if isinstance(part, Attention):
                part.setup = dataclasses.replace(setup, rope_base=setup.rope_base**0.25)
    for name, one in model.named_parameters():
        if _named(setup.zeroed, name):
            one.data.zero_()
        if _named(setup.same_heads, name):
            by_head = one.data.view(HEADS, -1, *one.shape[1:])
            by_head.copy_(by_head[:1].clone().expand_as(by_head))
        if step == KNOCK and _named(setup.knocked, name):
            one.data.mul_(setup.knock)


def _named(pattern: str, name: str) -> bool:
    return bool(pattern and re.search(pattern, name))


if __name__ == "__main__":
    train(Path(sys.argv[1]), *(Setup(**json.loads(text)) for text in sys.argv[2:4]))
