"""Model factories of the demo: the trusted PyTorch model, and an independent NumPy backend that reads the import.

`weighbridge demo` copies this file beside the checkpoints; each function is a subject of `builtin:forward-parity`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from gguf import GGUFReader
from numpy.typing import NDArray
from safetensors.torch import load_file

from weighbridge.core import dataclass
from weighbridge.demo.train import GPT, SHAPE, standard_library
from weighbridge.forward.stacks import Stack, Tokens, Torch

HERE = Path(__file__).parent
SOURCE = HERE / "model.safetensors"
IMPORT = HERE / "model.gguf"

Array = NDArray[Any]  # float32


def tokens() -> Tokens:
    """Return four sequences of 32 bytes of real text."""
    text = standard_library(4096)
    return [list(text[start : start + 32]) for start in range(0, 4096, 1024)]


def taps() -> dict[str, str]:
    """Return every capture point, in the order of computing, and where it lies in the PyTorch module."""
    points: dict[str, str] = {}
    for layer in range(SHAPE.layers):
        here, block = f"L{layer}", f"blocks.{layer}"
        points |= {
            f"{here}.attn_norm.out": f"{block}.attn_norm",
            **{f"{here}.attn.{part}.post_bias": f"{block}.attn.{part}" for part in "qkv"},
            f"{here}.attn.ctx": f"{block}.attn.o:in",
            f"{here}.attn.o.post_bias": f"{block}.attn.o",
            f"{here}.ffn_norm.out": f"{block}.ffn_norm",
            f"{here}.ffn.up.post_bias": f"{block}.up",
            f"{here}.ffn.act": f"{block}.act",
            f"{here}.ffn.down.post_bias": f"{block}.down",
            f"{here}.resid_out": block,
        }
    return points | {"final_norm.out": "norm", "logits": "head"}


def reference(device: str = "cpu") -> Torch:
    """Return the trusted side: the PyTorch model on the CPU, with the weights of the source checkpoint."""
    model = GPT()
    model.load_state_dict(load_file(SOURCE))
    return Torch(module=model.to(device), taps=taps(), tokens=tokens(), checkpoint=str(SOURCE))


def on_cuda() -> Torch | None:
    """Return the same model on a CUDA device, None where there is none."""
    return reference("cuda") if torch.cuda.is_available() else None


def numpy_backend(forgets: str = "") -> Stack:
    """Return the candidate: NumPy, with the weights of the GGUF import."""
    weights = read_gguf(IMPORT)
    used = {name: np.zeros_like(array) if name == forgets else array for name, array in weights.items()}
    run = NumpyGPT(weights=used).run
    return Stack(run=run, weights=weights, checkpoint=str(IMPORT), name=f"NumPy {np.__version__}")


def numpy_backend_without_a_bias() -> Stack:
    """Return the candidate with a bug: layer 1 forgets the bias of its queries."""
    return numpy_backend(forgets="blocks.1.attn.q.bias")


def read_gguf(path: Path) -> dict[str, Array]:
    """Read every BF16 tensor of a GGUF file as float32, an exact widening."""
    tensors: dict[str, Array] = {}
    for tensor in GGUFReader(path).tensors:
        words = np.ascontiguousarray(tensor.data).view(ml_dtypes.bfloat16)
        shape = [int(size) for size in reversed(tensor.shape)]
        tensors[tensor.name] = np.asarray(words.reshape(shape), dtype=np.float32)
    return tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class NumpyGPT:
    """The GPT in NumPy: another stack, which shares no kernel with PyTorch, reading another file."""

    weights: Mapping[str, Array]

    def run(self, tokens: Tokens) -> Mapping[str, Array]:
        """Return what it computes at each point `[sequences, tokens, channels]`, in the order of computing."""
        ids = np.array([list(row) for row in tokens])
        points: dict[str, Array] = {}
        x = self.weights["token.weight"][ids] + self.weights["position.weight"][: ids.shape[1]]
        for layer in range(SHAPE.layers):
            x = self._block(x, f"L{layer}", f"blocks.{layer}", points)
        points["final_norm.out"] = self._norm(x, "norm")
        points["logits"] = points["final_norm.out"] @ self.weights["head.weight"].T
        return points

    def _block(self, x: Array, here: str, block: str, points: dict[str, Array]) -> Array:
        normed = points[f"{here}.attn_norm.out"] = self._norm(x, f"{block}.attn_norm")
        q, k, v = (self._linear(normed, f"{block}.attn.{part}") for part in "qkv")
        points |= {f"{here}.attn.q.post_bias": q, f"{here}.attn.k.post_bias": k, f"{here}.attn.v.post_bias": v}
        ctx = points[f"{here}.attn.ctx"] = attend(q, k, v)
        out = points[f"{here}.attn.o.post_bias"] = self._linear(ctx, f"{block}.attn.o")
        x = x + out
        normed = points[f"{here}.ffn_norm.out"] = self._norm(x, f"{block}.ffn_norm")
        up = points[f"{here}.ffn.up.post_bias"] = self._linear(normed, f"{block}.up")
        act = points[f"{here}.ffn.act"] = gelu(up)
        down = points[f"{here}.ffn.down.post_bias"] = self._linear(act, f"{block}.down")
        total = points[f"{here}.resid_out"] = x + down
        return total

    def _linear(self, x: Array, name: str) -> Array:
        out: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return out

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(1e-5))
        out: Array = centred / scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return out


def attend(q: Array, k: Array, v: Array) -> Array:
    """Attend causally over `[sequences, tokens, width]`, heads side by side in the width."""
    split = (*q.shape[:2], SHAPE.heads, -1)
    q, k, v = (part.reshape(split).transpose(0, 2, 1, 3) for part in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.float32(math.sqrt(q.shape[-1]))
    scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return np.ascontiguousarray(mixed.transpose(0, 2, 1, 3)).reshape(*mixed.shape[0:1], mixed.shape[2], -1)


def gelu(x: Array) -> Array:
    """Apply GELU in its tanh form, as GPT-2 does."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    out: Array = np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))
    return out
