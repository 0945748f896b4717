"""tensor_moments agrees with NumPy on whole tensors, however it steps through them, and sees the last element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.verifiers.tensors import view_of

from weighbridge.core.model import Measurement, Rows
from weighbridge.evaluation.runner import lay_canary
from weighbridge.verifiers import tensor_walk
from weighbridge.verifiers.tensor_moments import VERIFIER
from weighbridge.verifiers.verifier import NoCanary, rows_by_name
from weighbridge.views.checkpoint import CheckpointView

VALUES = 3 + np.random.default_rng(0).standard_normal((37, 41))


def rows_of(view: CheckpointView) -> dict[str, Any]:
    return rows_by_name(VERIFIER.measure((view,), {}))


@pytest.mark.parametrize("step", [1, 7, 1 << 17])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", ["<f2", ml_dtypes.bfloat16, "<f4", "<f8", "<i4"])
def test_agrees_with_numpy_however_it_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, sign: int, step: int
) -> None:
    stored = (sign * VALUES * (np.arange(41) % 3 > 0)).astype(dtype)
    monkeypatch.setattr(tensor_walk, "STEP", step)
    row = rows_of(view_of(tmp_path, w=stored))["w"]
    exact = stored.astype(np.float64)
    expected = {"mean": exact.mean(), "std": exact.std(), "min": exact.min(), "max": exact.max()}
    expected |= {"absmax": abs(exact).max(), "rms": np.sqrt((exact**2).mean()), "zero_share": (exact == 0).mean()}
    assert {name: getattr(row, name) for name in expected} == pytest.approx(expected, rel=1e-8)


def test_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    rows = rows_of(
        view_of(
            tmp_path,
            some=np.array([1, np.nan, np.inf, 3], "<f4"),
            none=np.array([np.nan], "<f4"),
            huge=np.array([1e300, -1e300], "<f8"),
            flags=np.array([True]),
        )
    )
    assert (rows["some"].finite, rows["some"].mean) == (2, 2.0)
    assert (rows["none"].finite, rows["none"].mean) == (0, None)
    assert rows["huge"].std == float("inf")
    assert (rows["flags"].finite, rows["flags"].std) == (None, None)


@pytest.mark.parametrize("dtype", ["<f2", ml_dtypes.bfloat16, "<f4", "<f8", "|i1", "<i8", ml_dtypes.float8_e5m2])
def test_the_canary_is_seen_in_the_last_tensor_and_a_constant_is_blind(tmp_path: Path, dtype: Any) -> None:
    view = view_of(tmp_path, a=VALUES.astype(dtype), b=VALUES.astype(dtype), c=np.array([True]))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    aligned = lay_canary(VERIFIER, (view,), {}, found)
    assert (aligned.place, aligned.seen) == ("b", True)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    assert not canary.seen(found)


def test_an_instrument_that_stops_after_its_first_step_is_blind(tmp_path: Path) -> None:
    view = view_of(tmp_path, a=VALUES.astype("<f4"), b=np.resize(VALUES, 300_000).astype("<f4"))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    (damaged,) = canary.views
    assert damaged.tensor("b").elements == tensor_walk.ENOUGH
    short = rows_of(damaged.overlaid("b", damaged.tensor("b").nbytes - 4, bytes(4)))["b"]
    rows = Rows("name", (short,))
    assert not canary.seen(Measurement(quantity="", value=rows, by="", examined=1, total=1))
