"""Measure how codes that a packer chose fit their values: group by group, and output channel by output channel.

The error of rounding is at right angles to the values, or to what the codes stand for, where each stands for the mean
of its values, or between the two. So least squares of decoded on meant values have no slope beyond 1, nor has the
reverse, whatever the bits, the distribution, the clipping and the feedback of errors: a slope beyond it is of a scale
that is too large, or too small. Its standard error is a correlation's, 1/√n of n codes. The second slope is of codes
between the ends, since values are cut off there; a choice by the codes leaves it as it is.
"""

import math
from typing import Any

from weighbridge.core import Floats, NDArray, dataclass, field, np
from weighbridge.packing.unpacking import SLACK, Rule, Tile

LOOK = 3  # standard errors that a scale is too small by, ends among its codes, from which on they are left out
SURE, OPPOSITE, UNLIKE = 8, 6, 5  # standard errors: of a scale that is off, of its sign, of an output channel
MOVED = 1  # steps along the values; rounding moves even values that are all one by half a step at most
LIKE = 0.5  # of the correlation that most channels have
ALMOST = 1 - 1e-6  # of a correlation, for one of 1 has no finite figure


@dataclass(slots=True)
class ScaleFit:
    """What adds up over groups, each of the codes of one scale, and over output channels."""

    rule: Rule
    order: "NDArray[np.intp] | None" = field(init=False)  # of columns, by groups that do not lie side by side
    first: "NDArray[np.intp]" = field(init=False)  # of each group's, in that order
    sizes: "NDArray[np.intp]" = field(init=False)
    many: Floats = field(init=False)  # the same, in the type of sums
    even: bool = field(init=False)  # groups of as many columns each
    numbers: "NDArray[np.intp] | None" = field(init=False)  # of the groups that there are, where some may not be
    sums: Floats = field(init=False)
    waiting: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    off: int = 0  # groups whose scale is surely not that of their values
    beyond: list[Floats] = field(default_factory=list)  # of each group: how far a slope is beyond 1, in standard errors
    factors: list[Floats] = field(default_factory=list)  # of each group: by what its scale is too large
    alike: list[Floats] = field(default_factory=list)  # of each channel: correlation of what codes are and should be

    def __post_init__(self) -> None:
        """Order the columns by their groups."""
        columns, numbers = self.rule.codes.columns, self.rule.columns_of
        groups = np.arange(columns) // self.rule.wide if numbers is None else numbers
        self.order = None if numbers is None else np.argsort(groups, kind="stable")
        self.first = np.flatnonzero(np.diff(groups if self.order is None else groups[self.order], prepend=-1))
        self.sizes = np.diff(self.first, append=columns)
        self.many = self.sizes.astype(np.float32)
        self.numbers = None if numbers is None else np.unique(numbers)
        self.even = bool((self.sizes == self.sizes[0]).all())

    def add(self, meant: Floats, error: Floats) -> None:
        """Add rows: what codes are meant to be, and how much more that is than what they are."""
        meant, error = self._grouped(meant), self._grouped(error)
        self.waiting.append((self._sums(meant, meant), self._sums(meant, error), self._sums(error, error)))

    def look(self, scales: Floats) -> "NDArray[np.bool_]":
        """Take up what was added; return the groups of which codes at an end may hide what their scale is."""
        self.sums = np.zeros((7, len(scales), len(self.sizes)), np.float32)
        for at, part in enumerate(zip(*self.waiting, strict=True)):
            np.concatenate(part, out=self.sums[at])
        self.waiting.clear()
        xx, xe, ee = self.sums[:3]
        np.negative(xe, out=xe)
        self.sums[3] = scales if self.numbers is None else scales[:, self.numbers]
        ye = xe + ee  # but for its sign
        found: NDArray[np.bool_] = (ye < 0) & (ye * ye * self.many > LOOK**2 * ee * (xx + xe + ye))
        return found

    def look_again(self, at: int, groups: "NDArray[np.bool_]", meant: Floats, tile: Tile) -> None:
        """Add up of these groups of some rows, the first of them at `at`, what is not of codes at an end."""
        rows, columns = np.nonzero(groups)
        points, there = self._grouped(tile.points), self._grouped(tile.values)
        inside = (points > self.rule.least) & (points < self.rule.most)
        held, part = there * inside, (self._grouped(meant) - there) * inside
        for to, both in enumerate(((held, held), (held, part), (part, part)), 4):
            self.sums[to, at + rows, columns] = self._sums(*both)[rows, columns]

    def taken_up(self) -> tuple[float, float, float]:
        """Keep what was looked at; return the sums of squares of values and errors, and of these in steps."""
        xx, xe, ee, scales, yy, ye, ff = self.sums
        both, squares = xx + xe, scales * scales
        decoded = both + xe + ee
        beyond, along = (xe - SLACK * xx) / np.sqrt(xx * ee), xe * xe / xx
        factors = np.fmax(both / xx, 1)
        if (small := yy > 0).any():  # looked at again
            beyond = np.where(small, (ye - SLACK * yy) / np.sqrt(yy * ff), beyond)
            along = np.where(small, ye * ye / yy, along)
            factors = np.where(small, yy / (yy + np.fmax(ye, 0)), factors)
        off = (along > MOVED * squares * self.many) & (beyond > self._surely(SURE))
        off |= -both > self._surely(OPPOSITE) * np.sqrt(xx * decoded)
        live = (xx > 0) & (decoded > 0)
        self.off += int(np.count_nonzero(off & live))
        self.beyond.append(np.fmax(beyond, 0)[live])
        self.factors.append(factors[live])
        rows = xx.sum(1), both.sum(1), decoded.sum(1)
        self.alike.append(np.nan_to_num(rows[1] / np.sqrt(rows[0] * rows[2]))[(rows[0] > 0) | (rows[2] > 0)])
        steps = (ee / squares).sum(dtype=np.float64)
        return float(xx.sum(dtype=np.float64)), float(ee.sum(dtype=np.float64)), float(steps)

    def figures(self) -> dict[str, Any]:
        """Return what was found, by the columns of a pair."""
        beyond, factors, alike = (
            np.concatenate([np.zeros(0, np.float32), *one]) for one in (self.beyond, self.factors, self.alike)
        )
        spread, factor, like = (float(np.median(one)) if one.size else math.nan for one in (beyond, factors, alike))
        away = np.arctanh(LIKE * like) - np.arctanh(np.clip(alike, -ALMOST, ALMOST))
        sure = away * math.sqrt(max(self.rule.codes.columns - 3, 0)) > UNLIKE
        errors = math.atanh(min(spread, ALMOST)) * math.sqrt(max(float(np.median(self.sizes)) - 3, 0))
        return {
            "groups": beyond.size,
            "groups_off": self.off,
            "group_spread": errors if math.isfinite(errors) else None,
            "scale_factor": factor if math.isfinite(factor) else None,
            "channels_unlike": int(np.count_nonzero(sure)),
        }

    def _ordered(self, values: Floats) -> Floats:
        return values if self.order is None else values.take(self.order, axis=1)

    def _grouped(self, values: Floats) -> Floats:
        """Return rows with each group's columns side by side, of a dimension of their own where groups are alike."""
        shape = (len(self.sizes), self.sizes[0]) if self.even else (self.rule.codes.columns,)
        return self._ordered(values.reshape(len(values), -1)).reshape(-1, *shape)

    def _surely(self, errors: float) -> Floats:
        """Return for each group the correlation so many standard errors above 0, by Fisher's transformation."""
        found: Floats = np.tanh(errors / np.sqrt(np.maximum(self.many - 3, 1e-9)))
        return found

    def _sums(self, one: Floats, other: Floats) -> Floats:
        """Add up products over the codes of each group, `[rows, groups]`."""
        found: Floats
        if not self.even:
            found = np.add.reduceat(one * other, self.first, axis=1)
        elif hasattr(np, "vecdot"):  # NumPy 2
            found = np.vecdot(one, other)
        else:
            found = np.einsum("...w,...w->...", one, other)
        return found
