"""The small models on which forward parity is measured, and other kernels that compute the same.

Qwen2, Llama and GPT-2 of transformers as they are, three layers, four sequences of 48 tokens, weights drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as PyTorch's own pages name it
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2

LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB = 3, 64, 4, 2, 160, 256
FAMILIES = ("gpt2", "qwen2", "llama")
TOKENS = [[(37 * n + 11 * n * n + 101 * row) % (VOCAB - 2) + 2 for n in range(48)] for row in range(4)]

# --- Models -----------------------------------------------------------------------------------------------------------


def model(family: str, seed: int = 0, kind: str = "drawn") -> Any:
    """Return a small model; `outlier` has the large biases and channels of some trained ones."""
    shape = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "vocab_size": VOCAB}
    more = {"num_key_value_heads": KV, "intermediate_size": FFN,
            "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
            "tie_word_embeddings": False, "rms_norm_eps": 1e-6}  # fmt: skip
    configs = {
        "qwen2": lambda: transformers.Qwen2Config(**shape, **more),
        "llama": lambda: transformers.LlamaConfig(**shape, **more, attention_bias=True),
        "gpt2": lambda: transformers.GPT2Config(n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCAB,
                                                n_positions=64, tie_word_embeddings=False),
    }  # fmt: skip
    torch.manual_seed(seed)
    made = transformers.AutoModelForCausalLM.from_config(configs[family]()).eval()
    for name, weight in made.named_parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=1.0 if "embed" in name or "wte" in name else 1 / math.sqrt(HIDDEN))
        elif name.endswith("bias"):
            nn.init.normal_(weight, std=0.3)
        else:
            nn.init.normal_(weight, mean=1.0, std=0.1)
    for layer in range(LAYERS) if kind == "outlier" else ():
        at = Site(made, family, layer)
        with torch.no_grad():
            at.rows("k")[1].normal_(std=29.0 if layer == 0 else 6.0)
            at.rows("q")[1].normal_(std=3.0)
            at.down[5].mul_(60.0)
            at.final.weight.mul_(7.5 if layer == 0 else 1.0)
    return made


class Site:
    """Where the parts of one layer are, whatever the family calls them."""

    def __init__(self, made: Any, family: str, layer: int) -> None:
        gpt = self.gpt = family == "gpt2"
        self.model, self.inner, self.layer = made, made.transformer if gpt else made.model, layer
        self.block = (self.inner.h if gpt else self.inner.layers)[layer]
        self.prefix = f"transformer.h.{layer}." if gpt else f"model.layers.{layer}."
        self.attn = self.block.attn if gpt else self.block.self_attn
        self.mlp, self.norm = self.block.mlp, self.block.ln_1 if gpt else self.block.input_layernorm
        self.final = self.inner.ln_f if gpt else self.inner.norm
        self.o = self.attn.c_proj.weight.T if gpt else self.attn.o_proj.weight
        self.down = self.mlp.c_proj.weight.T if gpt else self.mlp.down_proj.weight
        names = ("ln_1.out attn.c_proj.in attn.c_proj.out ln_2.in mlp.act.out mlp.c_proj.in mlp.c_proj.out "
                 "attn.attention.query.in attn.attention.key.in"
                 if gpt else "input_layernorm.out self_attn.o_proj.in self_attn.o_proj.out post_attention_layernorm.in "
                 "mlp.act_fn.out mlp.down_proj.in mlp.down_proj.out self_attn.attention.query.in "
                 "self_attn.attention.key.in")  # fmt: skip
        keys = ("normed", "ctx", "o", "mid", "act", "product", "down", "query", "key")
        self.at = dict(zip(keys, (self.prefix + name for name in names.split()), strict=True))
        if gpt:
            self.at["product"] = self.at["act"]
        self.at["out"] = self.prefix + "out"

    def rows(self, which: str) -> tuple[torch.Tensor, torch.Tensor, str]:
        """Return the weight `[out, in]` and bias of a projection, and the point of its output."""
        if not self.gpt:
            part = getattr(self.attn, f"{which}_proj")
            return part.weight, part.bias, f"{self.prefix}self_attn.{which}_proj.out"
        own = slice("qkv".index(which) * HIDDEN, ("qkv".index(which) + 1) * HIDDEN)
        return self.attn.c_attn.weight.T[own], self.attn.c_attn.bias[own], self.prefix + "attn.c_attn.out"


# --- Kernels: other ways to compute the same -------------------------------------------------------------------------


def attention(
    module: Any, query: Any, key: Any, value: Any, _mask: Any = None, scaling: float = 1.0, **_more: Any
) -> Any:
    """Attend with what a module's `lab` says is other: a bug, or a kernel."""
    lab = getattr(module, "lab", {})
    groups = query.shape[1] // key.shape[1]
    query, key, value = lab.get("given", lambda *same: same)(query, key, value)
    spread: Any = (lambda x: x.repeat(1, groups, 1, 1)) if "tile" in lab else (lambda x: x.repeat_interleave(groups, 1))
    key, value, length = spread(key), spread(value), query.shape[2]
    blocked = torch.ones(length, length, dtype=torch.bool).triu(lab.get("mask", 1))
    kernel = lab.get("kernel", "softmax in float32")
    scores = query @ key.transpose(2, 3) * (scaling * lab.get("scale", 1.0))
    if kernel == "flash blocks":
        made = _flash(query.float(), key, value, scaling, blocked)
    elif kernel == "reversed keys":
        weights = scores.float().masked_fill(blocked, -torch.inf).flip(-1).softmax(-1).to(query.dtype)
        made = weights @ value.flip(2)
    else:
        wide = scores.float() if kernel == "softmax in float32" else scores
        made = wide.masked_fill(blocked, -torch.inf).softmax(-1).to(query.dtype) @ value
    return lab.get("made", lambda same: same)(made).transpose(1, 2).contiguous(), None


def _flash(query: Any, key: Any, value: Any, scaling: float, blocked: Any) -> Any:
    """Online softmax over blocks of keys, probabilities rounded to the dtype before they meet the values."""
    most, total, made = torch.full((*query.shape[:3], 1), -1e30), torch.tensor(0.0), torch.tensor(0.0)
    for at in range(0, key.shape[2], 16):
        part = slice(at, at + 16)
        scores = (query @ key[:, :, part].float().transpose(2, 3) * scaling).masked_fill(blocked[:, part], -torch.inf)
        above = torch.maximum(most, scores.amax(-1, keepdim=True))
        chance, fade = (scores - above).exp(), (most - above).exp()
        total, most = total * fade + chance.sum(-1, keepdim=True), above
        made = made * fade + chance.to(value.dtype).float() @ value[:, :, part].float()
    return (made / total).to(value.dtype)


transformers.AttentionInterface.register("lab", attention)


def patched(module: Any, forward: Callable[..., Any]) -> None:
    """Put another forward in the place of a module's own, which it is given first."""
    module.forward = MethodType(forward, module)


def split_k(self: Any, given: Any, parts: int = 4) -> Any:
    """Sum partial products that were each rounded to the dtype."""
    weight = self.weight if isinstance(self, nn.Linear) else self.weight.T
    made = sum(F.linear(one, two) for one, two in zip(given.chunk(parts, -1), weight.chunk(parts, -1), strict=True))
    return made if self.bias is None else made + self.bias


def reversed_k(self: Any, given: Any) -> Any:
    """Sum the other way round."""
    weight = self.weight if isinstance(self, nn.Linear) else self.weight.T
    return F.linear(given.flip(-1), weight.flip(-1), self.bias)


def wide_linear(self: Any, given: Any) -> Any:
    """Accumulate in float32, and round once."""
    weight = self.weight if isinstance(self, nn.Linear) else self.weight.T
    bias = None if self.bias is None else self.bias.float()
    return F.linear(given.float(), weight.float(), bias).to(given.dtype)


def norm(wide: bool, levels: bool) -> Callable[..., Any]:
    """Return a norm in float32 with one rounding at the end, or wholly in the dtype; its sums in two levels."""

    def forward(self: Any, given: Any) -> Any:
        x = given.float() if wide else given
        mean: Any = (
            (lambda v: v.unflatten(-1, (8, -1)).mean(-1).mean(-1, keepdim=True))
            if levels
            else (lambda v: v.mean(-1, keepdim=True))
        )
        if isinstance(self, nn.LayerNorm):
            x = x - mean(x)
        least = float(getattr(self, "eps", getattr(self, "variance_epsilon", 0.0)))
        made = x * (mean(x * x) + least).rsqrt() * self.weight.to(x)
        return (made if getattr(self, "bias", None) is None else made + self.bias.to(x)).to(given.dtype)

    return forward


ROTATE = modeling_qwen2.apply_rotary_pos_emb


def rotated(attn: Any, turn: Callable[..., Any]) -> None:
    """Rotate queries and keys of one attention in another way."""
    library: Any = modeling_qwen2 if isinstance(attn, modeling_qwen2.Qwen2Attention) else modeling_llama
    before = library.apply_rotary_pos_emb

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        library.apply_rotary_pos_emb = turn
        try:
            return type(self).forward(self, *args, **named)
        finally:
            library.apply_rotary_pos_emb = before

    patched(attn, forward)


def rope32(query: Any, key: Any, cos: Any, sin: Any, **_more: Any) -> Any:
    """Rotate in float32, and round once."""
    return tuple(one.to(query.dtype) for one in ROTATE(query.float(), key.float(), cos.float(), sin.float()))


def kernels(made: Any, *, attends: str = "", linear: Any = None, norms: Any = None, rope: bool = False) -> Any:
    """Compute a model by other kernels."""
    for part in made.modules():
        if attends and hasattr(part, "is_causal"):
            part.lab = {"kernel": attends}
        if linear and isinstance(part, (nn.Linear, transformers.pytorch_utils.Conv1D)):
            patched(part, linear)
        if norms and "Norm" in type(part).__name__:
            patched(part, norms)
        if rope and hasattr(part, "q_proj"):
            rotated(part, rope32)
    if attends:
        made.config._attn_implementation = attends if attends == "eager" else "lab"  # noqa: SLF001 -- no other way
    return made


KERNELS: Mapping[str, Mapping[str, Any]] = {
    "itself": {}, "eager": {"attends": "eager"}, "softmax in float32": {"attends": "softmax in float32"},
    "flash blocks": {"attends": "flash blocks"}, "reversed keys": {"attends": "reversed keys"},
    "split-K, partials in the dtype": {"linear": split_k}, "reversed K": {"linear": reversed_k},
    "float32 accumulation": {"linear": wide_linear}, "fused norm": {"norms": norm(True, False)},
    "two-level norm": {"norms": norm(True, True)}, "norm in the dtype": {"norms": norm(False, False)},
    "rope in float32": {"rope": True},
    "all": {"attends": "flash blocks", "linear": split_k, "norms": norm(True, True), "rope": True},
}  # fmt: skip
