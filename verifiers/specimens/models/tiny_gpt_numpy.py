"""Specimen for forward parity: the tiny GPT of `tiny_gpt.py` computed by a stack that is not PyTorch.

It shows how a foreign stack becomes a candidate: it computes in float32 by NumPy alone and returns what it held at each
point. Only the weights come from the other file, which needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import tiny_gpt
from numpy.typing import NDArray

from weighbridge.forward.stacks import Stack, Tokens

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass under way: the weights, and what was captured so far."""

    weights: Mapping[str, Array]
    held: dict[str, Array] = field(default_factory=dict)

    def run(self, tokens: Tokens) -> Mapping[str, Array]:
        """Compute the whole, and return what was captured."""
        x = self.keep("embed", self.weights["embed.weight"][np.asarray(tokens)])
        for n in range(tiny_gpt.LAYERS):
            x = self.block(n, x)
        self.keep("logits", self.linear("head", self.keep("final_norm.out", self.norm("final_norm", x))))
        return self.held

    def keep(self, point: str, values: Array) -> Array:
        """Capture a point `[sequences, tokens, channels]`, and return its values."""
        self.held[point] = values
        return values

    def linear(self, name: str, x: Array) -> Array:
        """Multiply by a weight and add its bias, where it has one."""
        product = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return product if bias is None else product + bias

    def norm(self, name: str, x: Array) -> Array:
        """Divide by the root mean square over channels."""
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-6))
        return x / scale * self.weights[f"{name}.weight"]

    def block(self, n: int, x: Array) -> Array:
        """Run one layer."""
        at, part = f"L{n}", f"layers.{n}"
        mixed = self.attention(n, self.keep(f"{at}.attn_norm.out", self.norm(f"{part}.attn_norm", x)))
        x = self.keep(f"{at}.resid_attn.out", x + mixed)
        wide = self.keep(f"{at}.ffn_norm.out", self.norm(f"{part}.ffn_norm", x))
        gate, up = self.linear(f"{part}.gate", wide), self.linear(f"{part}.up", wide)
        inner = self.keep(f"{at}.ffn.swiglu", gate / (1 + np.exp(-gate)) * up)
        return self.keep(f"{at}.resid_out.out", x + self.keep(f"{at}.ffn.down", self.linear(f"{part}.down", inner)))

    def attention(self, n: int, x: Array) -> Array:
        """Attend causally over `[sequences, tokens, channels]`."""
        at, part = f"L{n}.attn", f"layers.{n}.attn"
        q, k, v = (self.keep(f"{at}.{name}.post_bias", self.linear(f"{part}.{name}", x)) for name in "qkv")
        q, k = (self.keep(f"{at}.{name}.rope", rotated(y)) for name, y in (("q", q), ("k", k)))
        heads = [y.reshape(*y.shape[:2], tiny_gpt.HEADS, tiny_gpt.HEAD).swapaxes(1, 2) for y in (q, k, v)]
        scores = heads[0] @ heads[1].swapaxes(2, 3) / np.float32(np.sqrt(tiny_gpt.HEAD))
        scores[..., np.triu(np.ones(scores.shape[-2:], dtype=bool), 1)] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ heads[2]
        ctx = self.keep(f"{at}.ctx", mixed.swapaxes(1, 2).reshape(x.shape))
        return self.keep(f"{at}.o.matmul", self.linear(f"{part}.o", ctx))


def rotated(x: Array) -> Array:
    """Rotate `[sequences, tokens, channels]`, head by head, the two halves of a head forming the pairs."""
    steps = np.arange(0, tiny_gpt.HEAD, 2) / tiny_gpt.HEAD
    angles = (np.arange(x.shape[1])[:, None] * 10_000.0**-steps).astype(np.float32)[None, :, None, :]
    first, second = np.split(x.reshape(*x.shape[:2], tiny_gpt.HEADS, tiny_gpt.HEAD), 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).reshape(x.shape)


def stack(state: Mapping[str, Array]) -> Stack:
    """Return the NumPy stack with these weights."""
    return Stack(run=lambda tokens: Pass(state).run(tokens), weights=state, name="NumPy")


def state() -> dict[str, Array]:
    """Return the weights of every other stack."""
    module = tiny_gpt.seeded(tiny_gpt.TinyGPT())
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def numpy_stack() -> Stack:
    """Return the NumPy stack with the same weights as every other."""
    return stack(state())


def numpy_bias_dropped() -> Stack:
    """Return the NumPy stack with the k bias of the first layer forgotten."""
    return stack({name: array for name, array in state().items() if name != "layers.0.attn.k.bias"})
