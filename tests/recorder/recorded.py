"""Small models of three kinds, and a loop that trains them recorded, with a fault where one is wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from weighbridge.recorder import Recorder

VOCAB, SEQ, BATCH, WIDTH = 40, 12, 4, 16


class Language(nn.Module):
    """A causal language model with attention; a position is ignored where `ignored` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        mixed = x + nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        logits: torch.Tensor = self.head(mixed)
        return logits


def images() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 10))
    )


def plain(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


Loss = Callable[[Any, torch.Tensor], torch.Tensor]
Touch = Callable[[Any, torch.optim.Optimizer], object]


def nothing(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    pass


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch_of(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(model, Language):
        ids = torch.randint(0, VOCAB, (BATCH, SEQ + 1))
        return ids[:, :-1], ids[:, 1:]
    return torch.randn(BATCH, 1, 8, 8), torch.randint(0, 10, (BATCH,))


def recorded(
    path: Path,
    *,
    steps: int = 3,
    make: Callable[[], nn.Module] = Language,
    loss_of: Loss = plain,
    optimizer_of: Callable[[Any], torch.optim.Optimizer] = adamw,
    passes: int = 1,
    autocast: torch.dtype | None = None,
    scaler: bool = False,
    before_update: Touch = nothing,
    after_step: Touch = nothing,
    clear: bool = True,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train some steps, and return the rows of the log."""
    torch.manual_seed(0)
    model = make()
    optimizer = optimizer_of(model)
    scale = torch.amp.GradScaler("cpu", enabled=scaler, init_scale=1024.0, growth_interval=2)
    with Recorder(path / "run", model, optimizer, on_fail="raise", **options) as rec:
        for _ in range(steps):
            losses = []
            for _ in range(passes):
                inputs, labels = batch_of(model)
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    losses.append(loss_of(model(inputs), labels))
                scale.scale(losses[-1] / passes).backward()  # type: ignore[no-untyped-call]
            scale.unscale_(optimizer)
            before_update(model, optimizer)
            scale.step(optimizer)
            scale.update()
            rec.step(torch.stack(losses).mean())
            if clear:
                optimizer.zero_grad()
            after_step(model, optimizer)
    return [json.loads(line) for line in (path / "run" / "steps.jsonl").read_text().splitlines()]
