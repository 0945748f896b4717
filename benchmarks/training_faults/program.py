"""What every program offers to be patched: its parts, and lists of what is done at each point of its loop."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weighbridge.recorder import Recorder

STEPS = 120
Done = Callable[[], None]


class Program(ABC):
    """One training program of one seed, built and ready to train; a fault replaces or adds to its parts."""

    name = ""
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any = None
    evaluate_every = 0

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.step, self.steps = seed, 0, STEPS
        self.declared: dict[str, Any] = {"requested_device": "cpu", "requested_steps": STEPS}
        self.on_batch: list[Callable[[Any], Any]] = []  # what the loader makes of a batch
        self.before_forward: list[Done] = []  # of a step's first forward
        self.before_update: list[Done] = []  # gradients stand, clipped
        self.after_update: list[Done] = []
        self.between: list[Done] = []  # after the step was recorded
        self.params: dict[str, str] = {}  # of the contract: what a variant declares

    @property
    @abstractmethod
    def middle(self) -> nn.Module:
        """The layer that faults of one layer are laid in."""

    @abstractmethod
    def train(self, directory: Path, channels: str) -> None:
        """Train, recorded into a directory."""

    @abstractmethod
    def evaluation_loss(self) -> torch.Tensor:
        """Return the loss of the held-out rows."""

    def evaluate(self) -> torch.Tensor | None:
        """Evaluate as one does, and go on training."""
        self.model.eval()
        with torch.no_grad():
            loss = self.evaluation_loss()
        self.model.train()
        return loss

    def batch(self, found: Any) -> Any:
        """Hand a collated batch through what changes it."""
        for change in self.on_batch:
            found = change(found)
        return found

    def from_step(self, onset: int, act: Done) -> Done:
        """Return an act that begins with a step."""
        return lambda: act() if self.step >= onset else None

    def at_step(self, when: int, act: Done) -> Done:
        """Return an act of one step."""
        return lambda: act() if self.step == when else None

    def optimize(self, parameters: Any) -> None:
        """Give the optimizer these parameters, with the settings that it has; a schedule goes with it."""
        kind, settings = type(self.optimizer), self.optimizer.defaults
        known = inspect.signature(kind).parameters
        self.optimizer = kind(parameters, **{name: value for name, value in settings.items() if name in known})

    def rate(self, factor: float) -> None:
        """Multiply the learning rate, for good."""
        for group in self.optimizer.param_groups:
            group["lr"] *= factor
            if "initial_lr" in group:
                group["initial_lr"] *= factor
        if self.schedule is not None:
            self.schedule.base_lrs = [rate * factor for rate in self.schedule.base_lrs]

    def scheduled(self, factor: Callable[[int], float]) -> None:
        """Give the optimizer a schedule."""
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)

    def declare_clip(self, norm: float) -> None:
        """Declare to what gradients are clipped."""
        self.params["clip"] = str(1.001 * norm)

    def declare_decay(self) -> None:
        """Declare the weight decay that the optimizer was made with."""
        self.params["decay"] = str(max(group["weight_decay"] for group in self.optimizer.param_groups))

    def declare_rate(self, peak: float, schedule: str = "constant", total: int = STEPS, warmup: int = 0) -> None:
        """Declare the learning rate, for contracts that ask for it."""
        self.params |= {"schedule": schedule, "peak": str(peak), "total": str(total), "warmup": str(warmup)}


def run(acts: list[Done]) -> None:
    """Do what is to be done at one point."""
    for act in acts:
        act()


def recorder(directory: Path, program: Program, channels: str, **options: Any) -> Recorder:
    """Open a recorder as the program's author would."""
    return Recorder(directory, program.model, program.optimizer, channels=channels, **program.declared, **options)
