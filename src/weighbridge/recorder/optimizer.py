"""What an optimizer did in a step: whether it updated at all, and when, so that the step's own gradients are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside what Accelerate, Lightning and the like have put around it."""
    wrappers: list[Any] = []
    while hasattr(inner := getattr(optimizer, "optimizer", None), "param_groups"):
        if any(inner is wrapper for wrapper in wrappers):
            break
        wrappers.append(optimizer)
        optimizer = inner
    return optimizer


class Updates:
    """The updates of an optimizer: `seen` is called after each, but for a compiled one, which is only noted."""

    def __init__(self, optimizer: torch.optim.Optimizer, seen: Callable[[], None]) -> None:
        self.compiled = False
        # What follows an update runs as it is, even inside a function that somebody compiles.
        self._seen = torch.compiler.disable(seen)  # type: ignore[no-untyped-call]
        self._hook = optimizer.register_step_post_hook(self._after)

    def _after(self, *_: Any) -> None:
        if torch.compiler.is_compiling():
            self.compiled = True
        else:
            self._seen()

    def close(self) -> None:
        """Look at no more updates."""
        self._hook.remove()
