"""When a step was, and what its time went into, by the clock of the host."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import Cell, Channel, Watched


class Phases(Channel):
    """Milliseconds of waiting for batches, of passes and of updates; on a device, of handing the work to it."""

    columns = ("time", "monotonic_s", "fetch_ms", "forward_ms", "backward_ms", "update_ms")
    every_step = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._began: dict[str, float] = {}
        self._spent: dict[str, float] = {}

    def fetch_begins(self) -> None:
        """Start the clock of the loader."""
        self._began["fetch_ms"] = time.perf_counter()

    def batch(self, batch: object) -> None:
        """Stop it."""
        self._end("fetch_ms")

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Start the clock of the forward pass."""
        self._began["forward_ms"] = time.perf_counter()

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Stop it."""
        self._end("forward_ms")

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Start the clock of the backward pass."""
        self._began["backward_ms"] = time.perf_counter()

    def backward_ended(self) -> None:
        """Stop it."""
        self._end("backward_ms")

    def update_begins(self) -> None:
        """Start the clock of the update."""
        self._began["update_ms"] = time.perf_counter()

    def update_ended(self) -> None:
        """Stop it."""
        self._end("update_ms")

    def row(self) -> Mapping[str, Cell]:
        """Return the time of day, that of a clock that is never set, and the milliseconds of each phase."""
        spent, self._spent = self._spent, {}
        return {"time": time.time(), "monotonic_s": time.monotonic(), **spent}

    def _end(self, phase: str) -> None:
        if (began := self._began.pop(phase, None)) is not None:
            self._spent[phase] = self._spent.get(phase, 0.0) + (time.perf_counter() - began) * 1e3
