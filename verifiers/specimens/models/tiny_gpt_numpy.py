"""Specimen for forward parity: the tiny GPT of `tiny_gpt.py` computed by a stack that is not PyTorch.

It shows how a foreign stack becomes a `ForwardSubject`: it computes in float32 by NumPy alone and hands over what it
held at each point. Only the weights come from the other file, which needs torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import tiny_gpt
from numpy.typing import NDArray

from weighbridge.views.forward_subject import Captured, Forward, Tokens

Array = NDArray[np.float32]
STORAGE = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass under way: the weights, and what was captured so far."""

    weights: Mapping[str, Array]
    held: dict[str, Captured] = field(default_factory=dict)

    def keep(self, point: str, values: Array) -> Array:
        """Capture a point as float64 `[sequences, tokens, channels]`, and give its values back."""
        self.held[point] = Captured(values=values.astype(np.float64), dtype=str(values.dtype), device="cpu")
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


@dataclass(frozen=True, slots=True)
class NumpyGPT:
    """The tiny GPT by NumPy, in float32."""

    state: Mapping[str, Array]
    points: tuple[str, ...] = tuple(tiny_gpt.TAPS)
    tokens: Tokens = ()
    dtype: str = "float32"
    device: str = "cpu"
    checkpoint: str = ""

    def prepare(self, dtype: str, storage: str) -> Forward:
        """Round the weights to `storage`; compute in float32 only."""
        if dtype != "float32":
            raise NotImplementedError(dtype)
        weights = {name: values.astype(STORAGE[storage]).astype(np.float32) for name, values in self.state.items()}
        return lambda tokens: self._forward(Pass(weights), tokens)

    def weights(self, storage: str) -> Mapping[str, str]:
        """Digest each weight: sha256 over its shape and its bytes in `storage`."""
        return {
            name: hashlib.sha256(
                repr(list(values.shape)).encode() + values.astype(STORAGE[storage]).tobytes()
            ).hexdigest()
            for name, values in self.state.items()
        }

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        """Have none: the rotary angles are computed in every pass."""
        return {}

    def _forward(self, under_way: Pass, tokens: Tokens) -> Mapping[str, Captured]:
        x = under_way.keep("embed", under_way.weights["embed.weight"][np.asarray(tokens)])
        for n in range(tiny_gpt.LAYERS):
            x = under_way.block(n, x)
        under_way.keep(
            "logits", under_way.linear("head", under_way.keep("final_norm.out", under_way.norm("final_norm", x)))
        )
        return under_way.held


def numpy_stack() -> NumpyGPT:
    """Give the NumPy stack with the same weights as every other."""
    module = tiny_gpt.seeded(tiny_gpt.TinyGPT())
    return NumpyGPT({name: tensor.numpy() for name, tensor in module.state_dict().items()})


def numpy_bias_dropped() -> NumpyGPT:
    """Give the NumPy stack with the k bias of the first layer forgotten."""
    state = dict(numpy_stack().state)
    del state["layers.0.attn.k.bias"]
    return NumpyGPT(state)
