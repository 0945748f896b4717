"""A language model in miniature, built as Qwen3 is: RMS norms, rotated and normed queries and keys, a gated MLP."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from weighbridge.drills.setups import TRANSFORMERS, Setup

VOCAB, WIDTH, HEADS, INNER, LENGTH = 256, 64, 4, 192, 64


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
