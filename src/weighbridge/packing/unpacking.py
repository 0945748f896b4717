"""Read packed weights back: which codes a packing stores, where their scales are, and which code is nearest to a value.

A value is `(code - zero) * scale + offset`, in float32, as the libraries compute it; rows are read as they are needed,
and computed in tiles that stay in a cache.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weighbridge.comparison.casts import decode, dequantise, encode, words
from weighbridge.core import Bytes, Floats, NDArray, Words, dataclass, np
from weighbridge.formats.tensor import Tensor
from weighbridge.views.checkpoint import CheckpointView

FEW = 16  # points; of more, the nearest is found by their encoding
LARGEST_F8 = 448.0
SLACK, NESTED_SLACK = 2.0**-7, 2.0**-5  # of a value: packers divide in BF16, and round the scale that they store
WORD = 32  # bits
BITE = 1 << 15  # elements of a tile


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Whole numbers that are stored `bits` each: the lowest bits of a word first, or in `order`."""

    tensor: Tensor
    bits: int
    columns: int
    row_bytes: int = 0
    order: tuple[int, ...] = ()
    down: bool = False  # the codes of a word lie in a column, not side by side in a row
    turned: bool = False  # a row of words is a column of the tensor

    @property
    def high(self) -> int:
        """Return how many rows a row of words holds."""
        return WORD // self.bits if self.down else 1

    def read(self, stored: CheckpointView, start: int, stop: int) -> NDArray[Any]:
        """Return what is stored of some rows: bytes, or words; from the first of a word's rows on."""
        first, last = start // self.high, -(-stop // self.high)
        if self.turned:
            whole = np.frombuffer(stored.read(self.tensor.name, 0, self.tensor.nbytes), "<u4")
            return np.ascontiguousarray(whole.reshape(self.tensor.shape)[:, first:last].T)
        data = stored.read(self.tensor.name, first * self.row_bytes, last * self.row_bytes)
        return np.frombuffer(data, "<u4" if self.down else np.uint8).reshape(last - first, -1)

    def values(self, read: NDArray[Any], start: int, stop: int, points: tuple[float, ...], least: int) -> Floats:
        """Return what some rows of what was read stand for: `points`, or numbers from `least` on."""
        if self.down:
            part = read[start // self.high : -(-stop // self.high)]
            shifts = np.argsort(self.order or range(self.high)).astype(np.uint32) * np.uint32(self.bits)
            numbers = part[:, None] >> shifts[:, None]
            numbers &= np.uint32((1 << self.bits) - 1)
            rows = numbers.reshape(-1, self.columns)[start % self.high :][: stop - start]
            counted: Floats = np.add(rows.view(np.int32), np.float32(least), dtype=np.float32)
            return counted
        data = read[start:stop].reshape(-1).view(np.uint8)
        if self.bits == 8 and not points:
            signed = self.tensor.dtype == "I8"
            numbers = data.view(np.int8 if signed else np.uint8)
            found: Floats = np.add(numbers, np.float32(least + 128 * signed), dtype=np.float32)
        else:
            # A look-up gives the points of all codes of a byte, or of two bytes.
            points = points or tuple(range(least, least + (1 << self.bits)))
            even = data if self.bits < 8 or data.size % 2 == 0 else np.append(data, np.uint8(0))
            at = even if self.bits < 8 else even.view("<u2")
            each = _table(self.bits, self.order, points).take(at, mode="clip").view(np.float32)
            found = each[: data.size * 8 // self.bits]
        return found.reshape(stop - start, -1)[:, : self.columns]

    def numbers(self, stored: CheckpointView, rows: int) -> list[memoryview]:
        """Return all numbers of so many rows, as F32."""
        return [self.values(self.read(stored, 0, rows), 0, rows, (), 0).data.cast("B")]


@functools.cache
def _table(bits: int, order: tuple[int, ...], points: tuple[float, ...]) -> NDArray[Any]:
    """Return for each byte of codes, or two of eight bits, what they stand for, as one number of NumPy's."""
    each = np.arange(256, dtype=np.uint8) if bits < 8 else np.arange(1 << 16, dtype="<u2").view(np.uint8)
    codes = each[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & ((1 << bits) - 1)
    if order:
        codes = codes.reshape(-1, len(order))[:, np.argsort(order)]
    found: NDArray[Any] = np.array(points, np.float32)[codes].reshape(-1)
    return found.view(np.complex128 if bits == 2 else np.complex64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Scales that are codes themselves: a value for each byte, times a scale for `wide` of them, plus an offset."""

    points: Tensor
    scales: Tensor
    wide: int
    offset: float

    def values(self, stored: CheckpointView, codes: Bytes, start: int) -> Floats:
        """Return the values of some codes, the first of them at `start`."""
        points, scales = (floats(stored.read(one.name, 0, one.nbytes), "F32") for one in (self.points, self.scales))
        of_codes = scales[np.arange(start, start + codes.size) // self.wide]
        return points[codes.reshape(-1)] * of_codes + np.float32(self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one packed weight is read: its shape, its codes, what they stand for, and the tensors of scales."""

    shape: tuple[int, ...]
    codes: Codes
    scales: Tensor
    high: int  # rows of one scale
    wide: int  # columns of one scale, but for `columns_of`
    points: tuple[float, ...] = ()  # what the codes stand for; without them numbers from `least` to `most`
    least: int = 0
    most: int = 0
    reach: tuple[float, float]
    offsets: Tensor | None = None
    zeros: Codes | None = None  # the codes whose value is 0, less `early`
    early: int = 0
    factor: float = 1.0
    nested: Nested | None = None
    slack: float = SLACK
    columns_of: NDArray[np.int32] | None = None  # the number of each column's scale
    turned: bool = False  # the unpacked weight has the last two dimensions exchanged
    chosen: bool = False  # the packer may choose other codes than the nearest
    widened: bool = False  # values are computed in F32 whatever their scales are

    @property
    def dtype(self) -> str:
        """Return the dtype that its values are computed in: MLX rounds to that of its scales after each step."""
        return self.scales.dtype if self.offsets is not None and not self.widened else "F32"

    def nearest(self, values: Floats) -> Floats:
        """Return the code that is nearest to each value, in units of its scale."""
        if not self.points:
            return np.clip(np.rint(values), self.least, self.most)
        if len(self.points) > FEW:
            return np.array(self.points, np.float32)[encode(np.clip(values, -LARGEST_F8, LARGEST_F8), "F8_E4M3")]
        points = np.array(sorted(self.points), np.float32)
        return points[np.searchsorted((points[1:] + points[:-1]) / 2, values)]

    def of_blocks(self, stored: CheckpointView, tensor: Tensor, start: int, stop: int) -> Floats:
        """Return what a tensor of scales or offsets has for the blocks of some rows, `[rows of blocks, blocks]`."""
        first, last = start // self.high, -(-stop // self.high)
        if self.codes.turned:
            whole = words(stored.read(tensor.name, 0, tensor.nbytes), tensor.dtype).reshape(tensor.shape)
            return decode(np.ascontiguousarray(whole[:, first:last].T), tensor.dtype).astype("f4", copy=False)
        many = tensor.elements // -(-math.prod(self.shape) // (self.codes.columns * self.high))
        size = tensor.unit[1] * many
        data = stored.read(tensor.name, first * size, last * size)
        if self.nested is not None:
            found = self.nested.values(stored, np.frombuffer(data, np.uint8), first * many)
        else:
            found = floats(data, tensor.dtype)
        return (found * np.float32(self.factor)).reshape(-1, many)

    def decoded(self, stored: CheckpointView, start: int, stop: int) -> Words:
        """Return the values of elements `start` to `stop`, as words of the dtype that they are computed in."""
        columns = self.codes.columns
        first, last = start // columns, -(-stop // columns)
        kind = np.uint32 if self.dtype == "F32" else np.uint16
        found, read = np.empty((last - first, columns), kind), band(self, stored, first, last)
        with np.errstate(all="ignore"):
            for at, behind in read.cuts():
                tile = read.tile(at, behind)
                if self.dtype == "F32" or tile.added is None:
                    part: Words = tile.values.view("u4")
                else:  # rounded after each step
                    product = decode(encode(tile.points * tile.scales, self.dtype), self.dtype)
                    part = encode(product.astype("f4", copy=False) + tile.added, self.dtype)
                found[at - first : behind - first] = part.reshape(-1, columns)
        return found.reshape(-1)[start - first * columns : stop - first * columns]


class Tile(NamedTuple):
    """Some rows: their points and values, by blocks where these lie in rows, and what goes with a value or a block."""

    points: Floats
    values: Floats
    scales: Floats
    added: Floats | None
    ends: Sequence[Floats]  # from where to where each point is the nearest, where this was asked of few points


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Rows of a packed weight, from `start` to `stop`, as they are stored."""

    rule: Rule
    start: int
    stop: int
    codes: NDArray[Any]
    scales: Floats
    zeros: Floats | None
    offsets: Floats | None

    def cuts(self) -> Iterator[tuple[int, int]]:
        """Yield the first row of each tile and the one behind it; none reaches beyond the rows of one scale."""
        high, at = self.rule.high, self.start
        while at < self.stop:
            stop = min(self.stop, at + max(BITE // self.rule.codes.columns, 1))
            stop = stop if high == 1 else min(stop, (at // high + 1) * high)
            yield at, stop
            at = stop

    def tile(self, start: int, stop: int, *, ends: bool = False) -> Tile:
        """Return the values of some rows; with `ends`, from where to where each of few points is the nearest."""
        rule, inside = self.rule, self.start // self.rule.codes.high * self.rule.codes.high
        part = self.codes, start - inside, stop - inside
        scales = self._spread(self.scales, start, stop)
        zeros, offsets = (None if one is None else self._spread(one, start, stop) for one in (self.zeros, self.offsets))
        shape = (stop - start, -1, rule.wide) if scales.ndim == 3 else (stop - start, rule.codes.columns)
        points = rule.codes.values(*part, rule.points, rule.least).reshape(shape)
        values = (points if zeros is None else points - zeros) * scales
        if offsets is not None:
            values += offsets
        middles = _ends(rule.points) if ends and 0 < len(rule.points) <= FEW else ()
        far = [rule.codes.values(*part, one, 0).reshape(shape) for one in middles]
        return Tile(points, values, scales, offsets if zeros is None else -zeros * scales, far)

    def _spread(self, found: Floats, start: int, stop: int) -> Floats:
        """Return for some rows what there is one of for each block, so that it is broadcast over their elements."""
        rule = self.rule
        first = self.start // rule.high
        rows = found[start // rule.high - first : -(-stop // rule.high) - first]
        if rule.columns_of is not None:
            return rows.take(rule.columns_of, axis=1)
        if rule.high == 1 and rule.codes.columns % rule.wide == 0:
            return rows[:, :, None]
        return rows.repeat(rule.wide, axis=1)[:, : rule.codes.columns]


def band(rule: Rule, stored: CheckpointView, start: int, stop: int) -> Band:
    """Read what is stored of some rows."""
    codes, scales = rule.codes.read(stored, start, stop), rule.of_blocks(stored, rule.scales, start, stop)
    zeros = None
    if rule.zeros is not None:
        inside = start % rule.zeros.high
        zeros = rule.zeros.values(rule.zeros.read(stored, start, stop), inside, inside + stop - start, (), 0)
        zeros += rule.early
    offsets = None if rule.offsets is None else rule.of_blocks(stored, rule.offsets, start, stop)
    return Band(rule=rule, start=start, stop=stop, codes=codes, scales=scales, zeros=zeros, offsets=offsets)


@functools.cache
def _ends(points: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return for each of the points the middle between it and the one below, and the one above."""
    each = np.array(points, np.float32)
    there = np.unique(each)
    middles = np.concatenate([there[:1], (there[1:] + there[:-1]) / 2, there[-1:]])
    at = np.searchsorted(there, each)
    return tuple(middles[at].tolist()), tuple(middles[at + 1].tolist())


def floats(data: memoryview, dtype: str) -> Floats:
    """Return the values of scales; bytes are exponents."""
    if dtype == "U8":  # of MX scales, which older files store as plain bytes
        dtype = "F8_E8M0"
    return decode(words(data, dtype), dtype).astype("f4", copy=False)


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
        per, size = self.tensor.unit
        first, last = start // per, -(-stop // per)
        data = np.frombuffer(stored.read(self.tensor.name, first * size, last * size), np.uint8)
        return dequantise(data, self.tensor.dtype).view(np.uint32)[start - first * per :][: stop - start]
