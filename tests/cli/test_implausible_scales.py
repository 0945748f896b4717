"""FP8 without scales, with scales that no quantiser writes, or codes of another dtype, FAILs; healthy files pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.formats.files import Entry, safetensors

GROUP = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
OF_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
OF_TENSORS = {"quant_method": "fp8", "activation_scheme": "dynamic"}
OF_GROUPS = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": GROUP}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "blocks": OF_BLOCKS,
    "tensors": OF_TENSORS,
    "rows": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
    "groups": OF_GROUPS,
    "modelopt": {"quant_method": "modelopt", "quant_algo": "FP8"},
}
NAMES = "self_attn.q_proj", "mlp.down_proj"
FIRST = "model.layers.0.mlp.down_proj.weight"
E4M3, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
DTYPES = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "bfloat16": "BF16"}
DTYPES |= {"int8": "I8", "uint8": "U8", "int32": "I32", "float16": "F16", "float32": "F32"}
Tensors = dict[str, Any]
Change = Callable[[Tensors], Tensors]


def quantised(how: str, layers: int = 4, stem: str = "model.layers") -> Tensors:
    """Return weights as a library stores them: for each block, tensor or row the largest becomes 448."""
    chance, found = np.random.default_rng(0), Tensors()
    for name in (f"{stem}.{at}.{name}." for at in range(layers) for name in NAMES):
        weight = (0.02 * chance.standard_normal((256, 256))).astype("<f4")
        blocks = weight.reshape({"blocks": (2, 128, 2, 128), "tensors": (1, 256, 1, 256)}.get(how, (256, 1, 1, 256)))
        scales = abs(blocks).max((1, 3)) / np.float32(448)
        found[f"{name}weight"] = (blocks / scales[:, None, :, None]).astype(E4M3).reshape(256, 256)
        found[f"{name}weight_scale" + "_inv" * (how == "blocks")] = scales[0, 0] if how == "tensors" else scales
    return found


def stored(path: Path, tensors: Tensors, settings: Mapping[str, Any] | None) -> Path:
    path.mkdir(parents=True)
    entries: dict[str, Entry] = {}
    for name, one in tensors.items():
        array = np.asarray(one)
        entries[name] = DTYPES[array.dtype.name], array.shape, array.tobytes()
    safetensors(path / "model.safetensors", entries)
    config = {"model_type": "llama", **({"quantization_config": settings} if settings else {})}
    (path / "config.json").write_text(json.dumps(config))
    return path


def without(*ends: str) -> Change:
    return lambda tensors: {name: one for name, one in tensors.items() if not name.endswith(ends)}


def scales(change: Callable[[Any], Any], *places: str) -> Change:
    """Change the scales of all weights, or of those in some places."""

    def changed(name: str, one: Any) -> Any:
        here = "_scale" in name and (not places or any(place in name for place in places))
        return np.asarray(change(one), one.dtype) if here else one

    return lambda tensors: {name: changed(name, one) for name, one in tensors.items()}


def codes(dtype: Any) -> Change:
    return lambda tensors: {name: one if "_scale" in name else one.view(dtype) for name, one in tensors.items()}


BROKEN: Mapping[str, tuple[Change, int, str]] = {
    "no scales": (without("_scale", "_scale_inv"), 8, f"there is no {FIRST}_scale"),
    "one scale lost": (without("0.mlp.down_proj.weight_scale", "0.mlp.down_proj.weight_scale_inv"), 1, "there is no"),
    "zero": (scales(lambda one: one * 0), 8, "its scales are from 0 to 0, which no quantiser writes"),
    "negative": (scales(lambda one: -one), 8, "which no quantiser writes"),
    "NaN": (scales(lambda one: one * np.float32(np.nan)), 8, "its scales are from nan to nan"),
    "inverted": (scales(lambda one: 1 / one), 8, "their inverse may be meant"),
    "a thousandfold in two layers": (
        scales(lambda one: one * 1000, "s.0.", "s.2."),
        4,
        "the median of 4 layers is 0.000",
    ),
    "a thousandfold in all": (
        scales(lambda one: one * 1000),
        8,
        "as of 8 of 8 weights: those of trained models lie far",
    ),
    "all 1": (scales(np.ones_like), 8, "its scales are all 1, and codes above 224 are"),
    "I8": (codes(np.int8), 8, ""),
    "U8": (codes(np.uint8), 8, "its codes are U8, and"),
    "E5M2": (codes(ml_dtypes.float8_e5m2), 8, "its codes are F8_E5M2, and"),
}


def looked(cli: Cli, path: Path) -> tuple[int, int, list[str]]:
    """Return what inspect and verify end with, and what looks wrong by the packing's rules."""
    inspected, verified = cli("inspect", path, "--strict", "--json"), cli("verify", *HEALTH, f"checkpoint={path}")
    found = [one for one in json.loads(inspected.out)["findings"] if one["code"] == "packing"]
    return inspected.code, verified.code, [one["says"] for one in found]


HEALTH = "builtin:checkpoint-health", "--gate", "GATE-HEALTH-001", "--subject"


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("how", CONFIGS)
def test_what_is_wrong_with_fp8_is_found_by_inspect_and_by_the_gate(
    cli: Cli, tmp_path: Path, how: str, broken: str
) -> None:
    change, count, said = BROKEN[broken]
    inspected, verified, says = looked(cli, stored(tmp_path / "x", change(quantised(how)), CONFIGS[how]))
    assert (inspected, verified, len(says)) == (1, 1, count)
    assert [said in one for one in says if one.startswith(f"{FIRST}: ")] == [True]


@pytest.mark.parametrize("how", CONFIGS)
def test_fp8_as_libraries_store_it_is_in_order(cli: Cli, tmp_path: Path, how: str) -> None:
    assert looked(cli, stored(tmp_path / "x", quantised(how), CONFIGS[how])) == (3, 0, [])


@pytest.mark.parametrize("many", [1, 8])
def test_a_scale_that_is_lost_is_called_as_the_checkpoint_calls_its_others(cli: Cli, tmp_path: Path, many: int) -> None:
    lost = [f"layers.{at}.{name}.weight_scale_inv" for at in range(4) for name in NAMES][:many]
    says = looked(cli, stored(tmp_path / "inv", without(*lost)(quantised("blocks")), OF_BLOCKS))[2]
    assert [one.endswith(end) for one, end in zip(sorted(says), sorted(lost), strict=True)] == [True] * many
    scaled = renamed("weight_scale", "qscale_weight")(quantised("tensors"))
    says = looked(cli, stored(tmp_path / "q", without("0.mlp.down_proj.qscale_weight")(scaled), OF_TENSORS))[2]
    assert [one.rpartition(" ")[2] for one in says] == ["model.layers.0.mlp.down_proj.qscale_weight"]


def test_of_few_layers_a_scale_is_held_against_those_of_all_weights(cli: Cli, tmp_path: Path) -> None:
    wrong = scales(lambda one: one * 1000, "layers.1.mlp")(quantised("tensors", layers=2))
    *ends, says = looked(cli, stored(tmp_path / "x", wrong, OF_TENSORS))
    assert (ends, len(says)) == ([1, 1], 1)
    assert "layers.1.mlp.down_proj.weight: fp8, but its scales go up to" in says[0]
    assert "the median of 4 weights is" in says[0]


def renamed(old: str, new: str, change: Callable[[Any], Any] = lambda one: one) -> Change:
    return lambda tensors: {
        name.replace(old, new): change(one) if old in name else one for name, one in tensors.items()
    }


def of_experts(tensors: Tensors) -> Tensors:
    """Return weights of experts as one matrix of each projection, as transformers stores them."""
    first = "model.layers.0.mlp.down_proj.weight"
    found = {"": tensors[first], "_scale_inv": tensors[f"{first}_scale_inv"]}
    return {f"model.layers.0.mlp.experts.down_proj{end}": np.stack([one] * 2) for end, one in found.items()}


def fp4(tensors: Tensors) -> Tensors:
    """Return DeepSeek-V4's experts: two codes of FP4 a byte, a power of two for 32 of them."""
    of_bytes = {name: one.view(np.int8) for name, one in tensors.items() if name.endswith(".weight")}
    return of_bytes | {f"{name}_scale_inv": np.full((256, 16), 2**-8, E8M0) for name in of_bytes}


HEALTHY: Mapping[str, tuple[str, Change, Mapping[str, Any] | None]] = {
    "a plain cast": ("rows", without("_scale"), None),
    "a plain cast with scales of 1": ("rows", lambda _: cast_with_ones(), OF_GROUPS),
    "DeepSeek-V4's name": ("blocks", renamed("weight_scale_inv", "scale"), OF_BLOCKS),
    "Mistral's name": ("tensors", renamed("weight_scale", "qscale_weight"), OF_TENSORS),
    "ComfyUI's name": ("tensors", renamed("weight_scale", "scale_weight"), None),
    "another name": ("tensors", renamed("weight_scale", "w_scale"), OF_TENSORS),
    "experts": ("blocks", of_experts, OF_BLOCKS),
    "experts of FP4": ("blocks", fp4, OF_BLOCKS),
    "powers of two": ("blocks", scales(lambda one: np.exp2(np.ceil(np.log2(one)))), OF_BLOCKS),
    "bytes that are powers of two": (
        "blocks",
        renamed("_inv", "_inv", lambda one: np.exp2(np.ceil(np.log2(one))).astype(E8M0).view(np.uint8)),
        OF_BLOCKS,
    ),
    "larger than any that are trained": ("tensors", scales(lambda one: one * 200), OF_TENSORS),
    "a row of zeros": ("rows", scales(lambda one: np.where(np.arange(256)[:, None] == 3, 0, one)), OF_GROUPS),
    "modules that are listed": ("rows", without("_scale"), {**OF_GROUPS, "ignore": ["lm_head", "re:.*layers.*"]}),
    "a module listed by its end": (
        "rows",
        without("down_proj.weight_scale"),
        {**OF_GROUPS, "ignore": ["mlp.down_proj"]},
    ),
    "bytes without a method of FP8": ("rows", codes(np.int8), {"quant_method": "another"}),
    "E5M2 that is said": ("rows", codes(ml_dtypes.float8_e5m2), {**OF_TENSORS, "fmt": "e5m2"}),
}


def cast_with_ones() -> Tensors:
    weight = (0.02 * np.random.default_rng(0).standard_normal((256, 256))).astype(E4M3)
    return {"a.weight": weight, "a.weight_scale": np.ones((256, 1), "<f4")}


@pytest.mark.parametrize("healthy", HEALTHY)
def test_what_libraries_may_store_is_not_called_wrong(cli: Cli, tmp_path: Path, healthy: str) -> None:
    how, change, settings = HEALTHY[healthy]
    assert looked(cli, stored(tmp_path / "x", change(quantised(how)), settings))[2] == []


def test_names_that_are_scaled_otherwise_are_held_to_the_same_rule(cli: Cli, tmp_path: Path) -> None:
    for at, name in enumerate(("scale", "qscale_weight", "scale_weight")):
        wrong = scales(lambda one: 1 / one)(quantised("tensors"))
        path = stored(tmp_path / str(at), renamed("weight_scale", name)(wrong), OF_TENSORS)
        assert len(looked(cli, path)[2]) == 8


def test_double_scales_of_nvfp4_are_positive_and_may_be_large(cli: Cli, tmp_path: Path) -> None:
    found = {
        "a.weight_packed": np.random.default_rng(0).integers(0, 256, (64, 32), np.uint8),
        "a.weight_scale": np.full((64, 4), 200, E4M3),
        "a.weight_global_scale": np.full(1, 9000, "<f4"),  # by which it divides
    }
    settings = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    assert looked(cli, stored(tmp_path / "x", found, settings)) == (3, 0, [])
    found["a.weight_global_scale"] *= -1
    assert "its scales are from -9000 to -9000" in looked(cli, stored(tmp_path / "y", found, settings))[2][0]


def test_a_scale_in_another_shard_is_a_scale(cli: Cli, tmp_path: Path) -> None:
    tensors = quantised("blocks")
    path = stored(tmp_path / "x", tensors, OF_BLOCKS)
    halves = [{name: one for name, one in tensors.items() if ("_scale" in name) is of} for of in (False, True)]
    where: dict[str, str] = {}
    for at, half in enumerate(halves, 1):
        name = f"model-0000{at}-of-00002.safetensors"
        (stored(tmp_path / str(at), half, None) / "model.safetensors").rename(path / name)
        where |= dict.fromkeys(half, name)
    (path / "model.safetensors").unlink()
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": where}))
    assert looked(cli, path) == (3, 0, [])
    index.write_text(json.dumps({"weight_map": {name: one for name, one in where.items() if "00001" in one}}))
    (path / "model-00002-of-00002.safetensors").unlink()
    assert len(looked(cli, path)[2]) == 8


@pytest.mark.parametrize("settings", [{"ignore": 3}, {"config_groups": [1]}, {"fmt": [2]}, {"quant_algo": {}}])
def test_a_configuration_of_anything_is_read(cli: Cli, tmp_path: Path, settings: Mapping[str, Any]) -> None:
    path = stored(tmp_path / "x", without("_scale")(quantised("rows")), {"quant_method": "fp8", **settings})
    assert looked(cli, path)[0] in (1, 3)


def scaled_by(scales: Any) -> Tensors:
    chance = np.random.default_rng(0)
    found = {"a.qweight": chance.integers(0, 2**31, (32, 128), np.int32), "a.scales": scales}
    return found | {"a.qzeros": np.full((2, 16), 0x77777777, "<i4"), "a.g_idx": np.arange(256, dtype="<i4") // 128}


SIZES = np.random.default_rng(1).uniform(0.004, 0.009, (2, 128)).astype("<f4")
IN_F16, IN_BF16 = SIZES.astype("<f2"), SIZES.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("scales", "other"),
    [
        (IN_F16, ""),
        (IN_BF16, ""),
        (IN_BF16.view("<f2"), "BF16"),
        (IN_F16.view(ml_dtypes.bfloat16), "F16"),
        (np.ones_like(IN_F16), ""),  # may be meant
        ((100 * SIZES).astype("<f2"), ""),  # of weights around 1
    ],
)
def test_scales_of_gptq_whose_bits_are_of_the_other_dtype_are_named(
    cli: Cli, tmp_path: Path, scales: Any, other: str
) -> None:
    says = looked(cli, stored(tmp_path / "x", scaled_by(scales), GPTQ))[2]
    assert len(says) == bool(other)
    assert all(f"where bits of {other} lie under that label" in one for one in says)


def test_scales_of_gptq_that_are_far_from_those_of_the_other_layers_are_named(cli: Cli, tmp_path: Path) -> None:
    layers = {at: scaled_by(((1000 if at == 2 else 1) * SIZES).astype("<f2")) for at in range(4)}
    tensors = {f"model.layers.{at}.{name}": one for at, layer in layers.items() for name, one in layer.items()}
    inspected, verified, says = looked(cli, stored(tmp_path / "x", tensors, GPTQ))
    assert (inspected, verified, len(says)) == (1, 1, 1)
    assert "layers.2.a.qweight" in says[0]
    assert "where the median of 4 layers is" in says[0]


@pytest.mark.parametrize("times", [1, 10, 1000])
def test_scales_in_the_blocks_of_one_layer_that_are_far_from_the_others_are_named(
    cli: Cli, tmp_path: Path, times: int
) -> None:
    writer, q8_0 = gguf.GGUFWriter(tmp_path / "x.gguf", "llama"), gguf.GGMLQuantizationType.Q8_0
    for at in range(4):
        values = 0.02 * np.random.default_rng(at).standard_normal((64, 256)) * (times if at == 2 else 1)
        writer.add_tensor(f"blk.{at}.attn_q.weight", gguf.quantize(values.astype("<f4"), q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    inspected, verified, says = looked(cli, tmp_path / "x.gguf")
    wrong = times == 1000
    assert (inspected, verified, len(says)) == ((1, 1, 1) if wrong else (3, 0, 0))
    assert all("blk.2.attn_q.weight: Q8_0, but its scales go up to 0." in one for one in says)
    assert all("where the median of 4 layers is 0.000" in one for one in says)


@pytest.mark.parametrize("settings", [GPTQ, {"quant_method": "another"}])
def test_the_share_that_is_decided_is_of_weights_and_not_of_the_words_that_hold_them(
    cli: Cli, tmp_path: Path, settings: Mapping[str, Any]
) -> None:
    whole = {"b.weight": (0.02 * np.random.default_rng(0).standard_normal((64, 128))).astype("<f2")}
    path = stored(tmp_path / "x", scaled_by(IN_F16) | whole, settings)  # 4096 words hold 32768 codes
    health = "builtin:checkpoint-health", "--subject", f"checkpoint={path}", "--json", "--gate"
    verified = cli("verify", *health, "GATE-HEALTH-002")
    (finding,) = json.loads(verified.out)[0]["findings"]
    assert (verified.code, finding["code"]) == (3, "too-little-decided")
    assert finding["figures"]["decided_percent"] < 21
    inspected = cli("inspect", path, "--strict")
    assert inspected.code == 3  # as verify
    assert any(line.startswith("    stored dtypes: 1 of 5 tensors decided, which are") for line in inspected.lines)
    assert inspected.lines[-1] == f"  next               weighbridge compare SOURCE {path}"
    advisory = json.loads(cli("verify", *health, "GATE-HEALTH-003").out)[0]["findings"][0]
    assert advisory["outcome"] == ("PASS" if settings is GPTQ else "BLOCKED")  # zero points are no weights beyond F16
