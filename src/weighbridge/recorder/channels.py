"""What a channel of the recorder is: at which moments of a step it looks, in which steps, and what it then knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch

EARLY = frozenset({0, 1, 2, 3, 10, 11, 100, 101})
MOMENTS = (
    *("fetch_begins", "batch", "forward_begins", "forward_ended", "backward_begins", "backward_ended"),
    *("update_begins", "update_ended"),
)
Cell: TypeAlias = torch.Tensor | float | None


@dataclass(slots=True, eq=False)
class Watched:
    """What channels look at, and how far the step under way is, counted from 0 since the recorder was opened.

    `scale` is what a gradient scaler multiplied by.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    vocab: int | None = None
    step: int = 0
    passes: int = 0  # over the corpus, that were begun again
    early: bool = True  # all channels look in this step
    updated: bool = False
    compiled: bool = False  # an update ran compiled, and nobody could look
    scale: torch.Tensor | None = None
    causal: bool | None = None  # no later token moved an earlier logit when a probe looked last
    _parameters: list[torch.nn.Parameter] | None = None

    def begin(self, step: int) -> None:
        """Begin a step, in which the model may have other parameters."""
        self.step, self.updated, self.compiled, self._parameters = step, False, False, None

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return what `model.parameters()` gives; once a step, for that takes as long as their norms."""
        if self._parameters is None:
            found, seen = dict[int, torch.nn.Parameter](), set[int]()
            waiting: list[torch.nn.Module | None] = [self.model]
            while waiting:
                if (module := waiting.pop()) is not None and id(module) not in seen:
                    seen.add(id(module))
                    found.update((id(one), one) for one in module._parameters.values() if one is not None)  # noqa: SLF001
                    waiting.extend(reversed(module._modules.values()))  # noqa: SLF001
            self._parameters = list(found.values())
        return self._parameters

    def trained(self) -> list[torch.nn.Parameter]:
        """Return the parameters that are trained."""
        return [one for one in self.parameters() if one.requires_grad and one.numel()]

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients that there are, in the order of the parameters."""
        return [one.grad for one in self.parameters() if one.grad is not None]

    def bare(self) -> torch.nn.Module:
        """Return the model inside what compiles it, or gives each rank its copy."""
        model = self.model
        while isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            model = model.module
        return getattr(model, "_orig_mod", model)


class Channel:
    """One thing to look at; a moment that it does not name costs nothing.

    Under accumulation all but the update come several times a step. `row` gives the step's figures, on whatever device,
    and forgets them; what could not be seen is left out, or is NaN where only the device knows that and not every step
    is looked at. Nothing here draws a random number or changes a tensor.
    """

    columns: ClassVar[tuple[str, ...]]
    every_step: ClassVar[bool] = False

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def fetch_begins(self) -> None:
        """Look before the loader is asked for a batch."""

    def batch(self, batch: object) -> None:
        """Look at a batch that the loader hands out."""

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look before a forward pass with gradients."""

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Look after it; `output` is the logits, else the first tensor that has a gradient."""

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Look as a backward pass reaches that output; no parameter of the model has got a gradient of it yet."""

    def backward_ended(self) -> None:
        """Look after it, where gradients of other ranks are in."""

    def update_begins(self) -> None:
        """Look before an update."""

    def update_ended(self) -> None:
        """Look after it; the gradients are still there."""

    def row(self) -> Mapping[str, Cell]:
        """Return the figures of the step by column."""
        return {}


def is_early(step: int, every: int) -> bool:
    """Return whether a step is one of those in which all channels look: the first ones, and two in `every`."""
    return step in EARLY or step % every < 2
