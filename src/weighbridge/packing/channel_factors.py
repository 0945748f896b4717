"""Find the factors by which AWQ scales channels, from what is stored alone, and compare them with what undoes them.

AWQ multiplies the columns of a weight, and divides what they are fed by: a norm, or the rows (and bias) of the weight
before. Quantising to few bits leaves such factors to be fitted by least squares, with an error that is known.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import decode, words
from weighbridge.core import Doubles, dataclass, field, np
from weighbridge.formats.tensor import numpy_dtype
from weighbridge.mapping.mapping_plan import Plan
from weighbridge.packing.unpacked_view import UnpackedView, as_stored, packed_weight, row_stretches
from weighbridge.packing.unpacking import Rule, Tile, band
from weighbridge.views.checkpoint import CheckpointView

KEPT = 64  # fits of weights that are kept, of which those of one layer use one another's
ROUNDS = 2  # of fitting columns and rows in turn; the second changes little
ROUNDING = 0.01  # of a factor, that norms in BF16 and clipped weights make
SURE, ALIKE, MOST = 5, 3, 0.9  # standard errors: of a factor that is off, and within which most of like factors lie


class Factors(NamedTuple):
    """A factor for each channel, and its standard error as a share of it; infinite where nothing tells."""

    values: Doubles
    error: Doubles

    def over(self, other: "Factors") -> "Factors":
        """Return how many times the other's they are, with the error of both."""
        return Factors(self.values / other.values, np.hypot(self.error, other.error))

    def times(self, factor: float) -> "Factors":
        """Return them with another factor in each."""
        return Factors(self.values * factor, self.error)

    def common(self) -> float | None:
        """Return the one factor that most of them are, but for their errors; None where there is none."""
        middle = float(np.median(self.values))
        near = np.abs(self.values / middle - 1) <= ALIKE * (self.error + ROUNDING)
        return middle if middle > 0 and near.mean() >= MOST else None

    def off(self) -> float:
        """Return by how much one of them is not 1, beyond errors."""
        beyond = np.abs(self.values - 1) - SURE * (self.error + ROUNDING)
        return max(float(np.nan_to_num(beyond, nan=math.inf).max()), 0.0)


def _ones(many: int) -> Factors:
    return Factors(np.ones(many), np.zeros(many))


@dataclass(frozen=True, slots=True)
class Channels:
    """The weights of a file whose packer scales channels, each with what stands before and behind it in its layer."""

    source: CheckpointView
    candidate: UnpackedView
    plan: Plan
    fits: dict[str, tuple[Factors, Factors]] = field(default_factory=dict)

    def fitted(self, name: str) -> tuple[Factors, Factors]:
        """Return the factors of a weight's rows and columns that fit best; one number may be in either of them."""
        if (found := self.fits.get(name)) is None:
            rows, columns = map(_ones, self.candidate.tensor(name).shape)
            for _ in range(ROUNDS):
                columns = _fitted(self._sums(name, 0, rows, columns))
                rows = _fitted(self._sums(name, 1, rows, columns))
            if len(self.fits) >= KEPT:
                self.fits.clear()
            found = self.fits[name] = rows, columns
        return found

    def off(self, name: str) -> float | None:
        """Return by how much a tensor's factors are off those that undo them; None where nothing like them is found."""
        if packed_weight(self.candidate, name) is None:
            return self._off_of_vector(name)
        found = None if self._aligned(name) is None else self._parted(name)
        if found is None:
            return None
        rows, columns = found
        beside = [*self._weights(name.split(".")[:-2], name)]
        wide = len(columns.values)
        before = (_inverse(Factors(*(one[-wide:] for one in other))) for other, _ in self._parts(beside))
        behind = (_padded(_inverse(other), len(rows.values)) for _, other in self._parts(beside))
        off = _least_off(columns, itertools.chain(self._norms(name), before))
        other = _least_off(rows, behind)
        return None if off is None or other is None else max(off, other)

    def _off_of_vector(self, name: str) -> float | None:
        """Return the same of a norm or bias, which what it feeds undoes, or which is scaled as the rows beside it."""
        if (changed := self._ratio(name, 0)) is None:
            return None
        own = name.rpartition(".")[0] + ".weight"
        beside = [own] if self._aligned(own) is not None else []
        found = []
        for one in (changed, self._ratio(name, 1)):
            rows = (rows for rows, _ in self._parts(beside))
            fed = (_inverse(columns) for _, columns in self._parts(self._weights(_layer(name), name)))
            found.append(None if one is None else _least_off(one, itertools.chain(rows, fed)))
        return min((one for one in found if one is not None), default=None)

    def _parts(self, names: Iterable[str]) -> Iterator[tuple[Factors, Factors]]:
        return (found for found in map(self._parted, names) if found is not None)

    def _parted(self, name: str) -> tuple[Factors, Factors] | None:
        """Return them with the shared number where it belongs; None where neither rows nor columns are like others."""
        rows, columns = self.fitted(name)
        if (alone := rows.common()) is not None:
            return rows.times(1 / alone), columns.times(alone)
        shared = (columns.over(one).common() for one in (_ones(len(columns.values)), *self._norms(name)))
        factor = next((one for one in shared if one is not None), None)
        return None if factor is None else (rows.times(factor), columns.times(1 / factor))

    def _norms(self, name: str) -> Iterator[Factors]:
        """Return by what the norms of a weight's layer were divided, stored as they are or less one."""
        width, layer = self.candidate.tensor(name).shape[-1], _layer(name)
        for other in self.plan.pairings:
            if _layer(other) == layer and self.candidate.tensor(other).shape == (width,):
                yield from (_inverse(one) for one in (self._ratio(other, 0), self._ratio(other, 1)) if one is not None)

    def _weights(self, under: list[str], name: str) -> Iterator[str]:
        """Return the packed weights under a name's beginning that are read, but one."""
        for other in self.candidate.packed:
            if other.split(".")[: len(under)] == under and other != name and self._aligned(other) is not None:
                yield other

    def _ratio(self, name: str, more: int) -> Factors | None:
        """Return how many times its source's each value of a vector is, both with so much more."""
        pairing, new = self.plan.pairings[name], self.candidate.tensor(name)
        sides = (self.source, self.source.tensor(pairing.parts[0].source)), (self.candidate, new)
        if len(new.shape) != 1 or any(one.shape != new.shape or not numpy_dtype(one.dtype) for _, one in sides):
            return None
        old, now = (decode(words(view.read(one.name, 0, one.nbytes), one.dtype), one.dtype) for view, one in sides)
        with np.errstate(all="ignore"):
            found = np.where(old == now, 1.0, (now.astype(np.float64) + more) / (old.astype(np.float64) + more))
        return Factors(found, np.where((old == 0) & (now == 0), np.inf, 0.0))

    def _aligned(self, name: str) -> AlignedTensor | None:
        """Return a packed weight beside what it is made of, where both are matrices that can be read."""
        weight, pairing = self.candidate.packed.get(name), self.plan.pairings.get(name)
        if weight is None or not isinstance(weight.rule, Rule) or pairing is None:
            return None
        aligned = AlignedTensor(self.source, self.candidate, as_stored(pairing, weight))
        fits = aligned.pairing.shape == aligned.new.shape and len(aligned.new.shape) == 2
        return aligned if fits and numpy_dtype(aligned.dtype) is not None else None

    def _sums(self, name: str, axis: int, rows: Factors, columns: Factors) -> Doubles:
        """Add up along rows or columns what least squares of the other's factors need."""
        aligned, rule = self._aligned(name), self.candidate.packed[name].rule
        assert aligned is not None
        assert isinstance(rule, Rule)
        found, at = np.zeros((5, aligned.new.shape[1 - axis])), 0
        for stretch in row_stretches(aligned, rule):
            read = band(rule, self.candidate.stored, at, at + len(stretch))
            for start, stop in read.cuts():
                meant = decode(stretch[start - at : stop - at], aligned.dtype).astype("f4", copy=False)
                scaled = meant * (columns.values if axis else rows.values[start:stop, None]).astype("f4")
                tile = read.tile(start, stop)
                part = found[:, start:stop] if axis else found
                part += _products(scaled, tile, rule.least, rule.most, axis)
            at += len(stretch)
        return found


def _products(meant: Doubles, tile: Tile, least: int, most: int, axis: int) -> Doubles:
    """Return sums of products of what codes are meant to be and are, but of those at an end: they may be clipped."""
    inside = ((tile.points > least) & (tile.points < most)).reshape(meant.shape)
    x, y = meant * inside, tile.values.reshape(meant.shape) * inside
    xx, xy = x * x, x * y
    return np.stack([one.sum(axis, dtype=np.float64) for one in (xy, xx, xy * xy, xx * xy, xx * xx)])


def _fitted(sums: Doubles) -> Factors:
    """Return the factors of least squares, with errors for values of any spread."""
    xy, xx, xyxy, xxxy, xxxx = sums
    with np.errstate(all="ignore"):
        values = xy / xx
        error = np.sqrt(np.maximum(xyxy - 2 * values * xxxy + values**2 * xxxx, 0)) / np.abs(xy)
    known = np.isfinite(values) & np.isfinite(error) & (values > 0)
    return Factors(np.where(known, values, 1.0), np.where(known, error, np.inf))


def _layer(name: str) -> list[str]:
    """Return the parts of a name as far as its first number; all but the last where it has none."""
    parts = name.split(".")
    return parts[: next((at + 1 for at, part in enumerate(parts) if part.isdigit()), len(parts) - 1)]


def _inverse(factors: Factors) -> Factors:
    with np.errstate(all="ignore"):
        return Factors(1 / factors.values, factors.error)


def _padded(factors: Factors, many: int) -> Factors:
    """Return the factors of the last rows, before which others scale nothing."""
    more = max(many - len(factors.values), 0)
    return Factors(*(np.concatenate([first, rest]) for first, rest in zip(_ones(more), factors, strict=True)))


def _least_off(factors: Factors, others: Iterable[Factors]) -> float | None:
    """Return by how much factors are off those that they resemble most, of which all being one is always a choice."""
    least, many = None, len(factors.values)
    for other in itertools.chain([_ones(many)], others):
        ratio = factors.over(other) if len(other.values) == many else None
        if ratio is not None and ratio.common() is not None:
            least = ratio.off() if least is None else min(least, ratio.off())
        if least == 0:
            break
    return least
