"""A column's basis is named from its statistics, at their limits and not beyond them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.gates.runs import column

from weighbridge.gates.families import column_basis
from weighbridge.gates.families.column_basis import (
    ColumnBasis,
    as_constant,
    as_derived,
    as_noise,
    as_undecided,
    basis_of,
)

NOISE = as_noise(column("power_w"))
DERIVED = as_derived(column("wall_ms"))


@pytest.mark.parametrize(
    ("key", "beyond"),
    [
        ("lag1_root_n", math.nextafter(column_basis.MAX_MEMORY, math.inf)),
        ("uniform_ks_root_n", math.nextafter(column_basis.MAX_UNEVENNESS, math.inf)),
        ("rank_correlation_root_n", math.nextafter(column_basis.MAX_RELATION, math.inf)),
        ("range_over_std", column_basis.UNIFORM_RANGE + 0.351),
        ("range_over_std", column_basis.UNIFORM_RANGE - 0.351),
    ],
)
def test_noise_ends_where_any_one_statistic_leaves_its_limit(key: str, beyond: Any) -> None:
    assert basis_of(NOISE).basis is ColumnBasis.NOISE
    assert basis_of(replace(NOISE, **{key: beyond})).basis is ColumnBasis.MEASURED


@pytest.mark.parametrize("resolution", [1e-6, 0.01, 1.0])
def test_of_a_utilisation_finer_than_whole_percents_only_memory_or_a_relation_rules_noise_out(
    resolution: float,
) -> None:
    normal = replace(as_noise(column("gpu_util_pct")), uniform_ks_root_n=2.5, range_over_std=5.0, resolution=resolution)
    found = ColumnBasis.MEASURED if resolution == 1.0 else ColumnBasis.NOISE
    assert basis_of(normal).basis is found
    assert basis_of(replace(normal, lag1_root_n=3.4)).basis is ColumnBasis.MEASURED
    assert basis_of(replace(normal, rank_correlation_root_n=4.1)).basis is ColumnBasis.MEASURED


def test_noise_of_fewer_samples_than_it_was_simulated_for_is_undecided() -> None:
    assert basis_of(as_undecided(column("gpu_util_pct"))).basis is ColumnBasis.UNDECIDED


@pytest.mark.parametrize(("key", "factor"), [("deviation", 1.001), ("over", 0.8)])
def test_a_relation_must_be_close_and_well_covered(key: str, factor: float) -> None:
    close: Any = DERIVED.relations[1]
    weaker = replace(close, **{key: getattr(close, key) * factor})
    assert basis_of(replace(DERIVED, relations=(close,))).basis is ColumnBasis.DERIVED
    assert basis_of(replace(DERIVED, relations=(weaker,))).basis is not ColumnBasis.DERIVED


def test_the_rate_is_derived_and_not_the_time() -> None:
    relation = {"kind": "product", "deviation": 1e-7, "over": 120, "earlier": True, "constant": 1.0}
    rate = column("tokens_per_sec", relations=[{**relation, "partner": "wall_ms"}])
    wall = column("wall_ms", relations=[{**relation, "partner": "tokens_per_sec"}])
    assert (basis_of(rate).basis, basis_of(rate).partner) == (ColumnBasis.DERIVED, "wall_ms")
    assert basis_of(wall).basis is ColumnBasis.MEASURED


def test_one_value_throughout_is_constant_and_one_sample_untested() -> None:
    assert basis_of(as_constant(column("x"))).basis is ColumnBasis.CONSTANT
    assert basis_of(column("x", finite=1, max=1.0)).basis is ColumnBasis.UNDECIDED


@pytest.mark.parametrize("name", [*column_basis.PRIMARY, "gpu_util_pct", "tokens_per_joule"])
def test_what_trials_lay_over_a_column_is_just_what_it_is_called(name: str) -> None:
    row = column(name)
    assert basis_of(column_basis.as_constant(row)).basis is ColumnBasis.CONSTANT
    assert basis_of(column_basis.as_noise(row)).basis is ColumnBasis.NOISE
    assert basis_of(column_basis.as_derived(row)).basis is ColumnBasis.DERIVED
    assert basis_of(column_basis.as_faint_noise(row)).basis is ColumnBasis.NOISE
    copy = column_basis.as_copy(row)
    assert (copy is None) is (name in column_basis.PRIMARY)
    assert copy is None or basis_of(copy).basis is ColumnBasis.DERIVED
    holes = basis_of(column_basis.as_derived_with_holes(row))
    assert (holes.basis, holes.partner) == (
        (ColumnBasis.DERIVED, "step") if name != "step" else (ColumnBasis.MEASURED, "")
    )


@pytest.mark.parametrize("over", [column_basis.RELATED_SAMPLES - 1, column_basis.RELATED_SAMPLES])
def test_a_relation_over_fewer_samples_is_chance(over: int) -> None:
    row = replace(DERIVED, finite=over, relations=(replace(DERIVED.relations[1], over=over),))
    assert (basis_of(row).basis is ColumnBasis.DERIVED) is (over == column_basis.RELATED_SAMPLES)
