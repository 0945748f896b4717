"""tensor_moments: mean, spread and extremes of each tensor of one checkpoint, over its finite elements, in float64."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from weighbridge.comparison.casts import decode, words
from weighbridge.core import Values, dataclass, field, np
from weighbridge.formats.tensor import INTEGERS, numpy_dtype
from weighbridge.packing.unpacked_view import packed_alone
from weighbridge.packing.unpacking import WORD, Rule
from weighbridge.quantities.tensors import STATISTICS, TensorMoments
from weighbridge.verifiers.tensor_walk import STEP, Damage, instrument
from weighbridge.views.checkpoint import CheckpointView, Tensor

Unpacked: TypeAlias = tuple[tuple[int, ...], Callable[[], Iterable[memoryview]], str]  # shape, all values, their dtype
DIGITS = 9  # that are kept; what lies behind depends on the order of summing


@dataclass(slots=True)
class Moments:
    """What is known of the finite values so far; merged by Chan, Golub and LeVeque (1979), so that digits are kept."""

    tensor: Tensor
    codes: Mapping[str, Unpacked | None] = field(default_factory=dict)
    count: int = 0
    zeros: int = 0
    mean: float = 0.0
    squares: float = 0.0  # of the deviations from the mean
    least: float = math.inf
    most: float = -math.inf

    @property
    def reads(self) -> bool:
        """Return whether the dtype has single values; codes have those that they stand for."""
        return numpy_dtype(self.tensor.dtype) is not None and self.tensor.name not in self.codes

    def take(self, chunk: memoryview, dtype: str = "") -> None:
        """Merge the next bytes."""
        dtype = dtype or self.tensor.dtype
        self.merge(decode(words(chunk, dtype), dtype))

    def merge(self, found: Values) -> None:
        """Merge the next values."""
        with np.errstate(all="ignore"):
            finite = np.isfinite(found)
            values = (found if finite.all() else found[finite]).astype(np.float64)
            count = len(values)
            if not count:
                return
            mean = float(values.mean())
            total, apart = self.count + count, mean - self.mean
            self.squares += float(np.square(values - mean).sum()) + apart**2 * self.count * count / total
        self.mean += apart * count / total
        self.count = total
        self.zeros += count - int(np.count_nonzero(values))
        self.least, self.most = min(self.least, float(values.min())), max(self.most, float(values.max()))

    def statistics(self) -> dict[str, float | None]:
        """Return the statistics: None where no element is finite."""
        if not self.count:
            return dict.fromkeys(STATISTICS, None)
        variance, zero_share = self.squares / self.count, self.zeros / self.count
        found = {"mean": self.mean, "std": math.sqrt(variance), "min": self.least, "max": self.most}
        found |= {"absmax": max(abs(self.least), abs(self.most)), "rms": math.sqrt(variance + self.mean**2)}
        return {name: float(f"{value:.{DIGITS}g}") for name, value in (found | {"zero_share": zero_share}).items()}

    def row(self) -> TensorMoments:
        """Describe the tensor."""
        one, unpacked = self.tensor, self.codes.get(self.tensor.name)
        shape, chunks, dtype = unpacked or (one.shape, tuple, "")
        for chunk in chunks():
            self.take(chunk, dtype)
        row: dict[str, Any] = {"name": one.name, "dtype": one.dtype, "shape": shape, "elements": math.prod(shape)}
        return TensorMoments(finite=self.count if self.reads or unpacked else None, **row | self.statistics())


def _begin(view: CheckpointView) -> Callable[[Tensor], Moments]:
    """Read plain tensors as they are, and codes as what they stand for; those that no rule reads have no values."""
    (whole, packed), codes = packed_alone(view), dict[str, Unpacked | None]()
    for name, weight in packed.items():
        one, rule = whole.tensor(name), weight.rule
        chunks = functools.partial(whole.chunks, name, STEP * one.unit[1])
        if rule is None:  # nor are zero points and numbers of groups any weights
            codes |= {stored: None for stored in weight.stored if view.tensor(stored).dtype in INTEGERS}
        codes[weight.codes.name] = (one.shape, chunks, one.dtype) if rule else None
        if isinstance(rule, Rule) and (zeros := rule.zeros) is not None:
            shape = zeros.tensor.elements * WORD // zeros.bits // zeros.columns, zeros.columns
            codes[zeros.tensor.name] = shape, functools.partial(zeros.numbers, view, shape[0]), "F32"
    return functools.partial(Moments, codes=codes)


def _damaged(cut: CheckpointView, tensor: Tensor) -> tuple[CheckpointView, dict[str, Any]]:
    """Write zeros, and at the end the greatest bits that are a number; reckon their statistics."""
    size, share = tensor.unit[1], 1 / tensor.elements
    # A positive number in every dtype that has single values, neither so small nor so large that its square is lost.
    word = (0x3FF0000000000000 if tensor.dtype == "F64" else 1 << 8 * size - 3).to_bytes(size, "little")
    value = float(decode(words(memoryview(word), tensor.dtype), tensor.dtype)[0])
    wanted = {"finite": tensor.elements, "mean": value * share, "std": value * math.sqrt(share * (1 - share))}
    wanted |= {"min": 0.0 if tensor.elements > 1 else value, "max": value, "absmax": value}
    wanted |= {"rms": value * math.sqrt(share), "zero_share": 1 - share}
    return cut.overlaid(tensor.name, 0, bytes(tensor.nbytes - size) + word), wanted


DAMAGE = Damage(
    name="zeros, and one number at the end",
    # E8M0 has no zero.
    fits=lambda one: one.elements > 0 and numpy_dtype(one.dtype) is not None and one.dtype != "F8_E8M0",
    without="no tensor has single values",
    lay=_damaged,
)
VERIFIER = instrument("tensor_moments", _begin, DAMAGE)
