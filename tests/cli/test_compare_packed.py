"""`weighbridge compare` of packed weights: known by their names, never held against values without a rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        name.replace("__", "."): (NAMES[one.dtype], one.shape, one.tobytes())
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
             "p__weight__quant_state__bitsandbytes__nf4": of(np.uint8, 80)}),
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
