"""What a figure is: a named number of measured values, and what a message says beside it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from weighbridge.core import EMPTY, Fields, dataclass

Push: TypeAlias = Callable[..., float | None]  # of a step, its sample and their reference: a figure so far
DEVIATION = 1.4826  # of a normal law: standard deviations in one median absolute deviation


class FigureValue(NamedTuple):
    """The value of a figure, and what a message says of it."""

    value: float
    more: Fields = EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of one or more inputs: columns of a run, columns of two runs, a record, the rows of a table."""

    name: str
    unit: str
    formula: str
    source: str
    compute: Callable[..., FigureValue]  # of the inputs in their order, and the limits of the gate for its options
    samples: Callable[[Any, Any], int]  # of a series that it stands on
    running: Callable[[Any], Push] | None = None  # the same sample by sample, where no later sample mends it
    each: Callable[[Any], Push] | None = None  # what one sample comes to, where the figure is the most of all

    def __call__(self, *inputs: Any) -> FigureValue:
        """Return the figure of these inputs and limits."""
        return self.compute(*inputs)


def figure(
    formula: str, *, unit: str = "", source: str = "", running: Callable[[Any], Push] | None = None,
    each: Callable[[Any], Push] | None = None, most: Callable[[float, float], float] = max,
    samples: Callable[[Any, Any], int] = lambda series, _limits: len(series.value),
) -> Callable[[Callable[..., FigureValue]], Figure]:  # fmt: skip
    """Return the decorator that makes a function a figure of its name."""

    def named(compute: Callable[..., FigureValue]) -> Figure:
        so_far = running or (most_of(each, most) if each else None)
        more: Any = {"unit": unit, "formula": formula, "source": source, "samples": samples, "each": each}
        return Figure(running=so_far, name=compute.__name__.replace("_", " "), compute=compute, **more)

    return named


def most_of(each: Callable[[Any], Push], most: Callable[[float, float], float] = max) -> Callable[[Any], Push]:
    """Return the running form of the most of what `each` says of a sample, or of another fold of it."""

    def begin(limits: Any) -> Push:
        push, found = each(limits), list[float]()

        def so_far(*sample: Any) -> float | None:
            if (one := push(*sample)) is not None:
                found[:] = [most(found[0], one)] if found else [one]
            return found[0] if found else None

        return so_far

    return begin


def ratio(value: float, reference: float) -> float:
    """Return a value as a multiple of its reference; of zero it is infinite, where it is none itself."""
    if reference:
        return value / reference
    return math.copysign(math.inf, value) if value else 1.0


def middle(ordered: Sequence[float]) -> float:
    """Return the median of values in order of size: the mean of the two middle ones."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def deviations(count: float, ordered: Sequence[float]) -> float:
    """Return so many robust standard deviations of values in order of size."""
    median = middle(ordered)
    return count * DEVIATION * middle(sorted(abs(value - median) for value in ordered))
