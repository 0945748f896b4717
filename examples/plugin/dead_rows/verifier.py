"""The instrument: it counts the rows of every tensor of one checkpoint that are all zeros. Knows no bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dead_rows.quantity import DeadRows
from weighbridge.verifiers.tensor_walk import Damage, instrument
from weighbridge.views.checkpoint import CheckpointView, Tensor


@dataclass(slots=True)
class Rows:
    """What is known of one tensor so far; a row may begin in one chunk and end in a later one."""

    tensor: Tensor
    dead: int = 0
    seen: int = 0  # bytes of the row that is under way
    alive: bool = False

    @property
    def reads(self) -> bool:
        """Return whether there is anything to read."""
        return self.tensor.nbytes > 0

    def take(self, chunk: memoryview) -> None:
        """Look at the next bytes, row by row."""
        data, size, at = bytes(chunk), _row_bytes(self.tensor), 0
        while at < len(data):
            part = data[at : at + size - self.seen]
            self.alive = self.alive or part.count(0) < len(part)
            self.seen, at = self.seen + len(part), at + len(part)
            if self.seen == size:
                self.dead += not self.alive
                self.seen, self.alive = 0, False

    def row(self) -> DeadRows:
        """Return what was counted."""
        return DeadRows(name=self.tensor.name, rows=_rows(self.tensor), dead=self.dead)


def _rows(tensor: Tensor) -> int:
    return tensor.elements // tensor.shape[-1] if tensor.elements and tensor.shape else int(tensor.elements > 0)


def _row_bytes(tensor: Tensor) -> int:
    return tensor.nbytes // _rows(tensor)


def begin(_view: CheckpointView) -> type[Rows]:
    """Begin a checkpoint."""
    return Rows


def _lay(cut: CheckpointView, tensor: Tensor) -> tuple[CheckpointView, Mapping[str, int]]:
    size = _row_bytes(tensor)
    return cut.overlaid(tensor.name, 0, b"\x3c" * (tensor.nbytes - size) + bytes(size)), {"dead": 1}


DAMAGE = Damage(
    name="the last row overlaid with zeros",
    fits=lambda tensor: tensor.nbytes > 0,
    without="no tensor has a row",
    lay=_lay,
)
VERIFIER = instrument("dead_rows", begin, DAMAGE)
