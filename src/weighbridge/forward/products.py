"""What a stack rounds the factors of its products to, apart from what it holds: one dispatch mode for a trusted run.

And a rough run: what a correct kernel may round, is rounded. A trusted run is often better than its dtype permits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeAlias

from weighbridge.core import SubjectError, torch
from weighbridge.core.data import table
from weighbridge.forward.trace_file import PRODUCTS
from weighbridge.forward.widened import listening, passes_of

Products: TypeAlias = Mapping[str, str]  # glob of module paths → rounding; the longest glob that fits counts
AUTOCAST = "autocast_"  # of PyTorch: what it makes is stored so, too
PLAIN = "float32"
FEW_GLOBS = 4  # that are named one by one
PARTS = 8  # partial sums of a product, each rounded, and so is what they come to one after another
FUNCTIONS = ("tanh", "erf", "exp", "sigmoid")
FUNCTION = 2  # u of float32, in which they are computed: what a library may leave
ONCE = 0.42  # u: what one rounding comes to, root mean square, over numbers of all sizes


def _cast(values: torch.Tensor, *, to: str) -> torch.Tensor:
    return values.to(getattr(torch, to)).to(values.dtype)


def _blocks(values: torch.Tensor, *, of: int, scale: str) -> torch.Tensor:
    """Round to 8 bits with one scale for each block of so many channels; 0 is all of them, as `quantize_row_q8_0`."""
    width = values.shape[-1]
    size = of or width
    padded = torch.nn.functional.pad(values.float(), (0, -width % size))
    padded = padded.reshape(*values.shape[:-1], -1, size)
    largest = padded.abs().amax(-1, keepdim=True)
    codes = (padded * (127 / largest).nan_to_num(0, 0, 0)).round()
    made = codes * (largest / 127).to(getattr(torch, scale)).float()
    return made.flatten(-2)[..., :width].to(values.dtype)


def _fp8(values: torch.Tensor, *, by_token: bool) -> torch.Tensor:
    """Round to e4m3, whose largest is 448, with one scale for each token or for all."""
    largest = (values.abs().amax(-1, keepdim=True) if by_token else values.abs().amax()).clamp(min=1e-12)
    return ((values * (448 / largest)).to(torch.float8_e4m3fn).to(values.dtype)) * (largest / 448)


ROUNDINGS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bfloat16": partial(_cast, to="bfloat16"),
    "float16": partial(_cast, to="float16"),
    "q8_0": partial(_blocks, of=32, scale="float16"),
    "q8_1": partial(_blocks, of=32, scale="float16"),
    "q8_k": partial(_blocks, of=256, scale="float32"),
    "int8_per_token": partial(_blocks, of=0, scale="float32"),
    "fp8_e4m3": partial(_fp8, by_token=False),
    "fp8_e4m3_per_token": partial(_fp8, by_token=True),
}
BOTH = ("bfloat16", "float16")  # a weight is rounded, too; in others it is what it stands for already
FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_grouped_mm": (0, 1)}


def said_of(products: str | Mapping[str, str]) -> Products:
    """Return what is said of products by glob; refuse with `products` what is no rounding."""
    said = ({"*": products} if products else {}) if isinstance(products, str) else dict(products)
    if odd := [one for one in said.values() if one not in PRODUCTS]:
        raise SubjectError("products", f"{odd[0]!r} is no rounding of factors", remedy=f"use {', '.join(PRODUCTS)}")
    if any(one.startswith(AUTOCAST) for one in said.values()) and list(said) != ["*"]:
        what = "autocast computes the whole pass, and no part of it alone"
        raise SubjectError("products", what, remedy="say it for `*` and nothing else, or name a rounding for a part")
    return said


def in_words(products: Products) -> str:
    """Return in a few words what products take: by glob, or by the number of modules where a file says it of each."""
    if len(products) > FEW_GLOBS:
        counts = Counter(one for one in products.values() if one != "float32")
        return ", ".join(f"{one} in {many} modules" for one, many in sorted(counts.items())) or "float32"
    return ", ".join(one if glob == "*" else f"{glob}: {one}" for glob, one in sorted(products.items()))


def by_stored_type(stored: str) -> str:
    """Return what ggml rounds the other factor to, by the type that a weight is stored in; empty where it says none."""
    return str(table("forward/products")["ggml"].get(stored, ""))


def rounding_of(path: str, products: Products) -> str:
    """Return what the products of a module are rounded to: what the longest glob says that fits its path."""
    fitting = [glob for glob in products if fnmatchcase(path, glob)]
    return products[max(fitting, key=len)] if fitting else PLAIN


@contextmanager
def rounded(module: torch.nn.Module, products: Products) -> Iterator[None]:
    """Round the factors of every product inside the block as is said of the module that makes it."""
    whole = products.get("*", "")
    if whole.startswith(AUTOCAST):
        device = next((one.device.type for one in module.parameters()), "cpu")
        with torch.autocast(device, getattr(torch, whole.removeprefix(AUTOCAST)), cache_enabled=False):
            yield
        return
    if set(products.values()) <= {PLAIN}:
        yield
        return
    weights = {one.untyped_storage().data_ptr() for one in (*module.parameters(), *module.buffers())}
    factors = {getattr(getattr(torch.ops.aten, name), "default"): at for name, at in FACTORS.items()}  # noqa: B009

    def operation(func: Any, args: Any, kwargs: Any) -> Any:
        said = rounding_of(inside[-1], products) if func in factors else PLAIN
        if said != PLAIN:
            args = list(args)
            of_weights = [args[at].untyped_storage().data_ptr() in weights for at in factors[func]]
            for side, (at, is_weight) in enumerate(zip(factors[func], of_weights, strict=True)):
                if said in BOTH or not is_weight:  # along what is summed over: of the second, the one before the last
                    made = ROUNDINGS[said](args[at].mT if side else args[at])
                    args[at] = made.mT if side else made
        return func(*args, **kwargs)

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        fused = func is torch.nn.functional.scaled_dot_product_attention
        return (attention if fused and rounding_of(inside[-1], products) != PLAIN else func)(*args, **kwargs)

    with passes_of(module) as inside, listening(operation, call):
        yield


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
    return _off(made, squares.sqrt_().mul_(ONCE * torch.finfo(one.dtype).eps / 2)).to(one.dtype)


def _off(made: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    drawn = torch.Generator(made.device).manual_seed(made.numel())
    above = torch.randint(0, 2, made.shape, generator=drawn, device=made.device, dtype=torch.bool)
    return torch.where(above, made + by, made - by)
