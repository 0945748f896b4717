"""Read packed weights back: which codes a packing stores, where their scales are, and which code is nearest to a value.

A value is `code * scale + offset`, in float32, as the libraries compute it; rows are read as they are needed. Where a
packer may choose other codes than the nearest on purpose, their distance from the values is measured, too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from weighbridge.comparison.casts import decode, dequantise, encode, words
from weighbridge.formats.tensor import Tensor
from weighbridge.views.checkpoint import CheckpointView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Bytes = NDArray[np.uint8]
    from weighbridge.comparison.casts import Words

FEW = 16  # points; of more, the nearest is found by their encoding
LARGEST_F8 = 448.0
SLACK, NESTED_SLACK = 2.0**-7, 2.0**-5  # of a value: packers divide in BF16, and round the scale that they store
WORD = 32  # bits
BITE = 1 << 16  # elements whose arrays stay in a cache

Band: TypeAlias = tuple[int, int] | None  # the first column and the one after the last; None for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Whole numbers that are stored `bits` each: the lowest bits of a word first, or in `order`.

    The codes of a word lie side by side in a row of `columns`, or `down` a column. A row takes `row_bytes`.
    """

    tensor: Tensor
    bits: int
    columns: int
    row_bytes: int
    order: tuple[int, ...] = ()
    down: bool = False

    def rows(self, stored: CheckpointView, start: int, stop: int, band: Band = None) -> Bytes:
        """Return some rows, `[rows, columns]`; of a band of columns alone, which begins and ends with a word."""
        import numpy as np

        high = WORD // self.bits if self.down else 1
        first, last = start // high, -(-stop // high)
        data = stored.read(self.tensor.name, first * self.row_bytes, last * self.row_bytes)
        held, columns = np.frombuffer(data, np.uint8), self.columns
        if band is not None:
            size = WORD if self.down else self.bits
            held = held.reshape(last - first, -1)[:, band[0] * size // 8 : band[1] * size // 8].reshape(-1)
            columns = band[1] - band[0]
        held = held ^ np.uint8(0x80 if self.tensor.dtype == "I8" else 0)
        found = self._unpacked(held) if self.bits < 8 else held
        if not self.down:
            return found.reshape(last - first, -1)[:, :columns]
        words = found.reshape(last - first, columns, high)
        return words.transpose(0, 2, 1).reshape(-1, columns)[start - first * high :][: stop - start]

    def _unpacked(self, held: Bytes) -> Bytes:
        import numpy as np

        per = 8 // self.bits
        found = np.empty((len(held), per), np.uint8)
        for at in range(per):
            np.bitwise_and(held >> (at * self.bits), (1 << self.bits) - 1, out=found[:, at])
        if not self.order:
            return found
        turned = np.empty((found.size // len(self.order), len(self.order)), np.uint8)
        turned[:, self.order] = found.reshape(turned.shape)
        return turned


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Scales that are codes themselves: a value for each byte, times a scale for `wide` of them, plus an offset."""

    points: Tensor
    scales: Tensor
    wide: int
    offset: float

    def values(self, stored: CheckpointView, codes: Bytes, start: int) -> Floats:
        """Return the values of some codes, the first of them at `start`."""
        import numpy as np

        points, scales = (floats(stored.read(one.name, 0, one.nbytes), "F32") for one in (self.points, self.scales))
        of_codes = scales[np.arange(start, start + codes.size) // self.wide]
        return points[codes.reshape(-1)] * of_codes + np.float32(self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one packed weight is read: `shape`, its codes, what they stand for, and the tensors of scales.

    A scale is of `high` rows by `wide` columns, or of those that `rows_of` or `columns_of` number. `points` are what
    the codes stand for; without them they are numbers from `least` to `most`. `zeros` are codes whose value is 0, less
    `early`. Where it is `turned`, the unpacked weight has the last two dimensions exchanged. `chosen` says that the
    packer may choose other codes than the nearest, `widened` that values are computed in F32 whatever their scales are.
    """

    shape: tuple[int, ...]
    codes: Codes
    scales: Tensor
    high: int
    wide: int
    points: tuple[float, ...] = ()
    least: int = 0
    most: int = 0
    reach: tuple[float, float]
    offsets: Tensor | None = None
    zeros: Codes | None = None
    early: int = 0
    factor: float = 1.0
    nested: Nested | None = None
    slack: float = SLACK
    rows_of: NDArray[np.int32] | None = None
    columns_of: NDArray[np.int32] | None = None
    turned: bool = False
    chosen: bool = False
    widened: bool = False

    @property
    def dtype(self) -> str:
        """Return the dtype that its values are computed in: MLX rounds to that of its scales after each step."""
        return self.scales.dtype if self.offsets is not None and not self.widened else "F32"

    def row(
        self, stored: CheckpointView, start: int, stop: int, band: Band = None
    ) -> tuple[Bytes, Floats, Floats | None]:
        """Return the codes, scales and offsets of some rows, `[rows, columns]` each; `band` is of small columns."""
        import numpy as np

        codes = self.codes.rows(stored, start, stop, band)
        within = slice(None) if band is None else slice(*band)
        scales = self._spread(
            lambda first, last: self._floats(stored, self.scales, first, last)[:, within], start, stop
        )
        if self.zeros is not None:
            zeros = self._spread(partial(self.zeros.rows, stored, band=band), start, stop)
            return codes, scales, -(zeros.astype(np.float32) + np.float32(self.early)) * scales
        offsets = self.offsets
        return (
            codes,
            scales,
            None if offsets is None else self._spread(partial(self._floats, stored, offsets), start, stop),
        )

    def values(self, codes: Bytes, scales: Floats, offsets: Floats | None) -> Floats:
        """Return the values of some codes."""
        found: Floats = _values(self.points, self.least)[codes]
        found *= scales
        if offsets is not None:
            found += offsets
        return found

    def gaps(self) -> Floats:
        """Return for each code half the distance to the next one, in units of its scale."""
        return _half_gaps(self.points)

    def nearest(self, values: Floats) -> Floats:
        """Return the code that is nearest to each value, in units of its scale."""
        import numpy as np

        if not self.points:
            return np.clip(np.rint(values), self.least, self.most)
        if len(self.points) > FEW:
            return _values(self.points, 0)[encode(np.clip(values, -LARGEST_F8, LARGEST_F8), "F8_E4M3")]
        points = np.array(sorted(self.points), np.float32)
        return points[np.searchsorted((points[1:] + points[:-1]) / 2, values)]

    def _floats(self, stored: CheckpointView, tensor: Tensor, first: int, last: int) -> Floats:
        """Return what stands in some rows of a tensor of scales or offsets."""
        import numpy as np

        many = tensor.elements // -(-math.prod(self.shape) // (self.codes.columns * self.high))
        size = tensor.unit[1] * many
        data = stored.read(tensor.name, first * size, last * size)
        if self.nested is not None:
            found = self.nested.values(stored, np.frombuffer(data, np.uint8), first * many)
        else:
            found = floats(data, tensor.dtype)
        return (found * np.float32(self.factor)).reshape(-1, many)

    def _spread(self, read: Callable[[int, int], Any], start: int, stop: int) -> Any:
        """Return for each element of some rows what there is one of for each block."""
        import numpy as np

        if self.rows_of is not None:
            numbers, which = np.unique(self.rows_of[start:stop], return_inverse=True)
            rows = np.concatenate([read(number, number + 1) for number in numbers.tolist()])[which]
        else:
            first = start // self.high
            found = read(first, -(-stop // self.high))
            rows = np.repeat(found, self.high, axis=0) if self.high > 1 else found
            rows = rows[start - first * self.high :][: stop - start]
        if self.columns_of is not None:
            return rows[:, self.columns_of]
        return rows if self.wide == 1 else np.repeat(rows, self.wide, axis=1)[:, : self.codes.columns]


@functools.cache
def _values(points: tuple[float, ...], least: int) -> Floats:
    """Return the value of each code: looked up, those of F8 come three times as fast as converted."""
    import numpy as np

    return np.array(points, np.float32) if points else np.arange(least, least + 256, dtype=np.float32)


@functools.cache
def _half_gaps(points: tuple[float, ...]) -> Floats:
    import numpy as np

    if not points:
        return np.full(256, 0.5, np.float32)
    held = np.array(points, np.float32)
    there = np.unique(held[np.isfinite(held)])
    apart = np.abs(held[:, None] - there)
    found: Floats = np.where(apart == 0, np.inf, apart).min(axis=1) / 2
    return found


def floats(data: memoryview, dtype: str) -> Floats:
    """Return the values of scales; bytes are exponents."""
    import numpy as np

    if dtype == "U8":  # of MX scales, which older files store as plain bytes
        dtype = "F8_E8M0"
    return decode(words(data, dtype), dtype).astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How ggml's blocks are read: by the gguf package, whole ones."""

    tensor: Tensor
    dtype: str = "F32"
    turned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the values."""
        return self.tensor.shape

    def decoded(self, stored: CheckpointView, start: int, stop: int) -> Words:
        """Return the values of elements `start` to `stop`, as words."""
        import numpy as np

        per, size = self.tensor.unit
        first, last = start // per, -(-stop // per)
        data = np.frombuffer(stored.read(self.tensor.name, first * size, last * size), np.uint8)
        return dequantise(data, self.tensor.dtype).view(np.uint32)[start - first * per :][: stop - start]


def decoded(rule: Rule | Blocks, stored: CheckpointView, start: int, stop: int) -> Words:
    """Return the values of elements `start` to `stop`, row by row, in the dtype that they are computed in."""
    if isinstance(rule, Blocks):
        return rule.decoded(stored, start, stop)
    first, last, inside = _rows(rule, start, stop)
    return _computed(rule, *rule.row(stored, first, last)).reshape(-1)[inside]


def decoded_columns(rule: Rule, stored: CheckpointView, band: tuple[int, int]) -> Words:
    """Return the values of some columns of a matrix, one column after the other."""
    import numpy as np

    per = WORD // rule.codes.bits  # of which a word may hold so many
    first, last = band[0] // per * per, -(-band[1] // per) * per
    values = _computed(rule, *rule.row(stored, 0, rule.shape[0], (first, last)))
    return np.ascontiguousarray(values[:, band[0] - first : band[1] - first].T).reshape(-1)


def _computed(rule: Rule, codes: Bytes, scales: Floats, offsets: Floats | None) -> Words:
    """Return the words of values, rounded after each step where they are computed in less than F32."""
    import numpy as np

    if rule.dtype == "F32" or offsets is None:
        return rule.values(codes, scales, offsets).view(np.uint32)
    product = encode(rule.values(codes, scales, None), rule.dtype)
    return encode(decode(product, rule.dtype).astype(np.float32, copy=False) + offsets, rule.dtype)


@dataclass(slots=True)
class Held:
    """What adds up over codes held against values: those that are nearest, squares of errors, in steps too, and values.

    A code that nobody looked at is not nearest, nor is that of a value beyond the codes' range or not finite.
    """

    rule: Rule
    stored: CheckpointView
    at: int = 0
    nearest: int = 0
    steps: float = 0.0
    errors: float = 0.0
    squares: float = 0.0

    def add(self, values: Floats) -> None:
        """Hold the next codes against these values."""
        for start in range(0, len(values), BITE):
            self._add(values[start : start + BITE])

    @property
    def not_nearest(self) -> int:
        """Return how many codes are not the nearest to their values."""
        return math.prod(self.rule.shape) - self.nearest

    @property
    def relative_rmse(self) -> float | None:
        """Return the root of the squared errors over that of the squared values; None where it is not finite."""
        if self.errors == 0:
            return 0.0
        share = self.errors / self.squares if self.squares else math.inf
        return math.sqrt(share) if math.isfinite(share) else None

    @property
    def error_in_steps(self) -> float | None:
        """Return the root mean square distance of codes that may be chosen, in steps of their scales."""
        share = self.steps / max(math.prod(self.rule.shape), 1)
        return math.sqrt(share) if self.rule.chosen and math.isfinite(share) else None

    def _add(self, values: Floats) -> None:
        """Look closer at the codes alone that are farther off than half of what is between theirs and the next."""
        import numpy as np

        rule = self.rule
        first, last, inside = _rows(rule, self.at, self.at + len(values))
        codes, scales, offsets = rule.row(self.stored, first, last)
        codes, scales = codes.reshape(-1)[inside], scales.reshape(-1)[inside]
        offsets = None if offsets is None else offsets.reshape(-1)[inside]
        with np.errstate(all="ignore"):
            found = rule.values(codes, scales, offsets)
            error = np.abs(values - found)
            sure = error < rule.gaps()[codes] * np.abs(scales)
            doubt = np.flatnonzero(~sure)
            near = self._near(values[doubt], found[doubt], scales[doubt], None if offsets is None else offsets[doubt])
            self.errors += _sum_of_squares(error)
            self.squares += _sum_of_squares(values)
            self.steps += _sum_of_squares(error / scales) if rule.chosen else 0.0
        self.at += len(values)
        self.nearest += len(values) - len(doubt) + int(np.count_nonzero(near))

    def _near(self, values: Floats, found: Floats, scales: Floats, offsets: Floats | None) -> NDArray[np.bool_]:
        """Mark the codes that are as near as the nearest one, but for roundings."""
        import numpy as np

        added = np.float32(0) if offsets is None else offsets
        least, most = self.rule.reach
        units = (values - added) / scales
        best = np.abs(values - (self.rule.nearest(units) * scales + added))
        near: NDArray[np.bool_] = np.abs(values - found) <= best + self.rule.slack * (np.abs(values) + np.abs(added))
        near &= (units >= least) & (units <= most)
        near |= values == found
        return near


def _sum_of_squares(values: Floats) -> float:
    import numpy as np

    wide = values.astype(np.float64)
    return float(np.einsum("i,i->", wide, wide))


def _rows(rule: Rule, start: int, stop: int) -> tuple[int, int, slice]:
    columns = rule.codes.columns
    first = start // columns
    return first, -(-stop // columns), slice(start - first * columns, stop - first * columns)
