"""new_quantity: the zero bytes of every tensor of one checkpoint. Knows no bound.

A whole instrument, to be replaced: it is handed each tensor in steps, in one walk with all others that read bytes, and
it lays a canary that it must see.
"""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.core.model import Fields, Measurement, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import NewQuantity
from weighbridge.verifiers import tensor_walk
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, two_of
from weighbridge.views.checkpoint import CheckpointView, Tensor

QUANTITY = "new_quantity"
ENOUGH = 2 * tensor_walk.STEP + 256  # elements that take more than one step


@dataclass(slots=True)
class Zeros:
    """What is known of one tensor so far."""

    tensor: Tensor
    count: int = 0
    reads: bool = True

    def take(self, chunk: memoryview) -> None:
        """Count the next bytes."""
        self.count += bytes(chunk).count(0)

    def row(self) -> NewQuantity:
        """Return what was counted."""
        return NewQuantity(name=self.tensor.name, zero_bytes=self.count)


def begin(_view: object) -> type[Zeros]:
    """Begin a checkpoint."""
    return Zeros


def measure(views: Views, _options: Fields) -> Measurement:
    """Walk over every tensor once.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    (found,) = tensor_walk.walk(views[0], [(QUANTITY, begin)])
    return found


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Lay zeros over the last of two tensors, and a one over its last byte."""
    view: CheckpointView = views[0]
    kept = two_of([name for name in view.names() if view.tensor(name).nbytes], lambda name: view.tensor(name).nbytes)
    if not kept:
        return NoCanary("no tensor has a byte")
    cut, last = view.cut(kept, ENOUGH), kept[-1]
    zeros = cut.tensor(last).nbytes - 1
    placed = cut.overlaid(last, 0, bytes(zeros) + b"\x01")
    after = rows_of(measure((placed,), options), NewQuantity)

    def seen(again: Measurement | Unmeasured) -> bool:
        return after[-1].zero_bytes == zeros and rows_of(again, NewQuantity) == after

    return Canary(name="zeros, and a one at the end", place=last, views=(placed,), seen=seen)


VERIFIER = Verifier(
    quantity=QUANTITY,
    kinds=(SubjectKind.CHECKPOINT,),
    measure=measure,
    extent=tensor_walk.extent,
    canary=canary,
    batch=tensor_walk.batch,
    reading=begin,
)
