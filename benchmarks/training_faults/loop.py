"""A training loop as people write it by hand; only `rec` is new in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_faults.program import Program, recorder, run
from torch import nn


class Loop(Program):
    """Model, optimizer and loader of a subclass, trained by hand."""

    clip: float | None = None
    accumulate, loss_divisor = 1, 1.0
    micro_batches = 0  # of a step; those that were meant are accumulated
    set_to_none = True
    data: Sequence[Any]
    held_out: Any
    loader: Iterable[Any]
    batches: Iterator[Any]
    batch_size = 8

    def load(self, data: Sequence[Any], **options: Any) -> None:
        """Make a loader of rows, shuffled unless told otherwise."""
        self.data = data

        def collate(items: list[Any]) -> Any:
            return self.batch(torch.utils.data.default_collate(items))

        options = {"shuffle": "sampler" not in options, "drop_last": True} | options
        self.loader = torch.utils.data.DataLoader(
            data,  # type: ignore[arg-type]  # a sequence is a data set of its items
            batch_size=self.batch_size,
            collate_fn=collate,
            generator=torch.Generator().manual_seed(self.seed),
            **options,
        )

    def pair(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets."""
        raise NotImplementedError

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def train(self, directory: Path, channels: str) -> None:
        whole = self.batch_size * self.accumulate
        with recorder(directory, self, channels, loader=self.loader, batch_size=whole) as rec:
            self.batches = rec.cycle()
            for step in range(self.steps):
                self.step = step
                run(self.before_forward)
                evaluated = (
                    self.evaluate() if step and self.evaluate_every and step % self.evaluate_every == 0 else None
                )
                rec.step(self.reported(self.one_step()), val_loss=evaluated)
                run(self.between)

    def reported(self, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def one_step(self) -> torch.Tensor:
        self.clear()
        losses = [self.micro() for _ in range(self.micro_batches or self.accumulate)]
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        run(self.before_update)
        self.update()
        run(self.after_update)
        return torch.stack(losses).mean()

    def micro(self) -> torch.Tensor:
        inputs, targets = self.pair(next(self.batches))
        loss = self.loss(self.model(inputs), targets)
        (loss / (self.accumulate * self.loss_divisor)).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.set_to_none)

    def update(self) -> None:
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def evaluation_loss(self) -> torch.Tensor:
        inputs, targets = self.pair(self.held_out)
        return self.loss(self.model(inputs), targets)
