"""Walk over the tensors of one checkpoint, once for all quantities that are read off their bytes.

Each quantity takes the same chunks in turn and then describes the tensor; none knows of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from weighbridge.model import Fields, Measurement, SubjectKind
from weighbridge.scheduling.threads import Execution
from weighbridge.verifiers.verifier import Asked, Canary, NoCanary, Verifier, Views, table
from weighbridge.views.checkpoint import CheckpointView, Tensor

STEP = 1 << 17  # units read at once: what they are computed through stays in a cache
ENOUGH = 2 * STEP + 256  # elements that take more than one step


class Reading(Protocol):
    """What one quantity makes of one tensor; it is given the bytes only where it `reads`."""

    @property
    def reads(self) -> bool:
        """Return whether the bytes say anything."""

    def take(self, chunk: memoryview, /) -> None:
        """Look at the next bytes, whole units."""

    def row(self) -> Any:
        """Describe the tensor."""


Begin: TypeAlias = Callable[[CheckpointView], Callable[[Tensor], Reading]]  # a checkpoint, then each of its tensors


def walk(view: CheckpointView, quantities: Sequence[tuple[str, Begin]]) -> tuple[Measurement, ...]:
    """Read every tensor once, and return each quantity's table.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    begun = [begin(view) for _, begin in quantities]
    rows: list[list[Any]] = [[] for _ in quantities]
    for name in view.names():
        tensor = view.tensor(name)
        readings = [begin(tensor) for begin in begun]
        taking = [reading for reading in readings if reading.reads]
        for chunk in view.chunks(name, STEP * tensor.unit[1]) if taking else ():
            for reading in taking:
                reading.take(chunk)
        for told, reading in zip(rows, readings, strict=True):
            told.append(reading.row())
    return tuple(table(quantity, told) for (quantity, _), told in zip(quantities, rows, strict=True))


def instrument(
    quantity: str, begin: Begin, canary: Callable[[Views, Fields, Measurement], Canary | NoCanary]
) -> Verifier:
    """Return the verifier of one quantity that is read off the bytes."""

    def measure(views: Views, _options: Fields) -> Measurement:
        (found,) = walk(views[0], [(quantity, begin)])
        return found

    return Verifier(
        quantity=quantity, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary,
        batch=batch, reading=begin,
    )  # fmt: skip


def batch(asked: Sequence[Asked], _options: Fields, _execution: Execution) -> tuple[Measurement, ...]:
    """Measure several quantities of one checkpoint."""
    return walk(asked[0].views[0], [(one.verifier.quantity, one.verifier.reading) for one in asked])


def extent(views: Views, _options: Fields) -> int:
    """Count the tensors."""
    return len(views[0].names())
