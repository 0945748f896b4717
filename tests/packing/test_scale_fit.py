"""Scales and output channels that are not those of their values are seen, and nothing that packers do is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import weighbridge
from weighbridge.api import Comparison
from weighbridge.core import Outcome
from weighbridge.quantities.tensors import TensorPair

Array: TypeAlias = Any
ROWS, COLUMNS, GROUP = 128, 256, 64


def drawn(heavy: bool = False) -> Array:
    rng = np.random.default_rng(7)
    drawn = rng.standard_t(4, (ROWS, COLUMNS)) if heavy else rng.standard_normal((ROWS, COLUMNS))
    return (drawn * 0.02).astype(ml_dtypes.bfloat16)


def quantised(values: Array, clip: float = 1.0, noise: float = 0.0, group: int = GROUP) -> tuple[Array, Array]:
    """Return codes and scales: to nearest, or as far off as the feedback of errors moves them."""
    wide = values.astype(np.float32)
    groups = np.pad(wide, ((0, 0), (0, -COLUMNS % group))).reshape(ROWS, -1, group)
    scales = (np.abs(groups).max(2) * (clip / 7.5)).astype(np.float16)
    scales[scales == 0] = 1
    per = np.repeat(scales.astype(np.float32), group, 1)[:, :COLUMNS]
    moved = wide / per + np.random.default_rng(8).normal(size=wide.shape) * noise * wide.any(1, keepdims=True)
    return np.clip(np.rint(moved), -8, 7).astype(np.int8), scales


def compared(
    folder: Path, values: Array, codes: Array, scales: Array, numbers: Array = None
) -> tuple[Comparison, TensorPair]:
    """Compare a weight that is packed as compressed-tensors does with its values."""
    for name, tensors in {
        "source": {"w.weight": values},
        "packed": {
            "w.weight_packed": ((codes[:, ::2] + 8) | (codes[:, 1::2] + 8) << 4).astype(np.uint8).view("<i4"),
            "w.weight_scale": scales, "w.weight_shape": np.array(codes.shape, np.int64),
        } | ({} if numbers is None else {"w.weight_g_idx": numbers.astype(np.int32)}),
    }.items():  # fmt: skip
        (folder / name).mkdir()
        save_file({key: np.ascontiguousarray(one) for key, one in tensors.items()}, folder / name / "model.safetensors")
    group = -(-COLUMNS // scales.shape[1])
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP if numbers is not None else group}
    settings = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    (folder / "packed" / "config.json").write_text(json.dumps({"quantization_config": settings}))
    found = weighbridge.compare(folder / "source", folder / "packed", policy="packed")
    return found, found.tensors[0]


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("clip", [1.0, 0.8])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("group", [GROUP, COLUMNS, 96])
def test_what_a_packer_makes_is_within_bounds(
    tmp_path: Path, heavy: bool, clip: float, noise: float, group: int
) -> None:
    values = drawn(heavy)
    values[5] = 0
    values[9, :GROUP] = 0.01
    codes, scales = quantised(values, clip, noise, group)
    found, row = compared(tmp_path, values, codes, scales)
    assert found.outcome is Outcome.PASS, (found.report, row)
    assert (row.groups_off, row.channels_unlike) == (0, 0)
    assert row.groups is not None
    assert row.groups >= ROWS - 1


def rolled(codes: Array, scales: Array) -> tuple[Array, Array]:
    return codes, np.roll(scales, 1, 1)


def all_the_mean(codes: Array, scales: Array) -> tuple[Array, Array]:
    return codes, np.full_like(scales, scales.mean())


def times(factor: float, where: Any = slice(None)) -> Callable[[Array, Array], tuple[Array, Array]]:
    def damage(codes: Array, scales: Array) -> tuple[Array, Array]:
        scales = scales.copy()
        scales[where] = (scales[where] * factor).astype(scales.dtype)
        return codes, scales

    return damage


def channels_swapped(codes: Array, scales: Array) -> tuple[Array, Array]:
    codes = codes.copy()
    codes[[3, 9]] = codes[[9, 3]]
    return codes, scales


OTHER_GROUPS = "scales that belong to other groups: "
DAMAGED: dict[str, tuple[Callable[[Array, Array], tuple[Array, Array]], str]] = {
    "rolled": (rolled, OTHER_GROUPS),
    "all the mean": (all_the_mean, OTHER_GROUPS),
    "one negative": (times(-1, (3, 1)), f"{OTHER_GROUPS}1 of 512 are surely off"),
    "one tenfold": (times(10, (3, 1)), f"{OTHER_GROUPS}1 of 512 are surely off"),
    "all x 1.1": (times(1.1), "scales off by a factor of 1.09"),
    "all x 0.9": (times(0.9), "scales off by a factor of 0.9"),
    "swapped": (channels_swapped, "2 of 128 output channels are not the source's"),
}


@pytest.mark.parametrize("noise", [0.0, 0.25])
@pytest.mark.parametrize("name", DAMAGED)
def test_scales_and_channels_that_are_not_their_values_are_named(tmp_path: Path, name: str, noise: float) -> None:
    damage, said = DAMAGED[name]
    values = drawn()
    found, row = compared(tmp_path, values, *damage(*quantised(values, noise=noise)))
    assert found.outcome is Outcome.FAIL, row
    assert f"w.weight: packed by compressed-tensors: {said}" in found.report


def test_groups_out_of_order_and_one_that_no_column_has_are_read_as_they_are_numbered(tmp_path: Path) -> None:
    values = drawn()
    numbers = np.random.default_rng(9).permutation(COLUMNS) // GROUP
    order = np.argsort(numbers, kind="stable")
    there, scales = quantised(values[:, order], noise=0.3)
    codes = np.empty_like(there)
    codes[:, order] = there
    (tmp_path / "right").mkdir()
    (tmp_path / "absent").mkdir()
    (tmp_path / "trivial").mkdir()
    assert compared(tmp_path / "right", values, codes, scales, numbers)[0].outcome is Outcome.PASS
    found, row = compared(tmp_path / "trivial", values, codes, scales, np.arange(COLUMNS) // GROUP)
    assert found.outcome is Outcome.FAIL, row
    found, row = compared(tmp_path / "absent", values, codes, scales, np.where(numbers == 3, 2, numbers))
    assert row.groups == 3 * ROWS
