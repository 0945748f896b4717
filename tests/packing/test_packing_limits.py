"""What packed weights may not be: a step off, beyond their codes, without an error, of other groups or schemes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.cli.test_compare_packed import HERE, STEM, kept, model

from weighbridge.packing.channel_factors import Factors
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers import tensor_values
from weighbridge.verifiers.verifier import rows_by_name
from weighbridge.views.checkpoint import open_checkpoint

F8 = ml_dtypes.float8_e4m3fn
BASE = np.tile(np.arange(4, 12, dtype=np.float32), (32, 8))  # codes of four bits, none at an end


def measured(source: Path, packed: Path) -> dict[str, TensorPair]:
    found = tensor_values.measure((open_checkpoint(source), open_checkpoint(packed)), {})
    return rows_by_name(found)


def row(folder: Path, values: Any, settings: dict[str, Any] | None, **tensors: Any) -> TensorPair:
    source = model(folder / "source", p__weight=np.asarray(values, np.float32))
    return measured(source, model(folder / "packed", settings, **tensors))["p.weight"]


def nibbles(codes: Any) -> Any:
    whole = np.asarray(codes, np.uint8)
    return np.ascontiguousarray(whole[:, ::2] | whole[:, 1::2] << 4)


PACKERS: dict[str, Any] = {
    "INT8": lambda codes: (
        {"quant_method": "compressed-tensors"},
        {"p__weight": codes.astype(np.int8), "p__weight_scale": np.ones((32, 1), np.float32)},
    ),
    "MLX": lambda codes: (
        {"bits": 4, "group_size": 32},
        {"p__weight": nibbles(codes).view("<u4"), "p__scales": np.ones((32, 2), np.float32),
         "p__biases": np.zeros((32, 2), np.float32)},
    ),
    "pack-quantized": lambda codes: (
        {"quant_method": "compressed-tensors", "config_groups": {
            "a": {"weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}}},
        {"p__weight_packed": nibbles(codes).view("<i4"), "p__weight_scale": np.ones((32, 1), np.float32),
         "p__weight_shape": np.array([32, 64], np.int64)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("packer", PACKERS)
def test_a_code_that_is_more_than_half_a_step_off_is_not_the_nearest(tmp_path: Path, packer: str) -> None:
    settings, tensors = PACKERS[packer](BASE)
    least = 8 if packer == "pack-quantized" else 0
    for at, (off, wrong) in enumerate(((0.0, 0), (0.45, 0), (-0.45, 0), (0.75, 2048), (-0.75, 2048), (1.0, 2048))):
        (folder := tmp_path / str(at)).mkdir()
        assert row(folder, BASE - least + off, settings, **tensors).not_nearest == wrong


@pytest.mark.parametrize(
    ("beyond", "codes"),
    [(np.float32(140), np.int8(127)), (np.float32(-140), np.int8(-128)), (np.float32(560), F8(448)),
     (np.float32(-560), F8(-448))],
)  # fmt: skip
def test_a_value_beyond_the_codes_has_no_nearest_one(tmp_path: Path, beyond: Any, codes: Any) -> None:
    ends, stored = np.full((32, 64), beyond), np.full((32, 64), codes)
    scales, settings = np.ones((32, 1), np.float32), {"quant_method": "compressed-tensors"}
    assert row(tmp_path, ends, settings, p__weight=stored, p__weight_scale=scales).not_nearest == 2048


def test_a_weight_that_was_lost_has_no_error_and_is_no_exact_one(tmp_path: Path) -> None:
    settings, scales = {"quant_method": "compressed-tensors"}, np.ones((32, 1), np.float32)
    codes = np.ones((32, 64), np.int8)
    for at, (values, factor) in enumerate(((np.zeros((32, 64)), 1.0), (BASE, math.nan), (BASE, math.inf))):
        (folder := tmp_path / str(at)).mkdir()
        found = row(folder, values, settings, p__weight=codes, p__weight_scale=scales * np.float32(factor))
        assert (found.relative_rmse, found.not_nearest) == (None, 2048)


def test_several_schemes_are_no_scheme_of_a_weight_and_several_alike_are_one(tmp_path: Path) -> None:
    settings, tensors = PACKERS["pack-quantized"](BASE)
    one = settings["config_groups"]["a"]
    for at, (other, compared) in enumerate(((one, True), ({"weights": {**one["weights"], "num_bits": 8}}, False))):
        (folder := tmp_path / str(at)).mkdir()
        several = {**settings, "config_groups": {"a": one, "b": other}}
        assert row(folder, BASE - 8, several, **tensors).compared is compared


def two_schemes(kind: str, strategy: str) -> dict[str, Any]:
    first = {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
    second = {"weights": {"num_bits": 8, "type": kind, "strategy": strategy}}
    return {"quant_method": "compressed-tensors", "config_groups": {"a": first, "b": second}}


@pytest.mark.parametrize(
    ("kind", "strategy", "off"), [("int", "channel", 0), ("int", "tensor", 2048), ("float", "channel", 2048)]
)
def test_bytes_follow_one_of_several_schemes(tmp_path: Path, kind: str, strategy: str, off: int) -> None:
    tensors = PACKERS["INT8"](BASE)[1]
    found = row(tmp_path, BASE, two_schemes(kind, strategy), **tensors)
    assert found.not_nearest == off
    assert ("config_groups has no int of 8 bits with a scale for each channel" in found.packed) is bool(off)


@pytest.mark.parametrize("damage", ["beyond the last", "below zero", "one fewer"])
def test_group_numbers_are_of_groups_that_there_are_one_for_each_input(tmp_path: Path, damage: str) -> None:
    def renumbered(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        numbers = tensors[f"{STEM}.g_idx"].copy()
        numbers[-1] = {"beyond the last": 2, "below zero": -1}.get(damage, 1)
        tensors[f"{STEM}.g_idx"] = numbers[:-1] if damage == "one fewer" else numbers

    found = measured(HERE / "source-32", kept(tmp_path / "x", "gptq-4-desc-act", renumbered))[f"{STEM}.weight"]
    assert "g_idx does not number 2 groups of 64" in found.packed
    assert found.not_nearest == found.elements


def test_blocks_that_do_not_fill_the_matrices_of_a_stack_have_no_rule(tmp_path: Path) -> None:
    for at, (rows, compared) in enumerate(((16, True), (12, False))):
        (folder := tmp_path / str(at)).mkdir()
        codes, scales = np.ones((2, rows, 32), F8), np.ones((2, -(-rows // 8), 1), np.float32)
        settings = {"quant_method": "fp8", "weight_block_size": [8, 32]}
        found = row(folder, np.ones((2, rows, 32)), settings, p__weight=codes, p__weight_scale_inv=scales)
        assert found.compared is compared


def test_bytes_of_four_bits_are_as_many_as_the_shape_needs(tmp_path: Path) -> None:
    def longer(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        tensors[f"{STEM}.weight"] = np.concatenate([tensors[f"{STEM}.weight"], tensors[f"{STEM}.weight"][:32]])

    found = measured(HERE / "source", kept(tmp_path / "x", "bitsandbytes-nf4", longer))[f"{STEM}.weight"]
    assert "1056 bytes hold 2112 codes, and a shape of [16, 128] needs 2048" in found.packed
    assert found.not_nearest == found.elements


def test_a_factor_that_is_no_number_is_as_far_off_as_can_be() -> None:
    right, none = np.ones(3), np.zeros(3)
    assert Factors(right, none).off() == 0
    assert Factors(np.array([1.0, math.nan, 1.0]), none).off() == math.inf
    assert Factors(right, np.array([0.0, math.nan, 0.0])).off() == math.inf
