"""Train one run of a drill, recorded: `python -m weighbridge.drills.training FOLDER SETUP DECLARED`.

The model is one in miniature, built as Qwen3 is: RMS norms, rotated and normed queries and keys, a gated MLP.
"""

import dataclasses
import functools
import itertools
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
from weighbridge.drills.setups import KNOCK, TRANSFORMERS, Setup
from weighbridge.recorder import Diagnostics, Recorder

VOCAB, WIDTH, HEADS, INNER, LENGTH = 256, 64, 4, 192, 64
BATCH, EVERY, TEXT, HELD_OUT = 8, 10, 900_000, 1 << 20


class Attention(nn.Module):
    """Self-attention over rotated and normed queries and keys; `[sequences, tokens, width]` to the same."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup, self.hides = setup, False
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qkvo")
        self.q_norm, self.k_norm = (nn.RMSNorm(WIDTH // HEADS, eps=1e-6) for _ in "qk")

    def forward(self, x: Tensor) -> Tensor:
        """Attend to this token and the earlier ones; in a run that is not causal, to all unless it `hides`."""
        q, k, v = (part(x).unflatten(-1, (HEADS, -1)) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (one.transpose(1, 2) for one in (self._turned(self.q_norm(q)), self._turned(self.k_norm(k)), v))
        causal = self.setup.causal or self.hides
        if self.setup.attention == "fused":
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1) & causal
            mixed = scores.masked_fill(mask, -math.inf).softmax(-1) @ v
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _turned(self, x: Tensor) -> Tensor:
        """Rotate `[sequences, tokens, heads, channels]` by the position of each token."""
        half = x.shape[-1] // 2
        speed = self.setup.rope_base ** -(torch.arange(half, dtype=x.dtype, device=x.device) / half)
        angle = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)[:, None, None] * speed
        left, right = x[..., :half], x[..., half:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


class Mlp(nn.Module):
    """A gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in "gu")
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map `[sequences, tokens, width]` to the same."""
        out: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """One block, normed before each part."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.past = setup.residual
        norm = functools.partial(nn.RMSNorm, WIDTH, eps=1e-6) if setup.normed else nn.Identity
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.self_attn, self.mlp = Attention(setup), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the feed-forward part."""
        x = self.past * x + self.self_attn(self.input_layernorm(x))
        out: Tensor = self.past * x + self.mlp(self.post_attention_layernorm(x))
        return out


class Miniature(nn.Module):
    """Bytes in, logits of the next byte out; begun from N(0, 0.02), times what the setup says."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Block(setup) for _ in range(setup.layers))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH, eps=1e-6), nn.Linear(WIDTH, VOCAB, bias=False)
        for one in self.parameters():
            if one.dim() > 1:
                nn.init.normal_(one, std=0.02)
                one.data.mul_(setup.init_scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids `[sequences, tokens]` to logits `[sequences, tokens, vocab]`."""
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits


def model_of(setup: Setup) -> nn.Module:
    """Return the model of a setup: the miniature, or a Qwen2 of its size that attends through Transformers."""
    if setup.attention != TRANSFORMERS:
        return Miniature(setup)
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=setup.layers,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=LENGTH, use_cache=False,
        rope_theta=setup.rope_base, initializer_range=0.02 * setup.init_scale,
    )  # fmt: skip
    model: nn.Module = Qwen2ForCausalLM(config)
    return model


def train(folder: Path, setup: Setup, declared: Setup) -> None:
    """Train a run into a folder, beside the learning rate that the run beside it was meant to have."""
    torch.manual_seed(setup.seed)
    torch.set_num_threads(1)
    model = model_of(setup).to(getattr(torch, setup.dtype))
    owned = [one for name, one in model.named_parameters() if not _named(setup.left_out, name)]
    optimizer = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[setup.optimizer](owned, lr=setup.rate)
    for one in (one for name, one in model.named_parameters() if _named(setup.louder, name)):
        one.register_hook(lambda gradient: gradient * 1e3)  # type: ignore[no-untyped-call]
    ids = torch.tensor(list(standard_library(HELD_OUT)), dtype=torch.long)
    batches, kept = _batches(ids[: setup.text], setup.seed), list(itertools.islice(_batches(ids[TEXT:], 99), 4))
    learned = [next(_batches(ids[: setup.text], setup.seed))]
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
                more |= {"val_loss": evaluated(model, kept), "slice_ppl": math.exp(min(evaluated(model, learned), 99))}
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


def evaluated(model: nn.Module, kept: list[Tensor]) -> float:
    """Return the mean loss over batches, each token seeing those before it alone."""
    parts = [one for one in model.modules() if isinstance(one, Attention)]
    model.eval()
    for part in parts:
        part.hides = True
    with torch.no_grad():
        losses = [float(loss_of(model, batch)) for batch in kept]
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
    if step == KNOCK and setup.knocked == "rotation":
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
