"""A recorder for a loop of one's own under Accelerate: `with recorded(accelerator, "runs/a", model, …) as rec:`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from weighbridge.integrations.micro_batches import UpdateRecorder, quietly
from weighbridge.recorder import Recorder


def recorded(
    accelerator: Any,
    directory: str | Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    loader: Iterable[Any] | None = None,
    **options: Any,
) -> Recorder:
    """Return a recorder of what was prepared, whose `step(loss)` is called after each micro-batch.

    There is a row where gradients are synchronised, with the mean of the losses since the last.
    """
    recorder = _Accumulating(directory, model, optimizer, loader=loader, **options)
    recorder.accelerator = accelerator
    return recorder


class _Accumulating(UpdateRecorder):
    accelerator: Any

    @quietly
    def step(self, loss: Any, *, grad_norm: Any = None, tokens: int | None = None, **scalars: Any) -> None:
        """Add the loss of a micro-batch, and record the update where it is the last of one."""
        self.micro_loss(loss)
        self.update.scalars |= scalars
        self.update.norm = grad_norm
        if tokens is not None:
            self.update.tokens = tokens + (self.update.tokens or 0)
        if self.accelerator.sync_gradients:
            self.updated()
