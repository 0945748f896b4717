"""The audit of a float64 truth: what touches a lower float is counted, what merely looks round is not accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.views.torch_forward import Float64Audit, float64_audit, rounded

FREQUENCIES = 10_000.0 ** -(np.arange(0, 16, 2) / 16)


def to_bfloat16(values: Any) -> Any:
    import ml_dtypes

    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def test_frequencies_that_were_bfloat16_once_are_told() -> None:
    assert rounded({"a": to_bfloat16(FREQUENCIES), "b": FREQUENCIES}) == ("a",)


@pytest.mark.parametrize(
    "values",
    [
        FREQUENCIES.astype(np.float32).astype(np.float64),
        np.arange(300.0),
        np.array([0.0, -np.inf]),
        2.0 ** -np.arange(20.0),
        np.array([0.5, 0.75, 1.5, 6.0, 0.0]),
        np.zeros(0),
        np.full(9, np.nan),
        to_bfloat16([0.1, 0.2, 0.3]),
    ],
    ids=["float32", "positions", "mask", "powers", "few digits", "empty", "nan", "too few to tell"],
)
def test_constants_that_need_no_more_digits_are_not_accused(values: Any) -> None:
    assert rounded({"x": values}) == ()


@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=40, unique=True))
def test_float64_values_are_never_taken_for_rounded(values: list[float]) -> None:
    array = np.array(values)
    if np.array_equal(array, to_bfloat16(array)):
        return
    assert rounded({"x": array}) == ()


def test_operations_without_floats_are_not_counted() -> None:
    audit = Float64Audit()
    audit.note("aten.add", set())
    audit.note("aten.mul", {"float64"})
    audit.note("aten.to", {"float64", "float32"})
    audit.note("aten.cos", {"bfloat16"})
    assert (audit.operations, audit.lower, audit.first) == (3, 2, "aten.to in float32")


def audited(run: Callable[[Any], object]) -> Float64Audit:
    torch = pytest.importorskip("torch")
    given = torch.arange(4, dtype=torch.float64)
    with float64_audit() as audit:
        run(given)
    return audit


@pytest.mark.parametrize(
    ("run", "lower"),
    [
        (lambda x: x * 2, 0),
        (lambda x: (x @ x).softmax(0), 0),
        (lambda x: x.long() + 1, 0),
        (lambda x: x.float().double(), 2),
        (lambda x: x * x.new_ones(4, dtype=x.float().dtype), 3),
        (lambda x: x.half(), 1),
    ],
    ids=["product", "softmax", "integers", "there and back", "a float32 factor", "half"],
)
def test_each_operation_on_a_lower_float_is_counted(run: Callable[[Any], object], lower: int) -> None:
    audit = audited(run)
    assert audit.lower == lower
    assert audit.operations >= 1


def test_nothing_is_seen_outside_the_block() -> None:
    audit = audited(lambda x: x + 1)
    pytest.importorskip("torch").ones(2)
    assert (audit.operations, audit.lower) == (1, 0)
