"""A tiny GPT, trained from nothing by a loop."""

from __future__ import annotations

import math

import torch
from benchmarks.training_faults.language import VOCAB, rows
from benchmarks.training_faults.loop import Loop
from torch import nn

WIDTH, HEADS, LAYERS, LENGTH, ROWS = 32, 2, 2, 32, 320


class Block(nn.Module):
    """One block; `causal` and `scale` are what a fault turns."""

    causal, scale = True, 1 / math.sqrt(WIDTH // HEADS)

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=self.scale)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(x.shape)))
        grown: torch.Tensor = x + self.dropout(self.down(nn.functional.gelu(self.up(self.norms[1](x)))))
        return grown


class GPT(nn.Module):
    """Embeddings, blocks and a head that shares the weights of the embedding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Pretraining(Loop):
    name, rate_of = "gpt", 5e-3
    model: GPT

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = GPT()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate_of, weight_decay=0.01)
        self.held_out = rows(32, LENGTH + 1, seed + 10_000)
        self.load(rows(ROWS, LENGTH + 1, seed))  # type: ignore[arg-type]
        self.declare_decay()
        self.declare_rate(self.rate_of)
        self.params["tokens_per_step"] = str(LENGTH * self.batch_size)
        self.declared |= {"seq_len": LENGTH, "vocab": VOCAB, "corpus_tokens": ROWS * LENGTH}

    @property
    def middle(self) -> nn.Module:
        block: Block = self.model.blocks[1]  # type: ignore[assignment]
        return block.up

    def pair(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return batch[:, :-1], batch[:, 1:]
