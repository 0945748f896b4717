"""Computed constants: those once rounded are found, what merely looks round is not, and the rest is rebuilt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weighbridge.forward.widened import rebuilt  # noqa: E402

FREQUENCIES = 10_000.0 ** -(np.arange(0, 16, 2) / 16)


class Table(nn.Module):
    """One computed constant, which a configuration can make again where there is one."""

    def __init__(self, config: Any = None, values: Any = None) -> None:
        super().__init__()
        self.config = config
        made = 10_000.0 ** -(torch.arange(0, 16, 2, dtype=torch.get_default_dtype()) / 16) if config else values
        self.register_buffer("table", made, persistent=False)


def rounded_in(values: Any) -> str:
    module = nn.Sequential(Table(values=torch.tensor(np.asarray(values), dtype=torch.float64)))
    with rebuilt(module) as found:
        return found.first_rounded


def to_bfloat16(values: Any) -> Any:
    return torch.tensor(np.asarray(values)).bfloat16().double().numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_frequencies_that_were_rounded_once_are_found(dtype: str) -> None:
    low = torch.tensor(FREQUENCIES).to(getattr(torch, dtype)).double().numpy()
    assert rounded_in(low) == f"0.table to {dtype}"


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
    assert rounded_in(values) == ""


@settings(max_examples=50)
@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=40, unique=True))
def test_float64_values_are_never_taken_for_rounded(values: list[float]) -> None:
    if np.array_equal(values, torch.tensor(values, dtype=torch.float64).half().double().numpy()):
        return
    assert rounded_in(values) == "" or np.array_equal(values, to_bfloat16(values))


def test_what_a_configuration_makes_again_is_float64_inside_the_block_and_as_before_after_it() -> None:
    module: Any = nn.Sequential(Table(config=SimpleNamespace()))
    kept = module[0].table
    assert kept.dtype is torch.float32
    with rebuilt(module) as found:
        assert (found.of, found.rebuilt, found.rounded) == (1, 1, 0)
        assert np.allclose(module[0].table.numpy(), FREQUENCIES, rtol=1e-15, atol=0)
    assert module[0].table is kept


def test_a_constant_that_was_changed_after_it_was_made_is_kept() -> None:
    module: Any = nn.Sequential(Table(config=SimpleNamespace()))
    module[0].table.mul_(0.999)
    with rebuilt(module) as found:
        assert (found.of, found.rebuilt, found.rounded) == (1, 0, 0)


def test_a_configuration_of_a_rounded_constant_does_not_hide_that_it_is_rounded() -> None:
    module = nn.Sequential(Table(config=SimpleNamespace())).bfloat16().float()
    with rebuilt(module) as found:
        assert (found.rebuilt, found.first_rounded) == (0, "0.table to bfloat16")
