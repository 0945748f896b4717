"""tensor_moments: mean, spread and extremes of each tensor of one checkpoint, over its finite elements.

One row a tensor, in one walk, in float64; merged step by step, so that a mean of a billion elements keeps its digits.
What a dtype has no single values for (blocks, packed bits, booleans, complex) is null. Knows no bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weighbridge.comparison.casts import decode, numpy_dtype, words
from weighbridge.model import Basis, Fields, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorMoments
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.checkpoint import CheckpointView, Tensor

if TYPE_CHECKING:
    from weighbridge.comparison.casts import Values

QUANTITY = "tensor_moments"
STEP = 1 << 17  # elements read at once
STATISTICS = ("mean", "std", "min", "max", "absmax", "rms", "zero_share")
DIGITS = 9  # that are told; what lies behind depends on the order of summing


def measure(views: Views, _options: Fields) -> Measurement:
    """Walk over every tensor once.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    view: CheckpointView = views[0]
    rows = tuple(row(view, name) for name in view.names())
    return Measurement(
        quantity=QUANTITY,
        value=Rows("name", rows),
        by="weighbridge.verifiers.tensor_moments/1",
        basis=dict.fromkeys(STATISTICS, Basis.MEASURED),
        examined=len(rows),
        total=len(rows),
    )


def row(view: CheckpointView, name: str) -> TensorMoments:
    """Return the statistics of one tensor: None where no element is finite."""
    tensor = view.tensor(name)
    finite: int | None = None
    statistics: Mapping[str, float | None] = dict.fromkeys(STATISTICS)
    if numpy_dtype(tensor.dtype) is not None:
        moments = Moments()
        for chunk in view.chunks(name, STEP * tensor.unit[1]):
            moments.take(decode(words(chunk, tensor.dtype), tensor.dtype))
        finite, statistics = moments.count, moments.told()
    return TensorMoments(
        name=name, dtype=tensor.dtype, shape=tensor.shape, elements=tensor.elements, finite=finite, **statistics
    )


@dataclass(slots=True)
class Moments:
    """What is known of the finite values so far; steps are merged by the formula of Chan, Golub and LeVeque (1979)."""

    count: int = 0
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0  # of the deviations from the mean
    least: float = math.inf
    most: float = -math.inf

    def take(self, found: Values) -> None:
        """Merge the next values."""
        import numpy as np

        with np.errstate(all="ignore"):
            finite = np.isfinite(found)
            values = (found if finite.all() else found[finite]).astype(np.float64)
            if len(values):
                self._merge(values)

    def _merge(self, values: Values) -> None:
        import numpy as np

        count = len(values)
        mean = float(values.mean())
        total, apart = self.count + count, mean - self.mean
        self.squares += float(np.square(values - mean).sum()) + apart**2 * self.count * count / total
        self.mean += apart * count / total
        self.count = total
        self.zeros += count - int(np.count_nonzero(values))
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))

    def told(self) -> Mapping[str, float | None]:
        """Return the statistics by name."""
        if not self.count:
            return dict.fromkeys(STATISTICS)
        variance = self.squares / self.count
        values = (
            self.mean, math.sqrt(variance), self.least, self.most, max(abs(self.least), abs(self.most)),
            math.sqrt(variance + self.mean**2), self.zeros / self.count,
        )  # fmt: skip
        return {name: float(f"{value:.{DIGITS}g}") for name, value in zip(STATISTICS, values, strict=True)}


def extent(views: Views, _options: Fields) -> int:
    """Count the tensors."""
    return len(views[0].names())


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Overlay the last of two tensors with zeros, and its last element with the greatest bits that are a number."""
    view: CheckpointView = views[0]
    names = [name for name in view.names() if _usable(view.tensor(name))]
    if not names:
        return NoCanary("no tensor has single values")
    last = max(reversed(names[1:] or names), key=lambda name: min(view.tensor(name).elements, STEP + 256))
    earlier = sorted(names[: names.index(last)], key=lambda name: view.tensor(name).elements)[:1]
    cut = view.cut((*earlier, last), STEP + 256)
    tensor = cut.tensor(last)
    size = tensor.unit[1]
    # A positive number in every dtype that has single values, neither so small nor so large that its square is lost.
    word = 0x3FF0000000000000 if tensor.dtype == "F64" else 1 << 8 * size - 3
    one = word.to_bytes(size, "little")
    damaged = cut.overlaid(last, 0, bytes(tensor.nbytes - size) + one)
    value = float(decode(words(memoryview(one), tensor.dtype), tensor.dtype)[0])
    expected = _expected(value, tensor.elements)

    after = measure((damaged,), options).value

    def seen(found: Measurement | Unmeasured) -> bool:
        assert isinstance(found, Measurement)
        row = next((row for row in rows_of(found, TensorMoments) if row.name == last), None)
        as_laid = row is not None and all(
            math.isclose(getattr(row, name), wanted, rel_tol=1e-6) for name, wanted in expected.items()
        )
        return as_laid and found.value == after

    return Canary(name="zeros, and one number at the end", place=last, views=(damaged,), seen=seen)


def _usable(tensor: Tensor) -> bool:
    # E8M0 has no zero to lay down.
    return bool(tensor.elements) and numpy_dtype(tensor.dtype) is not None and tensor.dtype != "F8_E8M0"


def _expected(value: float, elements: int) -> dict[str, float]:
    """Reckon the statistics of zeros and one value."""
    share = 1 / elements
    return {
        "finite": elements,
        "mean": value * share,
        "std": value * math.sqrt(share * (1 - share)),
        "min": 0.0 if elements > 1 else value,
        "max": value,
        "absmax": value,
        "rms": value * math.sqrt(share),
        "zero_share": 1 - share,
    }


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary)
