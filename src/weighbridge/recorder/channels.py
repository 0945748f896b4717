"""What a channel of the recorder is: at which moments of a step it looks, in which steps, and what it then knows."""

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
from torch.nn.modules.batchnorm import _NormBase

SELDOM = 10  # a period, for what is dear or drifts slowly
EARLY = frozenset({0, 1, 2, 3, 10, 11, 100, 101})
MOMENTS = (
    *("fetch_begins", "batch", "evaluation_begins", "forward_begins", "forward_ended", "backward_begins"),
    *("backward_ended", "update_begins", "update_ended", "row"),
)
Cell: TypeAlias = torch.Tensor | float | None
GRADIENT, VERSION = operator.attrgetter("grad"), operator.attrgetter("_version")
PARTS, VALUES = operator.attrgetter("_parameters", "_modules"), operator.methodcaller("values")


@dataclass(slots=True, eq=False)
class Watched:
    """What channels look at, and how far the step under way is, counted from 0 since the recorder was opened."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    vocab: int | None = None
    step: int = 0
    passes: int = 0  # over the corpus, that were begun again
    shuffles: bool = False  # the loader says that each has an order of its own
    early: bool = True  # all channels look in this step
    updated: bool = False
    compiled: bool = False  # an update ran compiled, and nobody could look
    scale: torch.Tensor | None = None  # what a gradient scaler multiplied by
    causal: bool | None = None  # no later token moved an earlier logit when a probe looked last
    norms: torch.Tensor | None = None  # of the gradients, at the moment under way
    lowest: tuple[torch.Tensor, torch.Tensor] | None = None  # entries of the logits' gradient by row, and their places
    looked: bool = False  # for other modules and parameters in this step
    _modules: list[torch.nn.Module] = field(default_factory=list)
    _inside: list[int] = field(default_factory=list)
    _parameters: list[torch.nn.Parameter] = field(default_factory=list)

    def parameters(self) -> list[torch.nn.Parameter]:
        """Return what `model.parameters()` gives, another list where it is not what it was in the step before."""
        if not self.looked:
            self.looked = True  # going down the modules takes as long as all norms: they are compared as they were
            if not self._modules or self._ids() != self._inside:
                self._modules, self._parameters = list(self.model.modules()), list(self.model.parameters())
                self._inside = self._ids()
        return self._parameters

    def statistics(self) -> list[torch.Tensor]:
        """Return the running means of norms over batches, unless another rank's may be copied over them."""
        self.parameters()
        ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
        norms = (one for one in self._modules if isinstance(one, _NormBase) and not ranks)
        return [one.running_mean for one in norms if one.running_mean is not None]

    def _ids(self) -> list[int]:
        parts = itertools.chain.from_iterable(map(PARTS, self._modules))  # in C: of every step this is the longest walk
        return [*map(id, itertools.chain.from_iterable(map(VALUES, parts)))]

    def trained(self) -> list[torch.nn.Parameter]:
        """Return the parameters that are trained."""
        return [one for one in self.parameters() if one.requires_grad and one.numel()]

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients that there are, in the order of the parameters."""
        return [gradient for gradient in map(GRADIENT, self.parameters()) if gradient is not None]

    def owned(self) -> list[torch.Tensor]:
        """Return what the optimizer updates."""
        return [one for group in getattr(self.optimizer, "param_groups", ()) for one in group.get("params", ())]

    def bare(self) -> torch.nn.Module:
        """Return the model inside what compiles it, or gives each rank its copy."""
        model = self.model
        while isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            model = model.module
        return getattr(model, "_orig_mod", model)


class Channel:
    """One thing to look at, by a method for each moment that it looks at; a moment without one costs nothing.

    In the order of a step they are `fetch_begins()`, before the loader is asked; `batch(batch)`, which it hands out;
    `evaluation_begins(args, kwargs)`, a forward pass without gradients; `forward_begins(args, kwargs)`;
    `forward_ended(args, kwargs, output)`, the logits, else the first tensor that has a gradient;
    `backward_begins(gradient)`, where a pass reaches that output and no parameter has got a gradient of it yet;
    `backward_ended()`, where gradients of other ranks are in; `update_begins()`; `update_ended()`, while the gradients
    are still there. Under accumulation all but the update come several times.

    `row` gives the step's figures, on whatever device, and forgets them; what could not be seen is left out, or is NaN
    where only the device knows that and not every step is looked at. Nothing here draws a random number or changes a
    tensor.
    """

    columns: ClassVar[tuple[str, ...]]
    every_step: ClassVar[bool] = False
    period = 1  # of the steps in which all channels look, those that are early by this

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.found: dict[str, Any] = {}  # of the step under way

    def row(self) -> Mapping[str, Cell]:
        """Return the figures of the step by column."""
        found, self.found = self.found, {}
        return found


def is_early(step: int, every: int) -> bool:
    """Return whether a step is one of those in which all channels look: the first ones, and two in `every`."""
    return step in EARLY or step % every < 2


def stamps(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Return which tensors these are, and torch's count of writes to each."""
    return list(zip(map(id, tensors), map(VERSION, tensors), strict=True))
