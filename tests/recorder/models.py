"""Small models of each kind that people train, and one step of training for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weighbridge.recorder import Recorder

VOCAB, SEQ, BATCH = 50, 12, 4


class TinyGPT(nn.Module):
    """A causal model; with `causal` off, one that looks ahead; with `drop_always`, one whose dropout never rests."""

    def __init__(self, *, causal: bool = True, drop_always: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.positions = nn.Embedding(SEQ, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, VOCAB)
        self.causal, self.drop_always, self.calls = causal, drop_always, 0
        self.seen: list[int] = []
        self.counted: torch.Tensor
        self.register_buffer("counted", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(len(ids))
        self.counted += 1
        hidden = self.kept = self.embedding(ids) + self.positions.weight[: ids.shape[1]]
        if self.drop_always:
            hidden = nn.functional.dropout(hidden, 0.1, training=True)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.causal else None
        logits: torch.Tensor = self.head(self.block(hidden, src_mask=mask))
        return logits


class Placed(nn.Module):
    """A model that is given a number for each place besides its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB))

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.inner(ids) + places.reshape(-1)[0]
        return logits


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Flatten(), nn.Linear(8 * 8 * 8, 10)),
    )


def tokens(count: int, seed: int = 0, length: int = SEQ + 1) -> torch.Tensor:
    """Make rows of tokens, `[count, length]`, no two alike."""
    return torch.randint(0, VOCAB, (count, length), generator=torch.Generator().manual_seed(seed))


def batches(count: int, seed: int = 0) -> list[torch.Tensor]:
    """Make batches of rows of tokens, no two alike."""
    return list(torch.split(tokens(count * BATCH, seed), BATCH))


def language_loss(model: nn.Module, batch: torch.Tensor, shift: int = 1) -> torch.Tensor:
    inputs = batch[:, :-1]
    targets = batch[:, 1:] if shift == 1 else torch.roll(inputs, -shift, 1)
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def image_loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def hugging_loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def train(
    path: Path,
    model: nn.Module,
    loader: Iterable[Any],
    loss_of: Callable[[Any, Any], torch.Tensor] = language_loss,
    *,
    passes: int = 1,
    watch: bool = True,
    before: Callable[[int], object] = lambda step: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train, and return the rows that were recorded."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    with Recorder(path, model, optimizer, loader=loader if watch else None, on_fail="raise", **options) as rec:
        for _ in range(passes):
            for batch in rec.loader if watch else loader:
                before(step)
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                rec.step(loss)
                step += 1
    return [json.loads(line) for line in (path / "steps.jsonl").read_text().splitlines()]


def column(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """Return a column, None where a cell is missing."""
    return [row.get(name) for row in rows]


class Pooled(nn.Module):
    """Generalised-mean pooling: its exponent is called p, as the probability of dropout is."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.full((3,), 3.0))

    def forward(self, images: Any) -> Any:
        return images.abs().clamp(min=1e-6).pow(self.p[:, None, None]).mean((-2, -1)).pow(1 / self.p)
