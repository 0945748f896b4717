"""How a logged column came about, named from its statistics: constant, derived, indistinguishable from noise, measured.

Shared by every gate that reads a column, so that an invented one is invented everywhere. Pure: judges raw statistics of
`step_columns`, never the log.

Noise here is what `base + uniform(-w, w)` writes: flat over its range, without memory, related to no other column. All
four statistics must say so. Simulated on 3,000 columns of each sort, 100 samples: uniform noise is named in 96 to 98 of
100; a real-looking column is named by mistake in at most 2 of 1,000 (normal 0.0 %, log-normal 0.0 %, gamma(4) 0.1 %,
whole-millisecond jitter 0.0 %, skewed utilisation 0.0 %), and never in 600 from 200 samples on. From 64 samples it is
1 of 100, from 32 it is 1 of 6: below `NOISE_SAMPLES` noise is not claimed and the column is told as untested.
Noise of another shape (normal, say) cannot be told from a real gradient norm by its values alone.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.quantities.runs import Relation, StepColumn

NOISE_SAMPLES = 100
MAX_MEMORY = 3.3  # |lag-1 autocorrelation| × √n: 1 of 1,000 columns without memory lies beyond
MAX_UNEVENNESS = 1.6  # Kolmogorov–Smirnov distance to the uniform law × √n: 1 of 100 uniform columns lies beyond
MAX_RELATION = 4.0  # largest |rank correlation| × √n with any of up to a few dozen other columns
UNIFORM_RANGE = math.sqrt(12)  # range of a uniform law in standard deviations
RANGE_MARGIN = 0.35

RELATED_SAMPLES = 8
MAX_DEVIATION = 1e-3  # of a constant product or quotient: what three printed digits leave
MIN_CONTRAST = 20.0  # the column's own relative spread, in deviations of the relation
MIN_SHARE = 0.9  # of the samples over which a relation must have been measured

# What is set or counted comes before what is timed, and that before what the model gives; a rate comes last.
PRIMARY = ("step", "tokens", "lr", "corpus_position", "wall_ms", "loss", "grad_norm")


class ColumnBasis(enum.StrEnum):
    """How a column came about."""

    MEASURED = "measured"
    CONSTANT = "constant"
    DERIVED = "derived"
    NOISE = "noise"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Found:
    """A column's basis; for a derived one `how` (product, quotient, linear) and `partner`."""

    basis: ColumnBasis
    how: str = ""
    partner: str = ""


def basis_of(row: StepColumn) -> Found:
    """Return the basis of a column, from its row of `step_columns`."""
    if row.min == row.max:
        return Found(ColumnBasis.CONSTANT if row.finite > 1 else ColumnBasis.UNTESTED)
    for relation in row.relations:
        if _holds(relation, row) and _comes_first(relation, row.column):
            return Found(ColumnBasis.DERIVED, relation.kind, relation.partner)
    if row.finite < NOISE_SAMPLES:
        return Found(ColumnBasis.UNTESTED)
    return Found(ColumnBasis.NOISE if _is_noise(row) else ColumnBasis.MEASURED)


def _is_noise(row: StepColumn) -> bool:
    return (
        row.lag1_root_n <= MAX_MEMORY
        and row.uniform_ks_root_n <= MAX_UNEVENNESS
        and row.rank_correlation_root_n <= MAX_RELATION
        and abs(row.range_over_std - UNIFORM_RANGE) <= RANGE_MARGIN
    )


def _holds(relation: Relation, row: StepColumn) -> bool:
    return (
        relation.over >= RELATED_SAMPLES
        and relation.over >= MIN_SHARE * row.finite
        and relation.deviation <= MAX_DEVIATION
        and relation.deviation * MIN_CONTRAST <= row.relative_spread
    )


def _comes_first(relation: Relation, column: str) -> bool:
    """Return whether the other column of a relation, not this one, is what the derived one follows from."""
    other, own = _rank(relation.partner), _rank(column)
    return other < own if other != own else relation.earlier


def _rank(name: str) -> int:
    return PRIMARY.index(name) if name in PRIMARY else len(PRIMARY) + ("_per_" in name)


# --- What trials lay over a row: each statistic at its limit, each relation that does not count short by one clause ---

OTHER, OTHER_RATE = "other", "other_per_other"  # columns of the two last ranks
PERFECT = Relation(kind="linear", partner="step", earlier=True, over=NOISE_SAMPLES, deviation=0.0, constant=1.0)


def as_constant(row: StepColumn) -> StepColumn:
    """Return the row of a column that held one value throughout."""
    return replace(row, finite=max(row.finite, 2), max=row.min)


def as_noise(row: StepColumn) -> StepColumn:
    """Return the row of the least obvious noise; its relations are too loose, too short, or the other way round."""
    loose = replace(PERFECT, deviation=math.nextafter(MAX_DEVIATION, 1.0))
    short = replace(PERFECT, over=math.ceil(MIN_SHARE * NOISE_SAMPLES) - 1)
    same = replace(PERFECT, partner=_peer(row.column), earlier=False)
    if row.column in PRIMARY:
        backwards = [replace(PERFECT, partner=(*PRIMARY, OTHER)[PRIMARY.index(row.column) + 1])]
    else:
        backwards = [same] if "_per_" in row.column else [same, replace(PERFECT, partner=OTHER_RATE)]
    return _noise(row, relative_spread=1.0, relations=(loose, short, *backwards))


def as_faint_noise(row: StepColumn) -> StepColumn:
    """Return the row of noise that moves less than a relation that happens to be close would need to show."""
    close = replace(PERFECT, deviation=math.nextafter(MAX_DEVIATION / 2, 1.0))
    return _noise(row, relative_spread=MAX_DEVIATION * MIN_CONTRAST / 2, relations=(close,))


def as_derived(row: StepColumn) -> StepColumn:
    """Return the row of a column that just follows from the last one before it, between two that it does not follow."""
    if row.column in PRIMARY:
        at = PRIMARY.index(row.column)
        return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=PRIMARY[max(at - 1, 0)], earlier=at == 0)
    partner = OTHER if "_per_" in row.column else PRIMARY[-1]
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=partner, earlier=False)


def as_derived_with_holes(row: StepColumn) -> StepColumn:
    """Return the row of a column whose relation was measured over the least share of its samples."""
    samples = 10 * RELATED_SAMPLES
    return _derived(row, samples, round(MIN_SHARE * samples), partner="step", earlier=False)


def as_copy(row: StepColumn) -> StepColumn | None:
    """Return the row of a column that follows from an earlier one of its rank, or None where there is no such rank."""
    if row.column in PRIMARY:
        return None
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=_peer(row.column), earlier=True)


def _peer(column: str) -> str:
    return OTHER_RATE if "_per_" in column else OTHER


def _noise(row: StepColumn, **more: Any) -> StepColumn:
    return replace(
        row, min=1.0, max=2.0, finite=NOISE_SAMPLES, lag1_root_n=MAX_MEMORY, uniform_ks_root_n=MAX_UNEVENNESS,
        rank_correlation_root_n=MAX_RELATION, range_over_std=UNIFORM_RANGE + RANGE_MARGIN * (1 - 1e-12), **more,
    )  # fmt: skip


def _derived(row: StepColumn, finite: int, over: int, *, partner: str, earlier: bool) -> StepColumn:
    close = replace(PERFECT, partner=partner, earlier=earlier, over=over, deviation=MAX_DEVIATION)
    loose, spread = replace(close, deviation=1.0), MAX_DEVIATION * MIN_CONTRAST
    return replace(row, min=1.0, max=2.0, finite=finite, relative_spread=spread, relations=(loose, close, loose))
