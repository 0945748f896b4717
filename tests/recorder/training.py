"""A tiny real training run: the same with and without whatever is wrapped around its loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

VOCAB, SEQ, BATCH, ROWS = 50, 8, 4, 20
PASS = ROWS // BATCH  # steps of one pass over the corpus
SHAPE: dict[str, Any] = {"seq_len": SEQ, "batch_size": BATCH, "vocab": VOCAB, "corpus_tokens": ROWS * SEQ}


@dataclass
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: torch.utils.data.DataLoader[torch.Tensor]
    losses: list[float] = field(default_factory=list)

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        logits = self.model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses.append(loss.item())
        return loss

    def weights(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def run(self, loader: Iterable[Any], after: Callable[[torch.Tensor], None], *, passes: int = 1) -> None:
        for _ in range(passes):
            for batch in loader:
                after(self.step(batch))


def training(seed: int = 0) -> Training:
    """Make a model with dropout, so that every random number drawn by somebody else would show."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Dropout(0.1), nn.Linear(16, VOCAB))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.randint(0, VOCAB, (ROWS, SEQ + 1))
    loader: torch.utils.data.DataLoader[torch.Tensor] = torch.utils.data.DataLoader(
        rows,  # type: ignore[arg-type]  # a tensor is a data set of its rows
        batch_size=BATCH,
        shuffle=True,
    )
    return Training(model, optimizer, loader)
