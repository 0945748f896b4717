"""A recorder for a loop under Accelerate: `with Recorder(accelerator, "runs/a", model, optimizer) as rec:`."""

from typing import Any

from weighbridge.integrations.micro_batches import UpdateRecorder, quietly


class Recorder(UpdateRecorder):
    """A recorder of what was prepared, whose `step(loss)` is called after each micro-batch.

    There is a row where gradients are synchronised, with the mean of the losses since the last. What it takes after the
    accelerator is what `weighbridge.recorder.Recorder` takes.
    """

    def __init__(self, accelerator: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._accelerator = accelerator

    @quietly
    def step(self, /, loss: Any, *, grad_norm: Any = None, tokens: int | None = None, **scalars: Any) -> None:
        """Add the loss of a micro-batch, and record the update where it is the last of one."""
        self.micro_loss(loss)
        self.update.scalars |= scalars
        self.update.norm = grad_norm
        if tokens is not None:
            self.update.tokens = tokens + (self.update.tokens or 0)
        if self._accelerator.sync_gradients:
            self.updated()
