"""Count the codes of a packed weight that are not the nearest to their values, and measure how far they are off."""

import math
from typing import Any

from weighbridge.comparison.casts import decode
from weighbridge.core import Doubles, Floats, NDArray, Words, dataclass, np
from weighbridge.packing.scale_fit import ScaleFit
from weighbridge.packing.unpacking import Band, Rule, Tile, band
from weighbridge.views.checkpoint import CheckpointView

FOUR_BITS = 2.0**20 + 1  # Veltkamp's factor: a float32 less its product's rest has the four bits of an F8_E4M3
SUBNORMAL = 1.5 * 2.0**14  # added and taken away, it leaves a float32 in steps of 2⁻⁹, as F8_E4M3's least numbers are
MANY = 1 / 64  # of a tile's codes: of so many in doubt, subnormal ones are looked for
NORMAL = 1e-30  # of a sum of squares: a smaller one may have lost some


@dataclass(slots=True)
class CodeErrors:
    """What adds up over codes and their values: those that are nearest, squares of errors, in steps too, and values."""

    rule: Rule
    stored: CheckpointView
    factors: tuple[Doubles, Doubles] | None = None  # of rows and of columns, times the values
    at: int = 0
    nearest: int = 0  # no code that nobody looked at, nor that of a value beyond the codes' range or not finite
    steps: float = 0.0
    errors: float = 0.0
    squares: float = 0.0
    fit: ScaleFit | None = None  # of codes that may be chosen

    def __post_init__(self) -> None:
        """Look at how scales fit where codes tell too little."""
        self.fit = ScaleFit(self.rule) if self.rule.chosen else None

    def add(self, rows: Words, dtype: str) -> None:
        """Compare the next rows of codes with these values, which are stored as words."""
        read, doubts = band(self.rule, self.stored, self.at, self.at + len(rows)), []
        with np.errstate(all="ignore"):
            for start, stop in read.cuts():
                meant = self._meant(rows, dtype, start, stop)
                doubts.append(self._add(meant, read.tile(start, stop, ends=True)))
            columns = [np.concatenate(column) for column in zip(*doubts, strict=True)]
            self.nearest += int(np.count_nonzero(self._near(*columns))) if doubts else 0
            if self.fit is not None and doubts:
                self._fit(self.fit, read, rows, dtype)
        self.at += len(rows)

    def _fit(self, fit: ScaleFit, read: Band, rows: Words, dtype: str) -> None:
        """Take up how the scales of a band fit, and look again where codes at an end may hide it."""
        again = fit.look(read.scales)
        for start, stop in read.cuts() if again.any() else ():
            at = start - self.at
            if (groups := again[at : stop - self.at]).any():
                fit.look_again(at, groups, self._meant(rows, dtype, start, stop), read.tile(start, stop))
        squares, errors, steps = fit.taken_up()
        self.squares += squares
        self.errors += errors
        self.steps += steps

    def _meant(self, rows: Words, dtype: str, start: int, stop: int) -> Floats:
        """Return what the codes of some rows are meant to be."""
        meant = decode(rows[start - self.at : stop - self.at].reshape(-1), dtype)
        if self.factors is not None:
            meant = meant.reshape(stop - start, -1) * self.factors[0][start:stop, None] * self.factors[1]
        return meant.astype("f4", copy=False).reshape(stop - start, -1)

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

    @property
    def fitted(self) -> dict[str, Any]:
        """Return how the scales of codes that may be chosen fit, by the columns of a pair."""
        return {} if self.fit is None else self.fit.figures()

    def _add(self, values: Floats, tile: Tile) -> tuple[Floats, Floats, Floats, Floats]:
        """Add up; return of the codes in doubt what they are meant to be, what they are, and scale and offset."""
        meant = values.reshape(tile.values.shape)
        error = meant - tile.values
        sure = self._sure(meant, error, tile)
        at = np.unravel_index(np.flatnonzero(~sure), sure.shape)
        each = (np.float32(0) if one is None else one for one in (tile.scales, tile.added))
        scales, added = (np.broadcast_to(one, meant.shape)[at] for one in each)
        doubt = meant[at], tile.values[at], scales, added
        self.nearest += values.size - len(doubt[0])
        if self.fit is not None:  # which adds up by groups
            self.fit.add(values, error.reshape(values.shape))
            return doubt
        self.errors += _sum_of_squares(error)
        self.squares += _sum_of_squares(values)
        return doubt

    def _sure(self, meant: Floats, error: Floats, tile: Tile) -> "NDArray[np.bool_]":
        """Mark codes that are surely the nearest: less than half a step off, what their value rounds to, or between."""
        if not self.rule.points:
            return np.abs(error) < np.abs(tile.scales) * np.float32(0.5)
        units = meant * (1 / tile.scales)
        if tile.ends:
            return (units > tile.ends[0]) & (units < tile.ends[1])
        rest = units * np.float32(FOUR_BITS)
        rest += units - rest
        same: NDArray[np.bool_] = rest == tile.points
        if np.count_nonzero(same) < (1 - MANY) * same.size:
            units += np.float32(SUBNORMAL)
            units -= np.float32(SUBNORMAL)
            same |= units == tile.points
        return same

    def _near(self, values: Floats, found: Floats, scales: Floats, added: Floats) -> "NDArray[np.bool_]":
        """Mark the codes in doubt that are as near as the nearest one, but for roundings."""
        least, most = self.rule.reach
        units = (values - added) / scales
        best = abs(values - (self.rule.nearest(units) * scales + added))
        near: NDArray[np.bool_] = abs(values - found) <= best + self.rule.slack * (abs(values) + abs(added))
        near &= (units >= least) & (units <= most)
        near |= values == found
        return near


def _sum_of_squares(values: Floats) -> float:
    """Add up in float32; in float64 where that has lost some, or is beyond its range."""
    flat = values.reshape(-1)
    found = float(np.dot(flat, flat))
    if NORMAL < found < math.inf:
        return found
    wide = flat.astype(np.float64)
    return float(np.einsum("i,i->", wide, wide))
