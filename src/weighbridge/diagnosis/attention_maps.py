"""Where attention looks: the weights of a few rows of each layer, whatever kernel computes them.

A kernel returns weights times values: of values that are the rows of a unit matrix it returns the weights. Of queries
of 0 it weighs all keys alike that a row may look at, which tells them apart from those that it does not want to.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from weighbridge.forward import points
from weighbridge.forward.widened import listening, passes_of

ROWS, GRID = 32, 32
TELLING = 4  # keys, of fewer a row says nothing of a head
ALIKE = 0.9  # cosine
NOTHING = (
    "nothing calls scaled_dot_product_attention (nn.MultiheadAttention does where its weights are not asked for) "
    "or Transformers' AttentionInterface"
)


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMap:
    """One layer. By head: entropy / ln(keys), largest weight, and what falls on the first key and the one before.

    `collapsed` is the share of rows of four keys and more below ln 2; `weights` are `[rows, heads, keys]`, `keys` how
    many each row may look at, `grid` the scaled products of queries and keys of the first sequence, `[heads, 32, 32]`.
    """

    name: str
    entropy: tuple[float, ...]
    largest: tuple[float, ...]
    first: tuple[float, ...]
    previous: tuple[float, ...]
    collapsed: tuple[float, ...]
    largest_logit: float
    weights: torch.Tensor
    keys: torch.Tensor
    grid: torch.Tensor


@contextlib.contextmanager
def attending(model: torch.nn.Module) -> Iterator[tuple[list[AttentionMap], list[str]]]:
    """Fill a list with the attention of forward passes inside the block, and one with why a layer is not in it."""
    found: list[AttentionMap] = []
    lacking: list[str] = []

    busy = False  # with a call that is shown already

    def attend(path: str, function: Any, part: Any, *given: Any, **named: Any) -> Any:
        nonlocal busy
        busy = True
        try:
            query, key, _value, *more = given
            found.append(_map(path, function, (part, query, key, *more), named))
        except Exception as problem:  # noqa: BLE001 -- a kernel that takes no such values is one unseen layer
            lacking.append(f"{path}: {type(problem).__name__}")
        try:
            return function(part, *given, **named)
        finally:
            busy = False

    def call(function: Any, given: Any, named: Any) -> Any:
        if function is functional.multi_head_attention_forward:  # which calls it where nobody listens
            inside = functools.partial(call, scaled_dot_product_attention)
            with mock.patch.object(functional, "scaled_dot_product_attention", lambda *of, **by: inside(of, by)):
                return function(*given, **named)
        if function is not scaled_dot_product_attention or busy or len(given) < 3 or given[0].dim() != 4:
            return function(*given, **named)
        return attend(paths[-1], _as_the_interface, None, *given, **named)[0].transpose(1, 2)

    with points.attending(model, attend), passes_of(model) as paths, listening(call=call):
        yield found, lacking
    if not found and not lacking:
        lacking.append(NOTHING)


def _as_the_interface(_part: object, *given: Any, **named: Any) -> tuple[torch.Tensor]:
    return (scaled_dot_product_attention(*given, **named).transpose(1, 2),)


def redundant(maps: Sequence[AttentionMap]) -> float | None:
    """Return the share of pairs of heads of a layer whose maps, less the uniform one, are alike; None of none."""
    alike = list[torch.Tensor]()
    for one in maps:
        apart = torch.where(one.weights > 0, one.weights - 1 / one.keys.clamp_min(1)[:, None, None], 0.0)
        each = torch.nn.functional.normalize(apart.transpose(0, 1).flatten(1))
        alike.append((each @ each.T)[*torch.triu_indices(len(each), len(each), 1)] > ALIKE)
    return float(every.float().mean()) if alike and len(every := torch.cat(alike)) else None


def content(maps: Sequence[AttentionMap], others: Sequence[AttentionMap]) -> float | None:
    """Return the total variation between the maps of one batch and another, the mean of all rows and heads."""
    pairs = list(zip(maps, others, strict=False))
    same = [(one.weights, other.weights) for one, other in pairs if one.weights.shape == other.weights.shape]
    found = [float((one - other).abs().sum(-1).mean()) / 2 for one, other in same]
    return sum(found) / len(found) if found else None


def heads(maps: Sequence[AttentionMap], of: Callable[[AttentionMap], Sequence[float]]) -> list[float]:
    """Return a figure of all heads, layer by layer, of those that have one."""
    return [one for one in itertools.chain.from_iterable(map(of, maps)) if not math.isnan(one)]


def _map(name: str, function: Any, given: tuple[Any, ...], named: dict[str, Any]) -> AttentionMap:
    module, query, key, *more = given
    rows, sequences, length = spread(query.shape[2], ROWS), query.shape[0], key.shape[2]
    unit = torch.eye(length, dtype=query.dtype, device=query.device).expand(*key.shape[:2], length, length)

    def weights(queries: torch.Tensor) -> torch.Tensor:
        found = function(module, queries, key, unit, *more, **named)[0]
        if found.shape != (sequences, query.shape[2], query.shape[1], length):
            raise ValueError("the kernel returned another shape")
        taken: torch.Tensor = found[:, rows].flatten(0, 1).float()
        return taken

    # A kernel may return 0 where a query is NaN, and nothing after it is.
    finite = query.isfinite().all() & key.isfinite().all()
    seen, allowed = weights(query).where(finite, math.nan), (weights(torch.zeros_like(query)) > 0)
    keys = allowed[:, 0].sum(-1)
    both = query[0], key[0].repeat_interleave(query.shape[1] // key.shape[1], 0)
    few = [one[:, spread(one.shape[1], GRID)].float() for one in both]
    scaling = named.get("scaling", named.get("scale"))
    products = few[0] @ few[1].mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    at = torch.tensor(rows, device=query.device).repeat(sequences) + length - query.shape[2]
    before = (at - 1).clamp_min(0)[:, None, None].expand(-1, seen.shape[1], 1)
    entropy = -torch.where(seen > 0, seen * seen.clamp_min(1e-38).log(), 0.0).sum(-1)
    several, telling = (keys > 1)[:, None], (keys >= TELLING)[:, None]
    figures = {
        "entropy": _mean(entropy / keys.clamp_min(2).log()[:, None], several),
        "largest": _mean(seen.amax(-1), telling),
        "first": _mean(seen[:, :, 0], telling),
        "previous": _mean(seen.gather(2, before)[..., 0], telling),
        "collapsed": _mean((entropy < math.log(2)).float(), telling),
    }
    read: dict[str, Any] = dict(zip(figures, map(tuple, torch.stack(list(figures.values())).tolist()), strict=True))
    logit = float(products.abs().amax())
    return AttentionMap(name=name, **read, largest_logit=logit, weights=seen, keys=keys, grid=products)


def _mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return torch.where(counted, values, 0.0).sum(0) / counted.sum(0)  # NaN where no row counts


def spread(size: int, most: int) -> list[int]:
    """Return places that are spread over a size, the first and the last among them."""
    few = min(size, most)
    return [at * (size - 1) // max(few - 1, 1) for at in range(few)]
