"""Walk over the tensors of one checkpoint, once for all quantities that are read off their bytes."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, dataclass, replace
from weighbridge.scheduling.threads import Execution
from weighbridge.verifiers import verifier
from weighbridge.verifiers.verifier import Canary, MeasurementJob, NoCanary, Verifier, Views, rows_by_name, table
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
    """Read every tensor once, and return each quantity's table; refuse with `subject-changed` what is written to."""
    begun = [begin(view) for _, begin in quantities]
    rows: list[list[Any]] = [[] for _ in quantities]
    for name in view.weights():
        tensor = view.tensor(name)
        readings = [begin(tensor) for begin in begun]
        taking = [reading for reading in readings if reading.reads]
        for chunk in view.chunks(name, STEP * tensor.unit[1]) if taking else ():
            for reading in taking:
                reading.take(chunk)
        for found, reading in zip(rows, readings, strict=True):
            found.append(reading.row())
    return tuple(table(quantity, found) for (quantity, _), found in zip(quantities, rows, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What a canary does to the last of a few tensors: `lay` returns the view overlaid, and what its row must have."""

    name: str
    fits: Callable[[Tensor], bool]  # whether a tensor can be damaged
    without: str  # that none can
    lay: Callable[[CheckpointView, Tensor], tuple[CheckpointView, Mapping[str, Any]]]


def instrument(quantity: str, begin: Begin, damage: Damage) -> Verifier:
    """Return the verifier of one quantity that is read off the bytes."""

    def measure(views: Views, _options: Fields) -> Measurement:
        (found,) = walk(views[0], [(quantity, begin)])
        return found

    def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
        weights, reading = [views[0].tensor(name) for name in views[0].weights()], begin(views[0])
        cut = views[0].cut([one.name for one in weights if damage.fits(one) and reading(one).reads], ENOUGH)
        names = cut.names()
        two = verifier.two_of(names, lambda name: cut.tensor(name).elements)
        if not two:
            return NoCanary(damage.without)
        last = two[-1]
        # Rather one of the very size of the last.
        alike = (name for name in names[: names.index(last)] if is_alike(cut.tensor(name), cut.tensor(last)))
        cut = cut.cut((next(alike, two[0]), last))
        damaged, wanted = damage.lay(cut, cut.tensor(last))
        after = measure((damaged,), options)

        def near(found: Any, wanted: Any) -> bool:
            numbers = isinstance(found, float) and isinstance(wanted, (int, float))
            return math.isclose(found, wanted, rel_tol=1e-6) if numbers else bool(found == wanted)

        def seen(found: Measurement | Unmeasured) -> bool:
            row = rows_by_name(found).get(last)
            return found == after and all(near(getattr(row, name), value) for name, value in wanted.items())

        return Canary(name=damage.name, place=last, views=(damaged,), seen=seen)

    one = Verifier(quantity=quantity, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary)
    return replace(one, batch=batch, reading=begin)


def is_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same dtype and size."""
    return (one.dtype, one.nbytes) == (other.dtype, other.nbytes)


def batch(asked: Sequence[MeasurementJob], _options: Fields, _execution: Execution) -> tuple[Measurement, ...]:
    """Measure several quantities of one checkpoint."""
    return walk(asked[0].views[0], [(one.verifier.quantity, one.verifier.reading) for one in asked])


def extent(views: Views, _options: Fields) -> int:
    """Count the model's tensors."""
    return len(views[0].weights())
