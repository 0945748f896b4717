"""Bugs in a model's forward pass, each with the first point at which it can show, and captures of another state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from benchmarks.forward_models import HEADS, HIDDEN, ROTATE, Site, patched, rotated
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- as PyTorch's own pages name it

from weighbridge.forward.stacks import Torch

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

    def forward(self, tokens: Any, visit: Any, wanted: Any = None, casts: Any = frozenset()) -> None:
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
