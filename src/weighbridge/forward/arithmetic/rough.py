"""A rough run: what a correct kernel may round, is rounded. A trusted run is often better than its dtype permits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weighbridge.core import torch
from weighbridge.forward.arithmetic.listening import listening

PARTS = 8  # partial sums of a product, each rounded, and so is what they come to one after another
FUNCTIONS = ("tanh", "erf", "exp", "sigmoid")
FUNCTION = 2  # u of float32, in which they are computed: what a library may leave
ROUNDING = 0.42  # u: what one rounding comes to, root mean square, over numbers of all sizes


@contextmanager
def rough() -> Iterator[None]:
    """Compute inside the block as the roughest correct kernels would."""

    def biased(bias: Any, one: Any, other: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        return beta * bias + alpha * _product(one, other)

    fused = torch.nn.functional.scaled_dot_product_attention
    products = {torch.ops.aten.mm.default: _product, torch.ops.aten.addmm.default: biased}
    functions = {getattr(torch.ops.aten, name).default for name in FUNCTIONS}

    def operation(func: Any, args: Any, kwargs: Any) -> Any:
        made = products.get(func, func)(*args, **kwargs)
        if func in functions and made.dtype is torch.float32:
            return _off(made, made * (FUNCTION * torch.finfo(made.dtype).eps / 2))
        return made

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        return (attention if func is fused else func)(*args, **kwargs)

    with listening(operation, call):
        yield


def attention(  # noqa: PLR0917 -- the arguments of the function that it stands for
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Attend by two products and a softmax, as the one kernel does."""
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    scores = (query @ key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ value


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Multiply widened, and add what partial sums that were rounded would come to, with signs as drawn."""
    wide = torch.float32 if one.itemsize == 2 else torch.float64
    made = one.new_zeros(one.shape[0], other.shape[1], dtype=wide)
    squares = torch.zeros_like(made)
    for rows, columns in zip(one.chunk(PARTS, 1), other.chunk(PARTS, 0), strict=True):
        part = rows.to(wide) @ columns.to(wide)
        made += part
        squares += part.square() + made.square()
    return _off(made, squares.sqrt_().mul_(ROUNDING * torch.finfo(one.dtype).eps / 2)).to(one.dtype)


def _off(made: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    drawn = torch.Generator(made.device).manual_seed(made.numel())
    above = torch.randint(0, 2, made.shape, generator=drawn, device=made.device, dtype=torch.bool)
    return torch.where(above, made + by, made - by)
