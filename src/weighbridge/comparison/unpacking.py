"""Read packed weights back: which codes a packing stores, where their scales are, and which code is nearest to a value.

A value is `code * scale + offset`, in float32, as the libraries compute it; rows are read as they are needed. One row
of `RULES` a packing, from its published arithmetic. Where names, dtypes or shapes leave a doubt, there is no rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from weighbridge.comparison.casts import FLOATS, decode, encode, numpy_dtype, words
from weighbridge.comparison.packed_weights import PackedWeight
from weighbridge.formats.tensor import Tensor
from weighbridge.views.checkpoint import CheckpointView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # E2M1, the upper bit is the sign
LARGEST_F8 = 448.0
SLACK = 2.0**-7  # of a value: packers divide in BF16, and round the scale that they store
BITE = 1 << 16  # elements whose arrays stay in a cache
REACH = 4 / 3  # of the largest code: an MX scale is a power of two, and lets values up to 8 be stored as 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one packed weight is read: `shape`, the bits of a code, what codes stand for, and the tensors of scales.

    A scale is of `high` rows by `wide` columns. `bits` of 8 are read by the codes' own dtype. `kind` is F8, FP4 or INT,
    whose codes are from `least` to `most`. Where it is `turned`, the unpacked
    weight has the last two dimensions exchanged. `codes_alone` says that its values are no source for others: MLX
    computes them in the dtype of its scales, and a turned weight would not be read in stretches.
    """

    shape: tuple[int, ...]
    codes: Tensor
    scales: Tensor
    high: int
    wide: int
    kind: str
    bits: int = 8
    least: int = 0
    most: int = 0
    offsets: Tensor | None = None
    turned: bool = False
    codes_alone: bool = False

    def row(self, stored: CheckpointView, start: int, stop: int) -> tuple[Floats, Floats, Floats]:
        """Return the codes, scales and offsets of some rows, `[rows, columns]` each."""
        import numpy as np

        row_bytes = self.codes.nbytes // math.prod(self.shape[:-1])
        data = stored.read(self.codes.name, start * row_bytes, stop * row_bytes)
        codes = self._codes(data).reshape(stop - start, -1)
        scales = self._spread(stored, self.scales, start, stop)
        none = np.float32(-0.0)  # the one that leaves every value as it is, zeros of both signs among them
        offsets = none if self.offsets is None else self._spread(stored, self.offsets, start, stop)
        return codes, scales, np.broadcast_to(offsets, codes.shape)

    def nearest(self, values: Floats) -> Floats:
        """Return the code that is nearest to each value, in units of its scale."""
        import numpy as np

        if self.kind == "INT":
            return np.clip(np.rint(values), self.least, self.most)
        if self.kind == "F8":
            return _values_of_f8()[encode(np.clip(values, -LARGEST_F8, LARGEST_F8), "F8_E4M3")]
        points = np.array(FP4, np.float32)
        found = points[np.searchsorted((points[1:] + points[:-1]) / 2, np.abs(values))]
        return np.copysign(found, values)

    def reach(self) -> tuple[float, float]:
        """Return the least and the largest value, in units of its scale, that is not cut off."""
        if self.kind == "INT":
            beyond = 1 + 2 * SLACK * (self.most - self.least)
            return self.least - beyond, self.most + beyond
        most = LARGEST_F8 * (1 + 2 * SLACK) if self.kind == "F8" else FP4[-1] * REACH
        return -most, most

    def _codes(self, data: memoryview) -> Floats:
        import numpy as np

        held = np.frombuffer(data, np.uint8)
        if self.kind == "F8":
            return _values_of_f8()[held]
        per = 8 // self.bits
        found = np.empty((len(held), per), np.uint8)
        for at in range(per):
            found[:, at] = held >> (at * self.bits) & ((1 << self.bits) - 1)
        if self.kind == "FP4":
            return np.array((*FP4, *(-one for one in FP4)), np.float32)[found]
        return found.astype(np.float32) + np.float32(self.least)

    def _spread(self, stored: CheckpointView, tensor: Tensor, start: int, stop: int) -> Floats:
        """Return a value for each element of some rows, from a tensor that has one for each block."""
        import numpy as np

        many = -(-self.shape[-1] // self.wide)
        first, last = start // self.high, -(-stop // self.high)
        size = tensor.unit[1] * many
        data = stored.read(tensor.name, first * size, last * size)
        found = _floats(data, tensor.dtype).reshape(-1, many)
        rows = np.repeat(found, self.high, axis=0) if self.high > 1 else found
        rows = rows[start - first * self.high :][: stop - start]
        return np.repeat(rows, self.wide, axis=1)[:, : self.shape[-1]]


@functools.cache
def _values_of_f8() -> Floats:
    """Return the value of each byte: looked up, they come three times as fast as converted."""
    import numpy as np

    return decode(np.arange(256, dtype=np.uint8), "F8_E4M3")


def _floats(data: memoryview, dtype: str) -> Floats:
    import numpy as np

    if dtype == "U8":  # of MX scales, which older files store as plain bytes
        dtype = "F8_E8M0"
    return decode(words(data, dtype), dtype).astype(np.float32, copy=False)


def decoded(rule: Rule, stored: CheckpointView, start: int, stop: int) -> Floats:
    """Return the values of elements `start` to `stop`, row by row."""
    first, last, inside = _rows(rule, start, stop)
    codes, scales, offsets = rule.row(stored, first, last)
    return (codes * scales + offsets).reshape(-1)[inside]


@dataclass(slots=True)
class Held:
    """What adds up over codes that are held against values: those that are nearest, squared errors and values.

    A code that nobody looked at is not nearest, nor is that of a value beyond the codes' range or not finite.
    """

    rule: Rule
    stored: CheckpointView
    at: int = 0
    nearest: int = 0
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

    def _add(self, values: Floats) -> None:
        import numpy as np

        first, last, inside = _rows(self.rule, self.at, self.at + len(values))
        codes, scales, offsets = (one.reshape(-1)[inside] for one in self.rule.row(self.stored, first, last))
        least, most = self.rule.reach()
        with np.errstate(all="ignore"):
            units = (values - offsets) / scales
            found = codes * scales + offsets
            best = np.abs(values - (self.rule.nearest(units) * scales + offsets))
            error = np.abs(values - found)
            near = error <= best + SLACK * (np.abs(values) + np.abs(offsets))
            near &= (units >= least) & (units <= most)
            near |= values == found
            self.errors += float(np.square(error, dtype=np.float64).sum())
            self.squares += float(np.square(values, dtype=np.float64).sum())
        self.at += len(values)
        self.nearest += int(np.count_nonzero(near))


def _rows(rule: Rule, start: int, stop: int) -> tuple[int, int, slice]:
    columns = rule.shape[-1]
    first = start // columns
    return first, -(-stop // columns), slice(start - first * columns, stop - first * columns)


# --- Rules ------------------------------------------------------------------------------------------------------------


def rule_of(weight: PackedWeight, settings: Mapping[str, Any]) -> Rule | None:
    """Return how a packed weight is read, or None where that is not sure.

    Raises:
        ContradictionError: where codes and scales cannot belong together.
    """
    found = RULES.get(weight.packing.name if weight.packing else "")
    return found(weight, settings) if found is not None else None


class ContradictionError(ValueError):
    """Codes and scales of one weight cannot belong together."""


def _require(scales: Tensor, shape: tuple[int, ...], blocks: str) -> None:
    if scales.shape != shape:
        raise ContradictionError(f"{blocks} need scales of {list(shape)}, and there are {list(scales.shape)}")


def _scaled(weight: PackedWeight, settings: Mapping[str, Any]) -> Rule | None:
    """DeepSeek-V3's and transformers' fp8, fbgemm's, compressed-tensors' float-quantized: `weight * scale`."""
    codes = weight.codes
    scales = next(weight.members[end] for end in weight.members if "_scale" in end and "input" not in end)
    beside = {".weight_zero_point", ".weight_scale_2"} & weight.members.keys()
    if codes.dtype != "F8_E4M3" or beside or len(codes.shape) < 2 or not codes.elements or not _reads(scales):
        return None
    rows, columns = math.prod(codes.shape[:-1]), codes.shape[-1]
    high, wide = rows, columns
    if scales.elements == rows and scales.elements > 1:
        high = 1
    elif scales.elements > 1:
        block = settings.get("weight_block_size") or [128, 128]
        if not isinstance(block, list) or len(block) != 2 or not all(map(_is_size, block)):
            return None
        high, wide = block
        tiles = (-(-codes.shape[-2] // high), -(-columns // wide))
        _require(scales, (*codes.shape[:-2], *tiles), f"blocks of {high}x{wide}")
        if len(codes.shape) > 2 and codes.shape[-2] % high:
            return None
    return Rule(shape=codes.shape, codes=codes, scales=scales, high=high, wide=wide, kind="F8")


def _affine(weight: PackedWeight, settings: Mapping[str, Any]) -> Rule | None:
    """MLX's affine quantisation: `code * scale + bias`, codes in words from the lowest bits on."""
    codes, scales, biases = weight.codes, weight.members[".scales"], weight.members.get(".biases")
    bits, group = settings.get("bits"), settings.get("group_size")
    if bits not in (2, 4, 8) or not _is_size(group) or biases is None or not (_reads(scales) and codes.elements):
        return None
    if len(codes.shape) < 2:
        return None
    shape = (*codes.shape[:-1], codes.shape[-1] * 32 // bits)
    _require(scales, (*shape[:-1], shape[-1] // group), f"groups of {group}")
    _require(biases, scales.shape, f"groups of {group}")
    if not _reads(biases):
        return None
    return Rule(
        shape=shape, codes=codes, scales=scales, offsets=biases, high=1, wide=group, kind="INT", bits=bits,
        most=(1 << bits) - 1, codes_alone=True,
    )  # fmt: skip


def _mx(weight: PackedWeight, _settings: Mapping[str, Any]) -> Rule | None:
    """OCP's MXFP4 as gpt-oss stores it: sixteen bytes of two codes, the lower one first, and a power of two."""
    codes, scales = weight.codes, weight.members["_scales"]
    if not codes.elements or len(codes.shape) < 3 or codes.shape[-1] != 16:
        return None
    if scales.shape != codes.shape[:-1] or scales.dtype != "U8":
        return None
    shape = (*codes.shape[:-2], codes.shape[-2] * 32)
    return Rule(
        shape=shape, codes=codes, scales=scales, high=1, wide=32, kind="FP4", bits=4, turned=True, codes_alone=True
    )


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value > 0


def _reads(scales: Tensor) -> bool:
    return scales.dtype in (*FLOATS, "BF16", "F8_E8M0") and numpy_dtype(scales.dtype) is not None


RULES: Mapping[str, Callable[[PackedWeight, Mapping[str, Any]], Rule | None]] = {
    "fp8": _scaled, "scaled": _scaled, "mlx": _affine, "mxfp4": _mx
}  # fmt: skip
