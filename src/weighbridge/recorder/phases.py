"""When a step was, and what its time went into, by the clock of the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from weighbridge.recorder.channels import Cell, Channel, Watched


def _begins(phase: str) -> Callable[..., None]:
    def look(self: Phases, *_: object) -> None:
        self.began[phase] = time.perf_counter()

    return look


def _ends(phase: str) -> Callable[..., None]:
    def look(self: Phases, *_: object) -> None:
        if (began := self.began.pop(phase, None)) is not None:
            self.spent[phase] = self.spent.get(phase, 0.0) + (time.perf_counter() - began) * 1e3

    return look


class Phases(Channel):
    """Milliseconds of waiting for batches, of passes and of updates; on a device, of handing the work to it."""

    columns = ("time", "monotonic_s", "fetch_ms", "forward_ms", "backward_ms", "update_ms")
    every_step = True
    fetch_begins, batch = _begins("fetch_ms"), _ends("fetch_ms")
    forward_begins, forward_ended = _begins("forward_ms"), _ends("forward_ms")
    backward_begins, backward_ended = _begins("backward_ms"), _ends("backward_ms")
    update_begins, update_ended = _begins("update_ms"), _ends("update_ms")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self.began, self.spent = dict[str, float](), dict[str, float]()

    def row(self) -> Mapping[str, Cell]:
        """Return the time of day, that of a clock that is never set, and the milliseconds of each phase."""
        spent, self.spent = self.spent, {}
        return {"time": time.time(), "monotonic_s": time.monotonic(), **spent}
