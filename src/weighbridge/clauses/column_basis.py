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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weighbridge.model import Fields

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


def basis_of(row: Fields) -> Found:
    """Name the basis of a column from its row of `step_columns`."""
    if row["min"] == row["max"]:
        return Found(ColumnBasis.CONSTANT if _number(row["finite"]) > 1 else ColumnBasis.UNTESTED)
    relation = next(_relations(row), None)
    if relation is not None:
        return Found(ColumnBasis.DERIVED, str(relation["kind"]), str(relation["partner"]))
    if _number(row["finite"]) < NOISE_SAMPLES:
        return Found(ColumnBasis.UNTESTED)
    return Found(ColumnBasis.NOISE if is_noise(row) else ColumnBasis.MEASURED)


def is_noise(row: Fields) -> bool:
    """Tell whether a column is flat over its range, without memory and related to nothing."""
    return (
        _number(row["lag1_root_n"]) <= MAX_MEMORY
        and _number(row["uniform_ks_root_n"]) <= MAX_UNEVENNESS
        and _number(row["rank_correlation_root_n"]) <= MAX_RELATION
        and abs(_number(row["range_over_std"]) - UNIFORM_RANGE) <= RANGE_MARGIN
    )


def _relations(row: Fields) -> Iterator[Fields]:
    """Give each relation that holds and in which this column, not the other, is the derived one."""
    relations = row["relations"]
    assert isinstance(relations, (list, tuple))
    for relation in relations:
        assert isinstance(relation, Mapping)
        if _holds(relation, row) and _comes_first(str(relation["partner"]), str(row["column"]), relation):
            yield relation


def _holds(relation: Fields, row: Fields) -> bool:
    over, deviation = _number(relation["over"]), _number(relation["deviation"])
    return (
        over >= RELATED_SAMPLES
        and over >= MIN_SHARE * _number(row["finite"])
        and deviation <= MAX_DEVIATION
        and deviation * MIN_CONTRAST <= _number(row["relative_spread"])
    )


def _comes_first(partner: str, column: str, relation: Fields) -> bool:
    if _rank(partner) != _rank(column):
        return _rank(partner) < _rank(column)
    return bool(relation["earlier"])


def _rank(name: str) -> int:
    if name in PRIMARY:
        return PRIMARY.index(name)
    return len(PRIMARY) + ("_per_" in name)


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return value


# --- What trials lay over a row: each statistic at its limit, each relation that does not count short by one clause ---

OTHER, OTHER_RATE = "other", "other_per_other"  # columns of the two last ranks


def as_constant(row: Fields) -> Fields:
    """Give the row of a column that held one value throughout."""
    return {**row, "finite": max(int(_number(row["finite"])), 2), "max": row["min"]}


def as_noise(row: Fields) -> Fields:
    """Give the row of the least obvious noise, with relations that are too loose, too short, or the other way round."""
    full: Fields = {"kind": "linear", "partner": "step", "deviation": 0.0, "over": NOISE_SAMPLES, "earlier": True}
    loose: Fields = {**full, "deviation": math.nextafter(MAX_DEVIATION, 1.0)}
    short: Fields = {**full, "over": math.ceil(MIN_SHARE * NOISE_SAMPLES) - 1}
    backwards = ({**full, **partner} for partner in _partners_after(str(row["column"])))
    return {**_noise(row), "relative_spread": 1.0, "relations": [loose, short, *backwards]}


def as_faint_noise(row: Fields) -> Fields:
    """Give the row of noise that hardly moves, less than a relation that happens to be close would need to tell."""
    spread = MAX_DEVIATION * MIN_CONTRAST / 2
    relation: Fields = {
        "kind": "linear",
        "partner": "step",
        "deviation": math.nextafter(MAX_DEVIATION / 2, 1.0),
        "over": NOISE_SAMPLES,
        "earlier": True,
    }
    return {**_noise(row), "relative_spread": spread, "relations": [relation]}


def as_derived(row: Fields) -> Fields:
    """Give the row of a column that just follows from the last one before it, between two that it does not follow."""
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, _partner_before(str(row["column"])))


def as_derived_with_holes(row: Fields) -> Fields:
    """Give the row of a column whose relation was measured over the least share of its samples."""
    return _derived(row, 10 * RELATED_SAMPLES, round(MIN_SHARE * 10 * RELATED_SAMPLES), {"partner": "step"})


def as_twin(row: Fields) -> Fields | None:
    """Give the row of a column that follows from an earlier one of its rank, or None where there is no such rank."""
    column = str(row["column"])
    if column in PRIMARY:
        return None
    partner: Fields = {"partner": OTHER_RATE if "_per_" in column else OTHER, "earlier": True}
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner)


def _noise(row: Fields) -> Fields:
    return {
        **_spread(row),
        "finite": NOISE_SAMPLES,
        "lag1_root_n": MAX_MEMORY,
        "uniform_ks_root_n": MAX_UNEVENNESS,
        "rank_correlation_root_n": MAX_RELATION,
        "range_over_std": UNIFORM_RANGE + RANGE_MARGIN * (1 - 1e-12),
    }


def _derived(row: Fields, finite: int, over: int, partner: Fields) -> Fields:
    relation: Fields = {"kind": "linear", "deviation": MAX_DEVIATION, "over": over, "earlier": False, **partner}
    loose: Fields = {**relation, "deviation": 1.0}
    spread = MAX_DEVIATION * MIN_CONTRAST
    return {**_spread(row), "finite": finite, "relations": [loose, relation, loose], "relative_spread": spread}


def _partner_before(column: str) -> Fields:
    if column in PRIMARY:
        return {"partner": PRIMARY[max(PRIMARY.index(column) - 1, 0)], "earlier": column == PRIMARY[0]}
    return {"partner": OTHER if "_per_" in column else PRIMARY[-1]}


def _partners_after(column: str) -> tuple[Fields, ...]:
    if column in PRIMARY:
        return ({"partner": (*PRIMARY, OTHER)[PRIMARY.index(column) + 1]},)
    same: Fields = {"partner": OTHER_RATE if "_per_" in column else OTHER, "earlier": False}
    return (same,) if "_per_" in column else (same, {"partner": OTHER_RATE})


def _spread(row: Fields) -> Fields:
    return {**row, "min": 1.0, "max": 2.0}
