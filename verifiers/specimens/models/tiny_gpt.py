"""Specimens for forward parity: one tiny GPT from a fixed seed, computed by two different stacks, good and damaged.

Three layers, 64 wide, 4 heads, rotary positions, biased q, k and v, RMS norms, SwiGLU. `reference` computes it
plainly: three projections, scores and softmax spelled out. `fused` projects q, k and v at once, attends by SDPA, and
normalises in another order. `bias_dropped` and those after it have one damage each. Needs torch.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from weighbridge.forward.stacks import Torch

VOCAB, WIDTH, HEADS, LAYERS, SEQUENCES, LENGTH = 96, 64, 4, 3, 4, 24
HEAD = WIDTH // HEADS
HIDDEN = 176


class Norm(nn.Module):
    """Divide by the root mean square over channels `[sequences, tokens, channels]`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise in float32 where the input is coarser, as is the custom."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


class FusedNorm(Norm):
    """The same by the library's own kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise and scale in one operation."""
        return functional.rms_norm(x, (WIDTH,), self.weight, eps=1e-6)


class Rotary(nn.Module):
    """Turn pairs of channels by an angle that grows with the position."""

    def __init__(self) -> None:
        super().__init__()
        steps = torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD
        self.register_buffer("frequencies", 10_000.0**-steps, persistent=False)

    def angles(self, x: torch.Tensor) -> torch.Tensor:
        """Return the angles `[tokens, head / 2]`, at least in float32."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        positions = torch.arange(x.shape[1], device=x.device).to(dtype)
        return positions[:, None] * self.frequencies.to(dtype)[None, :]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rotate `[sequences, tokens, heads, head]`, the two halves of a head forming the pairs."""
        angles = self.angles(x)[None, :, None, :]
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    """Causal attention, spelled out; the identities make values inside visible to hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rotary = Rotary()
        for point in ("q_post_bias", "k_post_bias", "v_post_bias", "q_rope", "k_rope", "ctx"):
            setattr(self, point, nn.Identity())

    def project(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project to q, k and v, each `[sequences, tokens, channels]`, biases added."""
        return self.q(x), self.k(x), self.v(x)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend causally over `[sequences, heads, tokens, head]`."""
        scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD)
        ahead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(ahead, -math.inf).softmax(-1) @ v

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend and project back."""
        q, k, v = self.project(x)
        q, k, v = self.q_post_bias(q), self.k_post_bias(k), self.v_post_bias(v)
        q, k, v = (part.unflatten(-1, (HEADS, HEAD)) for part in (q, k, v))
        q, k = self.q_rope(self.rotary(q)), self.k_rope(self.rotary(k))
        mixed = self.attend(*(part.transpose(1, 2) for part in (q, k, v)))
        return self.o(self.ctx(mixed.transpose(1, 2).flatten(2)))


class FusedAttention(Attention):
    """The same with one projection and the library's attention kernel."""

    def project(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Project to q, k and v by one matrix."""
        parts = (self.q, self.k, self.v)
        weight, bias = torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
        q, k, v = functional.linear(x, weight, bias).chunk(3, dim=-1)
        return q, k, v

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend causally by SDPA."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """Attention and SwiGLU, each normalised before and added to the residual stream."""

    def __init__(self, attention: type[Attention], norm: type[Norm]) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = norm(), norm()
        self.attn = attention()
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.resid_attn = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run one layer on `[sequences, tokens, channels]`."""
        x = self.resid_attn(x + self.attn(self.attn_norm(x)))
        wide = self.ffn_norm(x)
        return x + self.down(functional.silu(self.gate(wide)) * self.up(wide))


class TinyGPT(nn.Module):
    """The whole: tokens `[sequences, tokens]` to logits `[sequences, tokens, vocabulary]`."""

    def __init__(self, attention: type[Attention] = Attention, norm: type[Norm] = Norm) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Block(attention, norm) for _ in range(LAYERS))
        self.final_norm = norm()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Compute the logits."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final_norm(x))


LAYER_TAPS = {
    "attn_norm.out": ".attn_norm",
    "attn.q.post_bias": ".attn.q_post_bias",
    "attn.k.post_bias": ".attn.k_post_bias",
    "attn.v.post_bias": ".attn.v_post_bias",
    "attn.q.rope": ".attn.q_rope",
    "attn.k.rope": ".attn.k_rope",
    "attn.ctx": ".attn.ctx",
    "attn.o.matmul": ".attn.o",
    "resid_attn.out": ".resid_attn",
    "ffn_norm.out": ".ffn_norm",
    "ffn.swiglu": ".down:in",
    "ffn.down": ".down",
    "resid_out.out": "",
}
TAPS = {
    "embed": "embed",
    **{f"L{n}.{point}": f"layers.{n}{path}" for n in range(LAYERS) for point, path in LAYER_TAPS.items()},
    "final_norm.out": "final_norm",
    "logits": "head",
}


def seeded(module: TinyGPT) -> TinyGPT:
    """Fill every parameter from one seed, whatever the stack; biases large enough that dropping one is no rounding."""
    chance = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=chance)
            if "norm" in name:
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.copy_(noise * (0.5 if name.endswith("bias") else parameter.shape[-1] ** -0.5))
    return module


def tokens() -> list[list[int]]:
    """Return four different sequences of 24 tokens."""
    return [[(7 + 31 * row + 5 * n + n * n * (row + 1)) % VOCAB for n in range(LENGTH)] for row in range(SEQUENCES)]


def forward(module: TinyGPT, dtype: str = "float32") -> Torch:
    """Wrap a stack with its capture points and inputs."""
    return Torch(module=module, taps=TAPS, tokens=tokens(), dtype=dtype)


def reference() -> Torch:
    """Return the plain stack."""
    return forward(seeded(TinyGPT()))


def fused() -> Torch:
    """Return the fused stack in float32."""
    return forward(seeded(TinyGPT(FusedAttention, FusedNorm)))


def fused_bfloat16() -> Torch:
    """Return the fused stack in bfloat16."""
    return forward(seeded(TinyGPT(FusedAttention, FusedNorm)), "bfloat16")


def bias_dropped() -> Torch:
    """Return the fused stack with the q bias of the second layer lost."""
    module = seeded(TinyGPT(FusedAttention, FusedNorm))
    nn.init.zeros_(module.layers[1].attn.q.bias)
    return forward(module)


class Float32Norm(Norm):
    """A norm that goes through float32 whatever it is given, as many do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise in float32."""
        return super().forward(x.float()).to(x.dtype)


def float32_norms() -> Torch:
    """Return a reference whose norms go through float32; widened, they do not."""
    return forward(seeded(TinyGPT(Attention, Float32Norm)))


class KeptNorm(Norm):
    """A norm that writes what it made into memory of its own, which stays in float32 whatever is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(SEQUENCES, LENGTH, WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, and return what was kept."""
        kept = self.kept[: x.shape[0]]
        kept.copy_(super().forward(x))
        return kept.clone()


def kept_in_float32() -> Torch:
    """Return a reference whose norms write into float32 memory, which cannot be widened."""
    return forward(seeded(TinyGPT(Attention, KeptNorm)))


def rounded_frequencies() -> Torch:
    """Return a reference that was once cast to bfloat16 and back: its rotary frequencies stay rounded."""
    return forward(seeded(TinyGPT().to(torch.bfloat16).to(torch.float32)))


def one_token() -> Torch:
    """Return the plain stack with inputs of one token."""
    return Torch(module=seeded(TinyGPT()), taps=TAPS, tokens=[[1], [2]])


def stateless_point() -> Torch:
    """Return the plain stack with a point named `q`, which may be before or after the bias."""
    return Torch(module=seeded(TinyGPT()), taps={"q": "layers.0.attn.q"}, tokens=tokens())
