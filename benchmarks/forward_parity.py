"""How often `forward-parity` is right: bugs, harmless kernels and captures of another state on small models.

    python benchmarks/forward_parity.py [--seeds 2] [--only bugs harmless states outliers costs]

Qwen2, Llama and GPT-2 of transformers as they are, three layers, four sequences of 48 tokens, weights drawn. Every run
is measured and judged by the gate's own verifier and judge; the canary, the trials and the seal are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as PyTorch's own pages name it
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2

from weighbridge.clauses.local_errors import Limits
from weighbridge.forward.stacks import Torch
from weighbridge.gates.forward_parity import judge
from weighbridge.model import Measurement, Outcome, Verdict
from weighbridge.verifiers.forward_errors import VERIFIER
from weighbridge.views.model_view import ModelView

LAYERS, HIDDEN, HEADS, KV, FFN, VOCAB = 3, 64, 4, 2, 160, 256
DTYPES = ("bfloat16", "float16", "float32")
FAMILIES = ("gpt2", "qwen2", "llama")
LIMITS = Limits(other_weights=("*",))  # so that what differs in a weight is found where it is used
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
                 "attn.query.in attn.key.in"
                 if gpt else "input_layernorm.out self_attn.o_proj.in self_attn.o_proj.out post_attention_layernorm.in "
                 "mlp.act_fn.out mlp.down_proj.in mlp.down_proj.out self_attn.query.in self_attn.key.in")  # fmt: skip
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

# --- Bugs -------------------------------------------------------------------------------------------------------------


def bugs(at: Site) -> Iterator[tuple[str, Callable[[], Any], str]]:  # noqa: C901, PLR0915 -- a list
    """Yield a name, what brings the bug in, and the first point at which it can show."""

    def lab(**other: Any) -> Callable[[], None]:
        return lambda: at.attn.__dict__.update(lab=other)

    def before(place: Any, change: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: patched(
            place, lambda self, x, *more, **named: type(self).forward(self, change(x), *more, **named)
        )

    def after(place: Any, change: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: patched(place, lambda self, *args, **named: change(type(self).forward(self, *args, **named)))

    def swap(one: Any, other: Any) -> None:
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)

    def rounded(weight: Any) -> None:
        step = weight.abs().amax(1, keepdim=True) / 127
        weight.copy_((weight / step).round() * step)

    def last(x: Any, factor: float, dim: int) -> Any:
        x = x.clone()
        x.select(dim, -1).mul_(factor)
        return x

    q, k, v = (at.rows(which) for which in "qkv")
    for name, (_, bias, point) in (("no q bias", q), ("no k bias", k), ("no v bias", v)):
        yield name, bias.zero_, point
    yield "two q rows swapped", lambda: swap(q[0][2], q[0][9]), q[2]
    yield "q and k rows of a head swapped", lambda: swap(q[0][:16], k[0][:16]), q[2]
    yield "o transposed", lambda: at.o.copy_(at.o.T.clone()), at.at["o"]
    yield "int8 down projection", lambda: rounded(at.down), at.at["down"]
    yield (
        "o of another head order",
        before(at.attn.c_proj if at.gpt else at.attn.o_proj, lambda x: x.roll(16, -1)),
        at.at["o"],
    )
    yield "head order of ctx", lab(made=lambda x: x.roll(1, 1)), at.at["ctx"]
    yield "scale + 1 %", lab(scale=1.01), at.at["ctx"]
    yield "no scale", lab(scale=4.0), at.at["ctx"]
    yield "mask off by one", lab(mask=2), at.at["ctx"]
    yield (
        "stale last key",
        lab(given=lambda q, k, v: (q, torch.cat((k[:, :, :-1], k[:, :, -2:-1]), 2), v)),
        at.at["ctx"],
    )
    yield (
        "stale last value",
        lab(given=lambda q, k, v: (q, k, torch.cat((v[:, :, :-1], v[:, :, -2:-1]), 2))),
        at.at["ctx"],
    )
    act = "act" if at.gpt else "act_fn"
    yield "another activation", lambda: setattr(at.mlp, act, nn.SiLU() if at.gpt else nn.GELU()), at.at["act"]
    project = at.mlp.c_proj if at.gpt else at.mlp.down_proj
    yield "product off by one channel", before(project, lambda x: x.roll(1, -1)), at.at["down"]
    yield "last channel of the product", before(project, lambda x: last(x, 0.0, -1)), at.at["down"]
    yield "last token 5 % off", after(project, lambda x: last(x, 1.05, 1)), at.at["down"]
    for name, carried, place in (("residual dropped", 0, "mid"), ("residual behind the norm", 1, "mid")):
        yield f"attention's {name}", _streams(at, lambda x, n, c=carried: c * n, lambda y: y), at.at[place]
    yield "layer's residual dropped", _streams(at, lambda x, n: x, lambda y: 0 * y), at.at["out"]
    yield "layer's residual doubled", _streams(at, lambda x, n: x, lambda y: 2 * y), at.at["out"]
    yield (
        "eps ten times",
        lambda: vars(at.norm).update({k: v * 10 for k, v in vars(at.norm).items() if "eps" in k}),
        at.at["normed"],
    )
    yield "norm weight + 1", lambda: at.norm.weight.add_(1), at.at["normed"]
    yield "norm weight's bfloat16 read as float16", lambda: at.norm.weight.copy_(
        at.norm.weight.bfloat16().view(torch.float16).float()), at.at["normed"]  # fmt: skip
    yield (
        "norm without the mean" if at.gpt else "norm less the mean",
        lambda: patched(at.norm, _other_norm),
        at.at["normed"],
    )
    if not at.gpt:
        kv = lab(tile=True)
        yield "grouped heads tiled", kv, at.at["ctx"]
        turns: dict[str, Callable[..., Any]] = {
            "rope interleaved": lambda x, cos, sin: (
                x * cos[:, None] + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin[:, None]
            ),
            "rope's sine negated": lambda x, cos, sin: _right(x, cos, -sin),
            "rope of half the channels": lambda x, cos, sin: torch.cat((_right(x, cos, sin)[..., :8], x[..., 8:]), -1),
        }
        for name, turn in turns.items():
            yield name, _turned(at.attn, turn, turn), at.at["query"]
        yield (
            "q one position early",
            _turned(at.attn, lambda x, c, s: _right(x, c.roll(1, -2), s.roll(1, -2))),
            at.at["query"],
        )
        gated = at.mlp
        yield (
            "gate and up swapped",
            lambda: swap(gated.gate_proj.weight, gated.up_proj.weight),
            at.prefix + "mlp.gate_proj.out",
        )
    if at.layer == 0:  # of the whole model
        yield "untied head", lambda: nn.init.normal_(at.model.lm_head.weight, std=0.1), "lm_head.out"
        yield (
            "two rows of the head swapped",
            lambda: swap(at.model.lm_head.weight[3], at.model.lm_head.weight[9]),
            "lm_head.out",
        )
        yield (
            "no final norm",
            lambda: at.final.weight.fill_(1.0),
            f"{'transformer.ln_f' if at.gpt else 'model.norm'}.out",
        )
        if at.gpt:
            yield (
                "position off by one",
                lambda: at.inner.wpe.weight.copy_(at.inner.wpe.weight.roll(1, 0)),
                "transformer.wpe.out",
            )
        else:
            yield (
                "theta 1e4",
                lambda: at.inner.rotary_emb.inv_freq.copy_(1e4 ** -(torch.arange(0, 16, 2) / 16)),
                "model.rotary_emb.out",
            )


def _right(x: Any, cos: Any, sin: Any) -> Any:
    return ROTATE(x, x, cos, sin)[0]


def _turned(attn: Any, query: Callable[..., Any], key: Callable[..., Any] | None = None) -> Callable[[], None]:
    def turn(q: Any, k: Any, cos: Any, sin: Any, **_more: Any) -> Any:
        return query(q, cos, sin), (key or _right)(k, cos, sin)

    return lambda: rotated(attn, turn)


def _streams(at: Site, first: Callable[..., Any], second: Callable[..., Any]) -> Callable[[], None]:
    """Compute a layer whose residual streams carry something else."""

    def forward(self: Any, x: Any, *_args: Any, position_embeddings: Any = None, **_named: Any) -> Any:
        more = {} if at.gpt else {"position_embeddings": position_embeddings}
        attn, then = (self.attn, self.ln_2) if at.gpt else (self.self_attn, self.post_attention_layernorm)
        normed = (self.ln_1 if at.gpt else self.input_layernorm)(x)
        y = first(x, normed) + attn(normed, attention_mask=None, **more)[0]
        return second(y) + self.mlp(then(y))

    return lambda: patched(at.block, forward)


def _other_norm(self: Any, x: Any) -> Any:
    wide = x.float()
    if not isinstance(self, nn.LayerNorm):
        return type(self).forward(self, (wide - wide.mean(-1, keepdim=True)).to(x.dtype))
    return (F.rms_norm(wide, (x.shape[-1],), eps=self.eps) * self.weight.float() + self.bias.float()).to(x.dtype)


# --- Captures of another state ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Torch):
    """A right model of which something else is captured: point → what to write, of what is there and was before."""

    instead: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]

    def forward(self, tokens: Any, visit: Any, wanted: Any = None) -> None:
        """Run it forward as it is, and show other values."""
        held: dict[str, Any] = {}

        def see(point: str, rows: Any) -> Any:
            held[point] = rows.clone()
            return visit(point, self.instead[point](rows, held).to(rows.dtype) if point in self.instead else rows)

        Torch.forward(self, tokens, see, wanted)


def states(at: Site) -> Iterator[tuple[str, Mapping[str, Callable[..., Any]], str]]:
    """Yield a name, what is captured instead, and the relation that should be named."""
    pairs = torch.arange(HIDDEN).view(HEADS, 2, -1).transpose(1, 2).flatten()
    order = torch.cat((pairs, torch.arange(HIDDEN, 3 * HIDDEN))) if at.gpt else pairs
    for which in "qkv":
        _, bias, point = at.rows(which)
        if at.gpt:
            bias = at.attn.c_attn.bias
        yield f"{which} before its bias", {point: lambda x, _h, b=bias: x.double() - b.double().to(x.device)}, "bias"
    q, kq = at.rows("q")[2], at.at["query"]
    if not at.gpt:
        yield "q before rope", {kq: lambda _x, h: h[q]}, "neighbour"
        yield "k before rope", {at.at["key"]: lambda _x, h: h[at.rows("k")[2]]}, "neighbour"
        yield "product before the gate", {at.at["product"]: lambda _x, h: h[at.prefix + "mlp.up_proj.out"]}, "neighbour"
    yield "q of another layout", {q: lambda x, _h: x[..., order]}, "permutation"
    yield "q already scaled", {kq: lambda x, _h: x / 4}, "scale"
    yield "residual stream without the layer", {at.at["mid"]: lambda x, h: x - h[at.at["o"]]}, "neighbour residual"
    yield (
        "norm before its weight",
        {at.at["normed"]: lambda x, _h: (x.double() - _bias(at.norm)) / at.norm.weight.double()},
        "channel-scale",
    )


def _bias(part: Any) -> Any:
    return part.bias.double() if getattr(part, "bias", None) is not None else 0.0


# --- Runs -------------------------------------------------------------------------------------------------------------


def view(stack: Any) -> ModelView:
    """Return a model view of a stack that is there already."""
    return ModelView(spec="benchmark", source=SimpleNamespace(make=lambda: stack))


REFERENCES: dict[Any, ModelView] = {}


def judged(family: str, dtype: str, seed: int, kind: str, candidate: Torch) -> Verdict:
    """Return the verdict on a candidate, against the model unchanged."""
    key = (family, dtype, seed, kind)
    if key not in REFERENCES:
        REFERENCES.clear()
        REFERENCES[key] = view(Torch(module=model(family, seed, kind), tokens=TOKENS))
    found = VERIFIER.measure((REFERENCES[key], view(candidate)), {})
    assert isinstance(found, Measurement), found
    return judge({"points": found}, LIMITS)


def table(title: str, columns: tuple[str, ...], counts: Mapping[tuple[str, str], Counter[str]]) -> None:
    """Print counts by row and column."""
    print(f"\n{title}\n{'':44}" + "".join(f"{column:>26}" for column in columns))
    for row in dict.fromkeys(row for row, _ in counts):
        cells = (" ".join(f"{n} {what}" for what, n in sorted(counts[row, column].items())) for column in columns)
        print(f"{row:44}" + "".join(f"{cell:>26}" for cell in cells))
    for column in columns:
        whole = sum((found for (_, of), found in counts.items() if of == column), Counter())
        print(f"  {column}: {dict(whole)}")
    sys.stdout.flush()


@torch.no_grad()
def try_bugs(seeds: int) -> None:
    """Bring each bug into each layer in each dtype."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for seed in range(seeds):
        for family in FAMILIES:
            for layer in range(LAYERS):
                for dtype in DTYPES:
                    for at, _ in enumerate(bugs(Site(model(family, seed), family, layer))):
                        made = kernels(model(family, seed), attends="softmax in float32")
                        name, bring, place = list(bugs(Site(made, family, layer)))[at]
                        bring()
                        verdict = judged(family, dtype, seed, "drawn", Torch(module=made, tokens=TOKENS, dtype=dtype))
                        first = verdict.figures.get("first")
                        what = {Outcome.PASS: "missed", Outcome.FAIL: "found" if first == place else "elsewhere"}.get(
                            verdict.outcome, verdict.code
                        )
                        counts[name, dtype][what] += 1
                        if what not in ("found", "missed"):
                            print(f"  {family} {dtype} {layer} {name}: {what}, {first}, not {place}", flush=True)
                print(f"  {family} layer {layer}: {dict(sum(counts.values(), Counter()))}", flush=True)
        table(f"Bugs up to seed {seed}", DTYPES, counts)


@torch.no_grad()
def try_harmless(seeds: int, kind: str = "drawn") -> None:
    """Run each kernel in each dtype; no alarm is right."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    most: dict[str, tuple[float, str]] = {}
    for seed in range(10, 10 + seeds):
        for family in FAMILIES:
            for dtype in DTYPES:
                for name, change in KERNELS.items():
                    if family == "gpt2" and name == "rope in float32":
                        continue
                    made = kernels(model(family, seed, kind), **change)
                    verdict = judged(family, dtype, seed, kind, Torch(module=made, tokens=TOKENS, dtype=dtype))
                    counts[name, dtype]["fits" if verdict.outcome is Outcome.PASS else verdict.code] += 1
                    share = float(str(verdict.figures.get("budget_used") or math.inf))
                    most[dtype] = max(
                        most.get(dtype, (0.0, "")), (share, f"{family}, {name}, {verdict.figures.get('worst')}")
                    )
                    if verdict.outcome is not Outcome.PASS:
                        print(f"  {family} {dtype} {seed} {name}: {verdict.code} {verdict.offences[:1]}", flush=True)
        table(f"Harmless kernels, {kind} weights, up to seed {seed}", DTYPES, counts)
    n = sum(found.total() for found in counts.values())
    wrong = n - sum(found["fits"] for found in counts.values())
    print(f"  {wrong} of {n} do not pass" + ("" if wrong else f"; at most {3 / n:.2%} with 95 % confidence"))
    for dtype, (share, where) in most.items():
        print(f"  {dtype}: at most {share:.0%} of a limit used: {where}", flush=True)


@torch.no_grad()
def try_states(seeds: int) -> None:
    """Capture another state of a right model."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for seed in range(seeds):
        for family in FAMILIES:
            for dtype in DTYPES:
                for layer in range(LAYERS):
                    made = model(family, seed)
                    for name, instead, relation in states(Site(made, family, layer)):
                        stack = Taken(module=made, tokens=TOKENS, dtype=dtype, instead=instead)
                        verdict = judged(family, dtype, seed, "drawn", stack)
                        told = str(verdict.offences[0].figures.get("relation")) if verdict.offences else ""
                        named = any(f"a {one} " in told for one in relation.split())
                        counts[name, dtype][verdict.code + (" named" if named else "")] += 1
                        if verdict.code != "capture-mismatch" or not named:
                            print(f"  {family} {dtype} {layer} {name}: {verdict.code}{told}", flush=True)
            table(f"Captures of another state up to {family}, seed {seed}", DTYPES, counts)


# --- Costs ------------------------------------------------------------------------------------------------------------


def try_costs(_seeds: int) -> None:
    """Time a GPT-2 of 124 M parameters; the peak is of the whole process, so one dtype a run is measured in a child."""
    import subprocess

    for dtype in ("bfloat16", "float32"):
        subprocess.run([sys.executable, __file__, "--costs-of", dtype], check=True)


def costs(dtype: str) -> None:
    """Print what captures and a whole measurement take, in plain forwards."""
    torch.manual_seed(0)
    made = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    tokens = [[(37 * n + 11 * n * n + 101 * row) % 50000 + 2 for n in range(128)] for row in range(4)]
    weights = 4 * sum(weight.numel() for weight in made.parameters())
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    stack = Torch(module=made, tokens=tokens).prepared(dtype)
    ids = torch.tensor(tokens)

    def timed(run: Callable[[], object], rounds: int = 3) -> float:
        def once() -> float:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start

        return min(once() for _ in range(rounds))

    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        plain = timed(lambda: stack.module(input_ids=ids, use_cache=False))
        kept: list[Any] = []
        hooks = timed(lambda: stack.forward(tokens, lambda _point, rows: kept.append(rows.shape)))
        writing = timed(lambda: stack.capture(tokens, Path(folder) / "a.trace"))
        views = (view(Torch(module=made, tokens=tokens)), view(Torch(module=made, tokens=tokens, dtype=dtype)))
        found: list[Any] = []
        whole = timed(lambda: found.append(VERIFIER.measure(views, {})), 1)
        canary: Any = VERIFIER.canary(views, {}, found[0])
        checked = timed(lambda: canary.seen(VERIFIER.measure(canary.views, {})), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{dtype}: forward {plain:.2f} s; hooks × {hooks / plain:.2f}, with writing × {writing / plain:.2f}, "
          f"measure × {whole / plain:.1f}, with its canary × {(whole + checked) / plain:.1f}; "
          f"peak {peak / weights:.1f} × the float32 weights ({idle / weights:.1f} idle)", flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=("bugs", "harmless", "outliers", "states", "costs"))
    parser.add_argument("--costs-of", choices=DTYPES)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if asked.costs_of:
        costs(asked.costs_of)
    else:
        torch.set_num_threads(1)
        runs: dict[str, Any] = {"bugs": try_bugs, "harmless": try_harmless, "states": try_states, "costs": try_costs,
                "outliers": lambda seeds: try_harmless(seeds, "outlier")}  # fmt: skip
        for name in asked.only:
            runs[name](asked.seeds)
