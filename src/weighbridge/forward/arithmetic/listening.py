"""Modes of PyTorch in which every operation, or every call of a function, goes by way of another, and who makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from weighbridge.core import torch

Way: TypeAlias = "Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]"  # of a function and what it is given


@contextmanager
def listening(operation: Way | None = None, call: Way | None = None) -> Iterator[None]:
    """Let every operation of ATen inside the block be made by `operation`, and every function of PyTorch by `call`."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    def made(way: Way) -> Callable[..., Any]:
        return lambda _mode, func, _types, args=(), kwargs=None: way(func, args, kwargs or {})

    operations: Any = operation and type("Operations", (TorchDispatchMode,), {"__torch_dispatch__": made(operation)})
    calls: Any = call and type("Calls", (TorchFunctionMode,), {"__torch_function__": made(call)})
    with ExitStack() as modes:
        for mode in filter(None, (operations, calls)):
            modes.enter_context(mode())
        yield


@contextmanager
def passes_of(module: torch.nn.Module) -> Iterator[list[str]]:
    """Yield the paths of the parts whose forward passes are under way, the innermost last; the first is of none."""
    paths = [""]

    def begins(path: str) -> Callable[..., None]:
        return lambda *_: paths.append(path)

    def ends(*_: object) -> None:
        paths.pop()

    with ExitStack() as hooks:
        for path, part in module.named_modules():
            hooks.callback(part.register_forward_pre_hook(begins(path)).remove)
            hooks.callback(part.register_forward_hook(ends, always_call=True).remove)
        yield paths
