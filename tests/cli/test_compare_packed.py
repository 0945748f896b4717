"""`weighbridge compare` of packed weights: known by their names, never held against values without a rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import ml_dtypes
import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.formats.files import Entry, safetensors

NAMES = {
    np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint8): "U8", np.dtype(np.int8): "I8",
    np.dtype(np.int32): "I32", np.dtype(np.uint32): "U32", np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
    np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(ml_dtypes.float8_e8m0fnu): "F8_E8M0",
}  # fmt: skip
RNG = np.random.default_rng(3)
NORM = RNG.standard_normal(64).astype(np.float32)
WEIGHT = (RNG.standard_normal((32, 64)) * 0.02).astype(np.float32)


def model(folder: Path, quantised: Mapping[str, Any] | None = None, /, **tensors: Any) -> Path:
    """Write a directory of a model: a norm, what is given beside it, and what it says of its quantisation."""
    folder.mkdir()
    entries: dict[str, Entry] = {
        (name if "." in name else name.replace("__", ".")): (NAMES[one.dtype], one.shape, one.tobytes())
        for name, one in {"norm__weight": NORM, **tensors}.items()
    }
    safetensors(folder / "model.safetensors", entries)
    config = {"model_type": "llama"} | ({} if quantised is None else {"quantization_config": quantised})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def of(dtype: Any, *shape: int) -> Any:
    return np.ones(shape, dtype)


F8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
UNREAD: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "GPTQ": ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq (4 bits, groups of 32)",
             {"p__qweight": of(np.int32, 8, 32), "p__qzeros": of(np.int32, 2, 4), "p__scales": of(np.float16, 2, 32),
              "p__g_idx": of(np.int32, 64)}),
    "AWQ": ({"quant_method": "awq", "bits": 4, "group_size": 32}, "awq (4 bits, groups of 32)",
            {"p__qweight": of(np.int32, 64, 4), "p__qzeros": of(np.int32, 2, 4), "p__scales": of(np.float16, 2, 32)}),
    "NF4": ({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}, "bitsandbytes (nf4)",
            {"p__weight": of(np.uint8, 1024, 1), "p__weight__absmax": of(np.float32, 32),
             "p__weight__quant_map": of(np.float32, 16),
             "p.weight.quant_state.bitsandbytes__nf4": of(np.uint8, 80)}),
    "LLM.int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes (int8)",
                 {"p__weight": of(np.int8, 32, 64), "p__SCB": of(np.float32, 32), "p__weight_format": of(np.uint8)}),
    "NVFP4": ({"quant_method": "modelopt"}, "modelopt",
              {"p__weight": of(np.uint8, 32, 32), "p__weight_scale": of(F8, 32, 4),
               "p__weight_scale_2": of(np.float32), "p__input_scale": of(np.float32)}),
    "a method that nobody here knows": ({"quant_method": "aqlm"}, "aqlm",
                                        {"p__codes": of(np.int8, 32, 8, 1), "p__codebooks": of(np.float16, 1, 256, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
def test_what_no_rule_reads_is_blocked_by_its_name_and_the_rest_is_compared(
    cli: Cli, tmp_path: Path, case: str
) -> None:
    settings, told, tensors = UNREAD[case]
    source, packed = model(tmp_path / "source", p__weight=WEIGHT), model(tmp_path / "packed", settings, **tensors)
    for pair in ((source, packed), (packed, source)):
        ended = cli("compare", *pair)
        assert ended.code == 3, ended.lines
        assert ended.lines[1] == f"  p.weight: not compared: packed by {told}: no rule"
        assert "  1 BYTES_EQUAL, 1 not compared" in ended.lines
        assert "different content" not in "\n".join(ended.lines)


def test_what_is_broken_beside_packed_weights_is_still_told(cli: Cli, tmp_path: Path) -> None:
    settings, _, tensors = UNREAD["GPTQ"]
    source = model(tmp_path / "source", p__weight=WEIGHT)
    packed = model(tmp_path / "packed", settings, **tensors, norm__weight=NORM[::-1].copy())
    ended = cli("compare", source, packed)
    assert ended.code == 1
    assert ended.lines[-1].startswith("DIFFERENT: 1 of 2 tensors")


def test_two_packed_alike_are_compared_as_they_are_stored(cli: Cli, tmp_path: Path) -> None:
    settings, _, tensors = UNREAD["GPTQ"]
    one, same = (model(tmp_path / name, settings, **tensors) for name in ("one", "same"))
    other = model(tmp_path / "other", settings, **{**tensors, "p__scales": of(np.float16, 2, 32) * 2})
    assert cli("compare", one, same).lines[-1].startswith("SAME: 5 of 5 tensors")
    ended = cli("compare", one, other)
    assert ended.code == 1
    assert ended.lines[1].startswith("  p.scales: F16 -> F16, but 64 of 64 elements are not the source's")


# --- Packings that a rule reads ---------------------------------------------------------------------------------------

HERE = (
    Path(__file__).parent / "packed_by_others"
)  # by transformers 5.23, compressed-tensors 0.20, bitsandbytes 0.50, mlx


@pytest.mark.parametrize("name", sorted(one.name for one in HERE.iterdir() if one.name != "source"))
def test_what_its_library_packed_is_as_meant_or_not_compared(cli: Cli, name: str) -> None:
    ended = cli("compare", HERE / "source", HERE / name)
    if "fp8" in name or name in ("mlx-q4", "mlx-q8"):
        assert ended.code == 0
        assert ended.lines[1] == "  3 of 3 tensors are what was meant, 4224 elements (1 BYTES_EQUAL, 2 NEAREST_CODES)"
    else:
        assert ended.code == 3
        assert ended.lines[1].startswith("  model.down_proj.weight: not compared: packed by ")
    assert cli("compare", HERE / "source", HERE / name, "--policy", "same").code == (1 if ended.code == 0 else 3)


Tensors: TypeAlias = dict[str, Any]
Packer: TypeAlias = Callable[[str, Any], Tensors]
OTHER = (RNG.standard_normal((32, 64)) * 0.05).astype(np.float32)


def fp8(name: str, values: Any) -> Tensors:
    blocks = values.reshape(2, 16, 2, 32)
    scales = np.abs(blocks).max((1, 3)) / np.float32(448)
    codes = (blocks / scales[:, None, :, None]).reshape(values.shape).astype(F8)
    return {f"{name}__weight": codes, f"{name}__weight_scale_inv": scales}


def mlx(name: str, values: Any) -> Tensors:
    groups = values.reshape(32, 2, 32)
    low, high = groups.min(2, keepdims=True), groups.max(2, keepdims=True)
    scales = (high - low) / np.float32(15)
    codes = np.clip(np.rint((groups - low) / scales), 0, 15).astype(np.uint8).reshape(32, 64)
    words = (codes[:, ::2] | codes[:, 1::2] << 4).view("<u4")
    return {f"{name}__weight": words, f"{name}__scales": scales[..., 0], f"{name}__biases": low[..., 0]}


def mxfp4(name: str, values: Any) -> Tensors:
    """Pack as gpt-oss does: ggml's codes, whose bytes hold elements 16 apart, put side by side."""
    stored = gguf.quantize(values, gguf.GGMLQuantizationType.MXFP4).reshape(1, 32, 2, 17)
    codes = np.concatenate([stored[..., 1:] & 15, stored[..., 1:] >> 4], -1)
    return {f"{name}__weight_blocks": codes[..., ::2] | codes[..., 1::2] << 4,
            f"{name}__weight_scales": np.ascontiguousarray(stored[..., 0])}  # fmt: skip


def source_of(packer: Packer) -> Any:
    """Return the weight as it is unpacked: gpt-oss stores the experts' matrices transposed."""
    return np.ascontiguousarray(WEIGHT.T[None]) if packer is mxfp4 else WEIGHT


SETTINGS: dict[Packer, dict[str, Any]] = {
    fp8: {"quant_method": "fp8", "weight_block_size": [16, 32]},
    mlx: {"bits": 4, "group_size": 32},
    mxfp4: {"quant_method": "mxfp4"},
}
SCALES: dict[Packer, str] = {fp8: "p__weight_scale_inv", mlx: "p__scales", mxfp4: "p__weight_scales"}
CODES: dict[Packer, str] = {fp8: "p__weight", mlx: "p__weight", mxfp4: "p__weight_blocks"}


def wrong_scale(packer: Packer, tensors: Tensors, settings: dict[str, Any]) -> None:
    scales = tensors[SCALES[packer]].copy()
    scales[(0,) * scales.ndim] += 1 if packer is mxfp4 else scales.max() / 4
    tensors[SCALES[packer]] = scales


def swapped_nibbles(packer: Packer, tensors: Tensors, settings: dict[str, Any]) -> None:
    codes = np.ascontiguousarray(tensors[CODES[packer]])
    data = codes.view(np.uint8)
    tensors[CODES[packer]] = (data << 4 | data >> 4).view(codes.dtype)


def other_group_size(packer: Packer, tensors: Tensors, settings: dict[str, Any]) -> None:
    if packer is mxfp4:  # its blocks are always 32: every second scale stands for two
        tensors[SCALES[packer]] = np.repeat(tensors[SCALES[packer]][..., ::2], 2, axis=-1)
    settings |= {"weight_block_size": [32, 16]} if packer is fp8 else {"group_size": 16}


def zero_point_off_by_one(packer: Packer, tensors: Tensors, settings: dict[str, Any]) -> None:
    if packer is mlx:
        tensors["p__biases"] = tensors["p__biases"] + tensors["p__scales"]
    else:  # without a zero point: each code is the next one
        codes = tensors[CODES[packer]]
        tensors[CODES[packer]] = (codes.view(np.uint8) ^ (1 if packer is fp8 else 0x11)).view(codes.dtype)


def scales_of_another(packer: Packer, tensors: Tensors, settings: dict[str, Any]) -> None:
    other = packer("p", OTHER)
    tensors[SCALES[packer]] = other[SCALES[packer]]


DAMAGES = (wrong_scale, swapped_nibbles, other_group_size, zero_point_off_by_one, scales_of_another)


@pytest.mark.parametrize("packer", [fp8, mlx, mxfp4])
def test_each_code_is_the_nearest_and_no_damage_passes(cli: Cli, tmp_path: Path, packer: Packer) -> None:
    source = model(tmp_path / "source", p__weight=source_of(packer))
    right = cli("compare", source, model(tmp_path / "right", SETTINGS[packer], **packer("p", WEIGHT)))
    assert right.code == 0, right.lines
    assert "1 NEAREST_CODES" in right.lines[1]
    for damage in DAMAGES:
        tensors, settings = packer("p", WEIGHT), dict(SETTINGS[packer])
        damage(packer, tensors, settings)
        ended = cli("compare", source, model(tmp_path / damage.__name__, settings, **tensors))
        assert ended.code == 1, (damage, ended.lines)
        assert ended.lines[1].startswith("  p.weight: packed by "), ended.lines
        assert "codes are not the nearest" in ended.lines[1]


def test_codes_that_keep_too_little_are_refused_though_each_is_the_nearest(cli: Cli, tmp_path: Path) -> None:
    tensors = fp8("p", WEIGHT)
    tensors["p__weight_scale_inv"] = np.full((2, 2), 64.0, np.float32)
    tensors["p__weight"] = (WEIGHT / np.float32(64)).astype(F8)
    source = model(tmp_path / "source", p__weight=WEIGHT)
    ended = cli("compare", source, model(tmp_path / "coarse", SETTINGS[fp8], **tensors))
    assert ended.code == 1
    assert "0 of 2048 codes are not the nearest" in ended.lines[1]


def test_a_packed_source_gives_the_values_of_what_was_unpacked_from_it(cli: Cli, tmp_path: Path) -> None:
    packed = model(tmp_path / "packed", SETTINGS[fp8], **fp8("p", WEIGHT))
    tensors = fp8("p", WEIGHT)
    scales = np.repeat(np.repeat(tensors["p__weight_scale_inv"], 16, 0), 32, 1)
    values = tensors["p__weight"].astype(np.float32) * scales
    for dtype in (np.float32, BF16, np.float16):
        right = cli("compare", packed, model(tmp_path / np.dtype(dtype).name, p__weight=values.astype(dtype)))
        assert right.code == 0, right.lines
    ignored = model(tmp_path / "ignored", p__weight=tensors["p__weight"].astype(np.float32).astype(BF16))
    ended = cli("compare", packed, ignored)
    assert ended.code == 1
    assert ended.lines[1].startswith("  p.weight: F32 -> BF16, but ")


@pytest.mark.parametrize(
    "settings",
    [
        {"weight_block_size": "abc"},
        {"weight_block_size": [0, 32]},
        {"weight_block_size": [16]},
        {"quant_method": ["x"]},
    ],
)
def test_a_configuration_that_makes_no_sense_is_never_a_pass(
    cli: Cli, tmp_path: Path, settings: dict[str, Any]
) -> None:
    source, packed = model(tmp_path / "source", p__weight=WEIGHT), model(tmp_path / "x", settings, **fp8("p", WEIGHT))
    ended = cli("compare", source, packed)
    assert ended.code in (1, 3)
    assert ended.lines[1].startswith("  p.weight: ")
    strange = model(tmp_path / "strange", {"bits": 4, "group_size": 0}, **mlx("p", WEIGHT))
    assert cli("compare", source, strange).code == 3
