"""Capture points of a PyTorch module: what its modules return, in the order of computing, as rows of channels.

A point's id is the path of a module and the state: `model.layers.3.self_attn.q_proj.out`. An `.in` is the first input
of a module without parts, where no module returned it. `.attention.query.in`, `.key.in` and `.value.in` are what the
attention function of a Hugging Face model was given, after the rotation; `.key.cache` and `.value.cache` what it was
given of all tokens when the last one was decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, TypeAlias

from weighbridge.core import SubjectError, torch
from weighbridge.forward.widened import unwatched

# What is done at a point: it is given the id and the rows, and returns rows to go on with, or None for the same.
Visit: TypeAlias = "Callable[[str, torch.Tensor], torch.Tensor | None]"
CACHE = ".cache"
INTEGERS = ("torch.int64", "torch.int32")
Points: TypeAlias = frozenset[str] | None  # the ids of some points; None is all


class ReachedError(Exception):
    """A pass has come to the point that it was made for, and nothing after it is wanted."""


class Rows(NamedTuple):
    """A tensor as `[sequences, tokens, channels]` (sequences 1 where all share it), and the way back to its shape."""

    tensor: torch.Tensor
    back: Callable[[torch.Tensor], torch.Tensor]


def as_rows(tensor: torch.Tensor, sequences: int, tokens: int, heads: str = "maybe") -> Rows | None:
    """Return a tensor as rows, None where its dimensions say nothing of tokens.

    Sequences and tokens come first, or are one dimension, or all sequences share one; or, where `heads` come first
    (`yes`; `maybe` after all else was tried; `no`), the tokens are the last ones of the third dimension.
    """
    shape = tuple(tensor.shape)
    if len(shape) < 2 or not tensor.numel():
        return None
    flat = shape[0] == sequences * tokens and (tokens > 1 or len(shape) == 2)
    if heads != "yes" and ((shape[:2] in ((sequences, tokens), (1, tokens)) and len(shape) > 2) or flat):
        lead = (1, tokens) if shape[:2] == (1, tokens) else (sequences, tokens)
        return Rows(tensor.reshape(*lead, -1), lambda rows: rows.reshape(shape))
    if heads != "no" and len(shape) == 4 and shape[0] in (1, sequences) and shape[2] >= tokens:
        turned = tensor[:, :, shape[2] - tokens :].transpose(1, 2)
        form = tuple(turned.shape)
        return Rows(turned.reshape(*form[:2], -1), lambda rows: rows.reshape(form).transpose(1, 2))
    return None


class Pass:
    """One forward pass under way: its sequences and tokens, and what was seen in it already."""

    def __init__(
        self, visit: Visit, shape: tuple[int, int], wanted: Points, casts: frozenset[str], weights: frozenset[int]
    ) -> None:
        self.visit, self.shape, self.wanted, self.casts, self.weights = visit, shape, wanted, casts, weights
        self.named: set[str] = set()
        self.seen = torch.utils.weak.WeakIdKeyDictionary() if wanted is None else None
        self.calls: dict[str, int] = {}

    def at(self, point: str, tensor: torch.Tensor, heads: str = "maybe") -> torch.Tensor | None:
        """Visit a point, unless it is no row of tokens, not wanted, or the very tensor of an earlier point."""
        known = tensor in self.seen if self.seen is not None else point not in self.wanted  # type: ignore[operator]
        rows = None if known and point not in self.casts else as_rows(tensor, *self.shape, heads)
        if rows is None:
            return None
        replaced = self.visit(point, rows.tensor)
        self.named.add(point)
        if known:
            return None
        if replaced is not None and point.endswith(".in"):
            storage, view = tensor.untyped_storage(), rows.tensor
            whole = storage.nbytes() == view.nbytes or view.numel() < tensor.numel()  # all of it, or the last tokens
            mine = view.untyped_storage().data_ptr() == storage.data_ptr() and storage.data_ptr() not in self.weights
            if whole and mine and 0 not in tensor.stride():
                # In place, so that a residual stream which goes on beside this module goes on with the same values.
                with unwatched():
                    view.copy_(replaced)
                replaced = None
        result = tensor if replaced is None else rows.back(replaced)
        if tensor.is_contiguous():  # what follows may ask for a view
            result = result.contiguous()
        if self.seen is not None:
            self.seen[tensor] = self.seen[result] = True
        return None if replaced is None else result

    def cached(self, point: str, tensor: torch.Tensor, total: int) -> None:
        """Visit what a cache holds of all tokens, once the last of them is decoded; it goes on as it is."""
        (sequences, tokens), length = self.shape, tensor.shape[2]
        due = length == total > tokens if total else length == tokens and point in self.casts
        rows = as_rows(tensor, sequences, length, "yes") if due else None
        if rows is not None:
            self.visit(point, rows.tensor)

    def within(self, point: str, value: Any, at: int = 0) -> Any:
        """Visit every tensor in what a module returned: a tensor, or a tuple, list or mapping of them."""
        if _is_tensor(value):
            # Integers say which experts a router chose.
            # Behind the first place, heads before tokens are attention's weights, which not every kernel returns.
            telling = value.is_floating_point() or str(value.dtype) in INTEGERS
            replaced = self.at(point, value, "no" if at else "maybe") if telling else None
            return value if replaced is None else replaced
        if isinstance(value, Mapping):
            found = {key: self.within(_named(point, key, at), item, at) for at, (key, item) in enumerate(value.items())}
            for key, item in found.items():
                if item is not value[key]:
                    value[key] = item  # type: ignore[index]  # a model's output, made in this pass
            return value
        if isinstance(value, (tuple, list)):
            items = [self.within(_named(point, at, at), item, at) for at, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        return value

    def call(self, path: str) -> str:
        """Return the path of a module, with the number of its call where it is not the first in this pass."""
        name = self.ahead(path)
        self.calls[path] = self.calls.get(path, 0) + 1
        return name

    def ahead(self, path: str) -> str:
        """Return the path of a module that is about to run, with the number of the call."""
        number = self.calls.get(path, 0) + 1
        return path if number == 1 else f"{path}.call{number}"


def _named(point: str, key: object, at: int) -> str:
    if point == "logits":
        return "logits" if key == "logits" or (key == 0 and at == 0) else f"{key}.out"
    return point if at == 0 else f"{point}.{key}"


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)


@contextmanager
def visited(
    module: torch.nn.Module, visit: Visit, sequences: int, wanted: Points = None, casts: frozenset[str] = frozenset(),
    *, total: int = 0,
) -> Iterator[None]:  # fmt: skip
    """Call `visit` at every point of the forward passes inside the block, or only at those wanted, once for a tensor.

    Where float64 casts nothing, a point of `casts` is the very tensor of an earlier one: it is visited as well, and
    goes on as it is. Where so many tokens in `total` are decoded one by one, each step has the points of the first.
    """
    inner: Any = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    now: list[Pass] = []
    plain = (t for t in (*inner.parameters(), *inner.buffers()) if type(t) in (torch.Tensor, torch.nn.Parameter))
    weights = frozenset(tensor.untyped_storage().data_ptr() for tensor in plain)  # others may have no storage

    def begin(_module: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        ids = next((one for one in (*args, *kwargs.values()) if _is_tensor(one) and not one.is_floating_point()), None)
        if ids is None:
            remedy = "give the token ids as a tensor argument, or wrap the module in one that does"
            raise SubjectError("no-token-ids", "the module was called without token ids", remedy=remedy)
        shape = sequences, int(ids.shape[-1] if ids.ndim > 1 else ids.numel() // sequences)
        named = frozenset(now[0].named) if total and now and wanted is None else wanted
        now[:] = [Pass(visit, shape, named, casts, weights)]

    def leaving(path: str, _module: object, _given: object, result: Any) -> Any:
        return now[0].within(f"{now[0].call(path)}.out" if path else "logits", result)

    def entering(path: str, _module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        every = [*enumerate(args), *kwargs.items()]
        floating = (pair for pair in every if _is_tensor(pair[1]) and pair[1].is_floating_point())
        key, given = next(floating, (None, None))
        replaced = None if given is None else now[0].at(f"{now[0].ahead(path)}.in", given)
        if replaced is None:
            return None
        if isinstance(key, int):
            return (*args[:key], replaced, *args[key + 1 :]), kwargs
        return args, {**kwargs, str(key): replaced}

    with ExitStack() as hooks:
        hooks.callback(inner.register_forward_pre_hook(begin, with_kwargs=True, prepend=True).remove)
        for path, part in inner.named_modules():
            if path and (not list(part.children()) or f"{path}.in" in (wanted or ())):
                hooks.callback(part.register_forward_pre_hook(partial(entering, path), with_kwargs=True).remove)
            hooks.callback(part.register_forward_hook(partial(leaving, path)).remove)
        hooks.enter_context(attending(inner, partial(_attend, now, wanted, total)))
        yield


@contextmanager
def attending(module: torch.nn.Module, attend: Callable[..., Any]) -> Iterator[bool]:
    """Call `attend(path, function, …)` for the function of each part that attends; yield whether any can be seen."""
    functions: Any = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", None)
    if functions is None or not hasattr(functions, "get_interface"):
        yield False
        return
    paths = {part: path for path, part in module.named_modules()}
    plain, before = functions.get_interface, vars(functions).get("get_interface")

    def interface(*args: Any, **kwargs: Any) -> Any:
        function = plain(*args, **kwargs)

        @wraps(function)
        def attended(part: Any, *given: Any, **named: Any) -> Any:
            if part in paths:
                return attend(paths[part], function, part, *given, **named)
            return function(part, *given, **named)

        return attended

    functions.get_interface = interface
    try:
        yield True
    finally:
        del functions.get_interface
        if before is not None:
            functions.get_interface = before


def _attend(  # noqa: PLR0917 -- a pass under way, then what `attending` calls it with
    now: Sequence[Pass], wanted: Points, total: int, path: str, function: Any, part: Any, *tensors: Any, **named: Any
) -> Any:
    given, more = dict(zip(("query", "key", "value"), tensors, strict=False)), tensors[3:]
    path = now[0].ahead(path)
    for name, tensor in given.items():  # a module may have a part of this name
        replaced = now[0].at(f"{path}.attention.{name}.in", tensor, "yes")
        if replaced is not None and replaced.shape == tensor.shape:
            given[name] = replaced
        point = f"{path}.attention.{name}{CACHE}"
        if name != "query" and (wanted is None or point in wanted or point in now[0].casts):
            now[0].cached(point, given[name], total)
    return function(part, *given.values(), *more, **named)
