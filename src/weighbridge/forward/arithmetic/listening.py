"""Modes of PyTorch in which every operation, or every call of a function, goes by way of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

Way: TypeAlias = "Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]"  # of a function and what it is given


@contextmanager
def listening(operation: Way, call: Way | None = None) -> Iterator[None]:
    """Let every operation of ATen inside the block be made by `operation`, and every function of PyTorch by `call`."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    def made(way: Way) -> Callable[..., Any]:
        return lambda _mode, func, _types, args=(), kwargs=None: way(func, args, kwargs or {})

    operations: Any = type("Operations", (TorchDispatchMode,), {"__torch_dispatch__": made(operation)})
    calls: Any = call and type("Calls", (TorchFunctionMode,), {"__torch_function__": made(call)})
    with ExitStack() as modes:
        modes.enter_context(operations())
        if call:
            modes.enter_context(calls())
        yield
