"""A callback for the Trainer of Lightning: `Trainer(..., callbacks=[Callback("runs/a")])`."""

import contextlib
import re
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import callbacks

from weighbridge.integrations.micro_batches import Recording, quietly, while_open

EVALUATED = re.compile(r"(?:val|valid|validation|eval)[_/](.+)")


class Callback(Recording, callbacks.Callback):  # type: ignore[misc,unused-ignore]  # its library is not looked into
    """Record a training under Lightning, with the options of `weighbridge.recorder.Recorder`.

    The loss is what `training_step` returned, the mean over the micro-batches of an update. Of several optimizers none
    is looked at, for each may rest while another updates.
    """

    _updates = 0

    @quietly
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open the run."""
        self._updates, asked, loop = trainer.global_step, float("inf"), trainer.fit_loop.epoch_loop
        with contextlib.suppress(MisconfigurationException):  # accumulation changes from epoch to epoch
            asked = trainer.estimated_stepping_batches
        parts = [child for child in pl_module.children() if [*child.parameters()]]
        alone = len(parts) == 1 and not [*pl_module.parameters(recurse=False)]
        broken = loop.batch_progress.current.ready % trainer.num_training_batches > 0
        single = len(trainer.optimizers) == 1
        facts = {"first_step": trainer.global_step if single else loop._batches_that_stepped}  # noqa: SLF001
        facts |= {"requested_steps": int(asked) if asked < float("inf") else None, "loader": trainer.train_dataloader}
        model = parts[0] if alone else pl_module  # the module itself is seldom called, its only part is
        self.begin(model, trainer.optimizers[0] if single else None, trainer.current_epoch + broken / 2, **facts)

    @while_open
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin a pass over the corpus."""
        limit = trainer.limit_train_batches  # a whole number of batches, or a share of them
        self.recorder.next_pass(dry=isinstance(limit, float) and limit == 1.0)

    @while_open
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Count a batch."""
        self.recorder.training_batch(batch)

    @while_open
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Measure the norm of the gradients between unscaling and clipping."""
        gradients = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
        self.recorder.update.norm = torch.nn.utils.get_total_norm(gradients) if gradients else None

    @while_open
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Add a loss, and write the row of an update, or let it wait for its evaluation."""
        if outputs and "loss" in outputs:  # Lightning has divided it
            divisor = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
            self.recorder.micro_loss(outputs["loss"] * divisor)
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self.recorder.updated(waits=trainer.enable_validation)

    @while_open
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Put the figures of an evaluation into the row: `val_loss`, `valid/loss` and `eval_loss` as `val_loss`."""
        found = {EVALUATED.fullmatch(name): figure for name, figure in trainer.callback_metrics.items()}
        self.recorder.update.scalars |= {f"val_{name[1]}": figure for name, figure in found.items() if name}

    @quietly
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Close the run, which this exception ends."""
        self.finish(type(exception))
