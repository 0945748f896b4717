"""`weighbridge compare` of packed weights: known by their names, never compared with values without a rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.cli.conftest import Cli, Ended
from tests.formats.files import Entry, safetensors

NAMES = {
    np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.uint8): "U8", np.dtype(np.int8): "I8",
    np.dtype(np.int32): "I32", np.dtype(np.int64): "I64", np.dtype(np.uint32): "U32",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3", np.dtype(ml_dtypes.float8_e8m0fnu): "F8_E8M0",
    np.dtype(ml_dtypes.bfloat16): "BF16",
}  # fmt: skip
RNG = np.random.default_rng(3)
NORM = RNG.standard_normal(64).astype(np.float32)
WEIGHT = (RNG.standard_normal((32, 64)) * 0.02).astype(np.float32)


def first(ended: Ended) -> str:
    """Return the first line below the head that is no note."""
    return next(line for line in ended.lines[1:] if not line.startswith("  note: "))


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
    "GPTQ of 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": 32}, "gptq (3 bits, groups of 32)",
                       {"p__qweight": of(np.int32, 6, 32), "p__qzeros": of(np.int32, 2, 3),
                        "p__scales": of(np.float16, 2, 32), "p__g_idx": of(np.int32, 64)}),
    "AWQ of another kernel": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
                              "awq (4 bits, groups of 32)",
                              {"p__qweight": of(np.int32, 32, 8), "p__qzeros": of(np.int32, 32, 1),
                               "p__scales": of(np.float16, 32, 2)}),
    "NF4 without its state": ({"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}, "bitsandbytes (nf4)",
                              {"p__weight": of(np.uint8, 1024, 1), "p__weight__absmax": of(np.float32, 32),
                               "p__weight__quant_map": of(np.float32, 16),
                               "p.weight.quant_state.bitsandbytes__nf4": of(np.uint8, 80)}),
    "NVFP4": ({"quant_method": "modelopt"}, "modelopt",
              {"p__weight": of(np.uint8, 32, 32), "p__weight_scale": of(F8, 32, 4),
               "p__weight_scale_2": of(np.float32), "p__input_scale": of(np.float32)}),
    "NVFP4 of compressed-tensors": (
        {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {
            "a": {"weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}},
        "compressed-tensors (nvfp4-pack-quantized)",
        {"p__weight_packed": of(np.uint8, 32, 32), "p__weight_scale": of(F8, 32, 4),
         "p__weight_global_scale": of(np.float32, 1)}),
    "GPTQ with keys of one module": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"+:.*p": {"bits": 8}}},
        "gptq (4 bits, groups of 32)",
        {"p__qweight": of(np.int32, 8, 32), "p__qzeros": of(np.int32, 2, 4), "p__scales": of(np.float16, 2, 32)}),
    "a method that nobody here knows": ({"quant_method": "aqlm"}, "aqlm",
                                        {"p__codes": of(np.int8, 32, 8, 1), "p__codebooks": of(np.float16, 1, 256, 8)}),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
def test_what_no_rule_reads_is_blocked_by_its_name_and_the_rest_is_compared(
    cli: Cli, tmp_path: Path, case: str
) -> None:
    settings, printed, tensors = UNREAD[case]
    source, packed = model(tmp_path / "source", p__weight=WEIGHT), model(tmp_path / "packed", settings, **tensors)
    for pair in ((source, packed), (packed, source)):
        ended = cli("compare", *pair)
        assert ended.code == 3, ended.lines
        assert first(ended) == f"  p.weight: not compared: packed by {printed}: no rule"
        assert "  1 BYTES_EQUAL, 1 not compared" in ended.lines
        assert "different content" not in "\n".join(ended.lines)


def test_what_is_broken_beside_packed_weights_is_still_reported(cli: Cli, tmp_path: Path) -> None:
    settings, _, tensors = UNREAD["GPTQ of 3 bits"]
    source = model(tmp_path / "source", p__weight=WEIGHT)
    packed = model(tmp_path / "packed", settings, **tensors, norm__weight=NORM[::-1].copy())
    ended = cli("compare", source, packed)
    assert ended.code == 1
    assert ended.lines[-1].startswith("DIFFERENT: 1 of 2 tensors")


def test_two_packed_alike_are_compared_as_they_are_stored(cli: Cli, tmp_path: Path) -> None:
    settings, _, tensors = UNREAD["GPTQ of 3 bits"]
    one, same = (model(tmp_path / name, settings, **tensors) for name in ("one", "same"))
    other = model(tmp_path / "other", settings, **{**tensors, "p__scales": of(np.float16, 2, 32) * 2})
    assert cli("compare", one, same).lines[-1].startswith("SAME: 5 of 5 tensors")
    ended = cli("compare", one, other)
    assert ended.code == 1
    assert ended.lines[1].startswith("  p.scales: F16 -> F16, but 64 of 64 elements are not the source's")


# What transformers' quantisers store of a weight that no rule reads, each by its `quant_method`.
METHODS: dict[str, dict[str, Any]] = {
    "aqlm": {"codes": of(np.int8, 32, 8, 1), "codebooks": of(np.float16, 1, 256, 8), "scales": of(np.float16, 32, 1)},
    "auto-round": {"qweight": of(np.int32, 8, 32), "qzeros": of(np.int32, 2, 4), "scales": of(np.float16, 2, 32)},
    "bitnet": {"weight": of(np.uint8, 8, 64), "weight_scale": of(BF16, 1)},
    "eetq": {"weight": of(np.int8, 64, 32), "weight_scales": of(np.float16, 32)},
    "fouroversix": {"quantized_weight_values": of(np.uint8, 32, 32), "quantized_weight_scale_factors": of(F8, 32, 4)},
    "fp_quant": {"qweight": of(np.uint8, 32, 32), "scales": of(np.uint8, 32, 2), "act_global_scale": of(BF16, 1)},
    "gemma": {"weight": of(np.int8, 32, 32), "weight_scale": of(np.float32, 32, 1),
              "input_activation_scale": of(np.float32), "output_activation_scale": of(np.float32)},
    "higgs": {"weight": of(np.uint8, 32, 32), "scales": of(BF16, 32, 1), "tables": of(BF16, 16),
              "tables2": of(BF16, 16, 16, 2)},
    "hqq": {"W_q": of(np.uint8, 32, 32), "scale": of(BF16, 32, 1), "zero": of(BF16, 32, 1)},
    "metal": {"weight": of(np.uint32, 32, 8), "scales": of(BF16, 32, 1), "qbiases": of(BF16, 32, 1)},
    "mxfp8": {"weight": of(F8, 32, 64), "weight_scale_inv": of(np.uint8, 32, 2)},
    "nvfp4": {"weight": of(np.uint8, 32, 32), "weight_scale": of(F8, 32, 4), "weight_scale_2": of(np.float32)},
    "quark": {"weight": of(np.int32, 32, 8), "weight_scale": of(BF16, 32, 2), "weight_zero_point": of(np.int32, 2)},
    "sinq": {"W_q": of(np.uint8, 32, 32), "scale": of(BF16, 32), "scale2": of(BF16, 64)},
    "spqr": {"dense_weights": of(np.int64, 64), "row_offsets": of(np.int32, 33), "col_vals": of(np.int32, 1)},
    "vptq": {"indices": of(np.int32, 1, 32, 8), "centroids.weight": of(np.float16, 1, 64)},
}  # fmt: skip
READ = {  # each by its folder below, or FBGEMM's, which has the names and dtypes of another
    "awq", "bitsandbytes_4bit", "bitsandbytes_8bit", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "mxfp4",
    "quanto", "torchao",
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_transformers_without_a_rule_is_not_compared_and_never_other_weights(
    cli: Cli, tmp_path: Path, method: str
) -> None:
    tensors = {f"p.{name}": one for name, one in METHODS[method].items()}
    ended = cli(
        "compare",
        model(tmp_path / "source", p__weight=WEIGHT),
        model(tmp_path / "packed", {"quant_method": method}, **tensors),
    )
    assert ended.code == 3, ended.lines
    assert first(ended) == f"  p.weight: not compared: packed by {method}: no rule"
    assert ended.lines[-1].startswith("BLOCKED: packed: 1 ")


@pytest.mark.parametrize("method", ["aqlm", "eetq", "fouroversix", "higgs", "hqq", "sinq", "spqr", "vptq"])
def test_names_tell_a_method_where_no_configuration_does(cli: Cli, tmp_path: Path, method: str) -> None:
    tensors = {f"p.{name}": one for name, one in METHODS[method].items()}
    ended = cli("compare", model(tmp_path / "source", p__weight=WEIGHT), model(tmp_path / "packed", **tensors))
    assert ended.code == 3, ended.lines
    assert first(ended) == f"  p.weight: not compared: packed by {method}: no rule"
    assert not [line for line in ended.lines if " is in the " in line]


def unsaid(folder: Path, name: str, **files: Any) -> Path:
    """Write what a library packed with a config.json that says nothing of it, and other files beside."""
    kept(folder, name, lambda _tensors, _config: None)
    config = json.loads((folder / "config.json").read_text())
    left = {key: one for key, one in config.items() if key not in ("quantization", "quantization_config")}
    for file, what in {"config": left, **files}.items():
        (folder / f"{file}.json").write_text(json.dumps(what))
    return folder


BY_CONFIGURATION = {
    "awq-gemm": "gptq or awq", "bitsandbytes-int8": "bitsandbytes (int8)", "bitsandbytes-nf4": "bitsandbytes",
    "compressed-tensors-fp8-channel": "scaled", "compressed-tensors-int8-channel": "scaled",
    "compressed-tensors-pack4": "compressed-tensors", "gptq-4": "gptq or awq", "mlx-q4": "mlx",
    "torchao-int8": "torchao", "transformers-fp8-blocks": "fp8",
}  # fmt: skip


@pytest.mark.parametrize("name", BY_CONFIGURATION)
def test_a_configuration_that_was_dropped_fails_the_import_and_its_inspection(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    folder, said = unsaid(tmp_path / "packed", name), "config.json has no quantization_config"
    ended = cli("compare", unpacked(name), folder)
    why = f"packed by {BY_CONFIGURATION[name]}, and no loader unpacks it: {said}"
    assert (ended.code, why in first(ended)) == (1, True)
    of_import = cli("verify", *IMPORT, f"source={unpacked(name)}", "--subject", f"import={folder}", "--json")
    (finding,) = json.loads(of_import.out)[0]["findings"]
    assert (finding["outcome"], finding["code"]) == ("FAIL", "unloadable")
    inspected = cli("inspect", folder, "--strict", "--json")
    found = {one["says"].partition(" but ")[2] for one in json.loads(inspected.out)["findings"]}
    assert (inspected.code, said in found) == (1, True)


IMPORT = "builtin:model-import", "--gate", "GATE-MODEL-001", "--param", "policy=packed", "--subject"


@pytest.mark.parametrize("name", ["compressed-tensors-pack4", "gptq-4", "mlx-q4"])
def test_a_source_whose_configuration_is_missing_is_not_compared(cli: Cli, tmp_path: Path, name: str) -> None:
    ended = cli("compare", unsaid(tmp_path / "packed", name), unpacked(name))
    assert ended.code == 3
    assert first(ended).endswith(f"{BY_CONFIGURATION[name]}, and no quantization_config says how: no rule")


def test_two_without_a_configuration_are_compared_as_they_are_stored(cli: Cli, tmp_path: Path) -> None:
    one, same = (unsaid(tmp_path / name, "transformers-fp8-blocks") for name in ("one", "same"))
    assert cli("compare", one, same).lines[-1].startswith("SAME: 5 of 5 tensors")
    ended = cli("compare", HERE / "transformers-fp8-blocks", one)
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 2 of 3 tensors: 2 that no loader unpacks")


def test_the_settings_of_gptq_are_read_where_autogptq_wrote_them(cli: Cli, tmp_path: Path) -> None:
    own = {"bits": 4, "group_size": 32, "damp_percent": 0.01, "desc_act": False, "sym": True}
    right = cli("compare", unpacked("gptq-4"), unsaid(tmp_path / "right", "gptq-4", quantize_config=own))
    assert (right.code, "1 WITHIN_BOUND" in first(right)) == (0, True)
    other = unsaid(tmp_path / "other", "gptq-4", quantize_config={**own, "bits": 8})
    assert cli("compare", unpacked("gptq-4"), other).code == 1
    elsewhere = unsaid(tmp_path / "elsewhere", "awq-gemm", quant_config={"w_bit": 4, "q_group_size": 32})
    assert cli("compare", unpacked("awq-gemm"), elsewhere).code == 3  # nobody reads that file


ANOTHER: dict[str, tuple[str, dict[str, Any], str]] = {  # of a packing, what its configuration then says
    "gptq as fp8": ("gptq-4", {"quant_method": "fp8"}, "says fp8, and it is stored as by gptq or awq"),
    "fp8 as gptq": ("transformers-fp8-blocks", {"quant_method": "gptq"}, "says gptq, and it is stored as by fp8"),
    "nf4 as fp8": ("bitsandbytes-nf4", {"quant_method": "fp8"}, "says fp8, and it is stored as by bitsandbytes"),
    "scaled": ("compressed-tensors-fp8-channel", {"quant_method": "awq"}, "says awq, and it is stored as by scaled"),
    "nf4 as int8": ("bitsandbytes-nf4", {"load_in_4bit": False}, "says load_in_4bit: false"),
    "int8 as nf4": ("bitsandbytes-int8", {"load_in_8bit": False}, "says load_in_8bit: false"),
    "skipped": (
        "bitsandbytes-nf4",
        {"llm_int8_skip_modules": ["up_proj"]},
        "lists its module as one that is not packed",
    ),
}


@pytest.mark.parametrize("what", ANOTHER)
def test_a_configuration_of_another_method_fails_the_import_and_its_inspection(
    cli: Cli, tmp_path: Path, what: str
) -> None:
    name, changed, said = ANOTHER[what]
    folder = kept(tmp_path / "packed", name, lambda _tensors, config: config.update(changed))
    ended = cli("compare", unpacked(name), folder)
    assert (ended.code, f"no loader unpacks it: quantization_config {said}" in ended.out) == (1, True), ended.out
    assert sum("packed weights are not what they were" in line for line in ended.lines) <= 1  # of all keys
    inspected = cli("inspect", folder, "--strict")
    assert (inspected.code, f"quantization_config {said}" in inspected.out) == (1, True)


def test_what_one_weight_lacks_is_said_as_by_inspect(cli: Cli, tmp_path: Path) -> None:
    def no_scale(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        del tensors[f"{STEM}.weight_scale_inv"]

    def no_input_scale(_tensors: dict[str, Any], config: dict[str, Any]) -> None:
        config["activation_scheme"] = "static"

    def listed(_tensors: dict[str, Any], config: dict[str, Any]) -> None:
        config["modules_to_not_convert"] = ["lm_head", "up_proj"]

    for damage, said in {
        no_scale: f"there is no {STEM}.weight_scale_inv",
        no_input_scale: f"its inputs have a static scheme, and no {STEM}.input_scale is there",
        listed: "quantization_config lists its module as one that is not packed",
    }.items():
        folder = kept(tmp_path / damage.__name__, "transformers-fp8-blocks", damage)
        ended = cli("compare", unpacked("transformers-fp8-blocks"), folder)
        assert f"  {STEM}.weight: packed by fp8, and no loader unpacks it: {said}" in ended.lines
        inspected = json.loads(cli("inspect", folder, "--json").out)["findings"]
        assert f"{STEM}.weight: fp8, but {said}" in [one["says"] for one in inspected]


@pytest.mark.parametrize(
    ("name", "what", "code"),
    [
        ("model.up_proj.bias", np.zeros(16, np.float16), 0),
        ("model.up_proj.bias", np.full(16, 0.1, np.float16), 1),
        ("model.norm.bias", np.zeros(128, np.float16), 1),
        ("model.self_attn.k_scale", np.full(1, 0.03, np.float32), 0),
        ("model.self_attn.v_scale", np.zeros(1, np.float32), 1),
        ("model.self_attn.v_scale", np.full(1, np.nan, np.float32), 1),
        ("model.self_attn.q_scales", np.full(1, 0.03, np.float32), 1),
    ],
)
def test_what_a_packer_adds_is_left_out_only_where_it_changes_no_weight(
    cli: Cli, tmp_path: Path, name: str, what: Any, code: int
) -> None:
    folder = kept(tmp_path / "packed", "gptq-4", lambda tensors, _config: tensors.update({name: what}))
    ended = cli("compare", unpacked("gptq-4"), folder)
    assert (ended.code, "1 LEFT_OUT" in first(ended)) == (code, code == 0)
    assert code == 0 or first(ended).endswith("is in the candidate and not in the source")


def test_scales_of_columns_or_zero_points_are_not_taken_for_scales_of_rows(cli: Cli, tmp_path: Path) -> None:
    source = model(tmp_path / "source", p__weight=WEIGHT[:, :32].copy())
    columns = {"p.weight._data": of(np.int8, 32, 32), "p.weight._scale": of(BF16, 1, 32)}
    zeros = {"p._weight_qdata": of(np.int8, 32, 32), "p._weight_scale": of(np.float32, 32, 1)}
    zeros["p._weight_zero_point"] = of(np.int8, 32, 1)
    for at, (method, tensors) in enumerate({"quanto": columns, "torchao": zeros}.items()):
        ended = cli("compare", source, model(tmp_path / str(at), {"quant_method": method}, **tensors))
        assert first(ended) == f"  p.weight: not compared: packed by {method}: no rule"


@pytest.mark.slow
def test_the_page_lists_every_method_of_transformers_with_its_answer() -> None:
    page = (Path(__file__).parents[2] / "spec" / "tensor-values.md").read_text()
    listed = dict(re.findall(r"^\| `([\w-]+)` \| (compared|not compared|no packing)\b", page, re.MULTILINE))
    printed = dict.fromkeys(METHODS, "not compared") | dict.fromkeys(READ, "compared") | {"gguf": "no packing"}
    assert listed == printed
    known = pytest.importorskip("transformers.quantizers.auto").AUTO_QUANTIZER_MAPPING
    assert set(known) <= set(printed)


# --- Packings that a rule reads ---------------------------------------------------------------------------------------

HERE = Path(__file__).parent / "packed_by_others"  # see its README.md
NEAREST = {
    "bitsandbytes-int8", "bitsandbytes-nf4", "bitsandbytes-nf4-double", "compressed-tensors-fp8-channel",
    "compressed-tensors-fp8-tensor", "compressed-tensors-int8-channel", "compressed-tensors-pack4", "mlx-q4", "mlx-q8",
    "quanto-float8", "quanto-int8", "torchao-float8", "torchao-int8", "transformers-fp8-blocks",
    "transformers-fp8-ue8m0",
}  # fmt: skip
CHOSEN = {"awq-gemm", "gptq-4", "gptq-4-desc-act", "gptq-8"}  # whose packer chose other codes than the nearest


def unpacked(name: str) -> Path:
    return HERE / ("source-32" if name in CHOSEN else "source")


@pytest.mark.parametrize(
    "name", sorted(one.name for one in HERE.iterdir() if "-" in one.name and one.name != "source-32")
)
def test_what_its_library_packed_is_as_meant_or_not_compared(cli: Cli, name: str) -> None:
    ended = cli("compare", unpacked(name), HERE / name)
    if name in NEAREST:
        assert ended.code == 0
        assert (
            first(ended)
            == "  3 of 3 tensors are what the file declares, 4224 elements (1 BYTES_EQUAL, 2 NEAREST_CODES)"
        )
    elif name in CHOSEN:
        assert ended.code == 0
        assert (
            first(ended) == "  2 of 2 tensors are what the file declares, 2112 elements (1 BYTES_EQUAL, 1 WITHIN_BOUND)"
        )
    else:
        assert ended.code == 3
        assert first(ended).startswith("  model.down_proj.weight: not compared: packed by ")
    assert cli("compare", unpacked(name), HERE / name, "--policy", "same").code == (1 if ended.code == 0 else 3)


def loaded(path: Path) -> dict[str, Any]:
    """Read a safetensors file, also in dtypes that its package has no arrays for."""
    data, dtypes = path.read_bytes(), {said: dtype for dtype, said in NAMES.items()}
    body = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for key, one in json.loads(data[8:body]).items():
        if key != "__metadata__":
            start, stop = one["data_offsets"]
            part = data[body + start : body + stop]
            found[key] = np.frombuffer(part, dtypes[one["dtype"]]).reshape(one["shape"])
    return found


def kept(folder: Path, name: str, damage: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Write what a library packed again, with a damage to its tensors or to its configuration."""
    folder.mkdir()
    tensors, config = (
        loaded(HERE / name / "model.safetensors"),
        json.loads((HERE / name / "config.json").read_text()),
    )
    damage(tensors, config.setdefault("quantization_config", {}))
    safetensors(
        folder / "model.safetensors",
        {key: (NAMES[one.dtype], one.shape, one.tobytes()) for key, one in tensors.items()},
    )
    (folder / "config.json").write_text(json.dumps(config))
    return folder


STEM = "model.up_proj"
STORED = {  # what holds the codes, and what the scales
    "awq-gemm": (".qweight", ".scales"), "gptq-4": (".qweight", ".scales"), "gptq-4-desc-act": (".qweight", ".scales"),
    "gptq-8": (".qweight", ".scales"), "bitsandbytes-int8": (".weight", ".SCB"),
    "bitsandbytes-nf4": (".weight", ".weight.absmax"), "bitsandbytes-nf4-double": (".weight", ".weight.absmax"),
    "compressed-tensors-int8-channel": (".weight", ".weight_scale"),
    "compressed-tensors-pack4": (".weight_packed", ".weight_scale"),
    "quanto-int8": (".weight._data", ".weight._scale"), "torchao-int8": ("._weight_qdata", "._weight_scale"),
}  # fmt: skip


def damaged(name: str) -> dict[str, Callable[[dict[str, Any], dict[str, Any]], None]]:
    codes, scales = (STEM + ending for ending in STORED[name])
    eight = name.endswith(("-8", "int8", "int8-channel"))

    def wrong_scale(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        many = slice(0, 1) if name in NEAREST - {"compressed-tensors-pack4"} else slice(None)  # chosen codes hide one
        one = tensors[scales].copy()
        one[many] = one[many] ^ 0x60 if one.dtype == np.uint8 else one[many] * one.dtype.type(1.5)
        tensors[scales] = one

    def swapped(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        one = tensors[codes]
        data: Any = np.ascontiguousarray(one).view(np.uint8)
        data = data.reshape(-1, 2)[:, ::-1].copy() if eight else data << 4 | data >> 4
        tensors[codes] = data.reshape(-1).view(one.dtype).reshape(one.shape)

    def other_groups(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        state = next((key for key in tensors if key.startswith(STEM) and "quant_state" in key), "")
        if state:
            printed = tensors[state].tobytes().replace(b'"blocksize": 64', b'"blocksize": 32')
            tensors[state] = np.frombuffer(printed, np.uint8)
        elif name == "compressed-tensors-pack4":
            config["config_groups"]["group_0"]["weights"]["group_size"] = 32
        elif "group_size" in config:
            config["group_size"] = 16
        else:  # one scale for two rows
            tensors[scales] = np.repeat(tensors[scales][::2], 2, axis=0)

    def zero_off_by_one(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        zeros = f"{STEM}.qzeros"
        if zeros in tensors:
            tensors[zeros] = (tensors[zeros].view(np.uint8) ^ (1 if eight else 0x11)).view(np.int32)
        else:
            one = np.ascontiguousarray(tensors[codes])
            data = one.view(np.uint8)
            tensors[codes] = np.asarray(data + 1 if eight else data ^ 0x11).view(one.dtype)

    def scales_of_another(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        other = tensors.get(scales.replace("up", "down"))
        tensors[scales] = np.roll(tensors[scales], 1, axis=1) if other is None else other

    return {one.__name__: one for one in (wrong_scale, swapped, other_groups, zero_off_by_one, scales_of_another)}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORED)
def test_no_damage_to_what_a_library_packed_passes(cli: Cli, tmp_path: Path, name: str) -> None:
    for called, damage in damaged(name).items():
        ended = cli("compare", unpacked(name), kept(tmp_path / called, name, damage))
        assert ended.code == 1, (called, ended.lines)
        assert any(line.startswith(f"  {STEM}.weight: ") for line in ended.lines), (called, ended.lines)


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


@pytest.mark.slow
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


def test_mxfp4_gives_the_values_of_what_was_unpacked_from_it_turned_as_the_model_has_them(
    cli: Cli, tmp_path: Path
) -> None:
    three = np.stack([WEIGHT, OTHER, WEIGHT * 3])
    parts = [mxfp4("p", one) for one in three]
    stacked = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    packed = model(tmp_path / "packed", SETTINGS[mxfp4], **stacked)
    blocks = gguf.quantize(three.reshape(-1, 64), gguf.GGMLQuantizationType.MXFP4)
    values = gguf.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4).reshape(3, 32, 64).transpose(0, 2, 1)
    right = model(tmp_path / "right", p__weight=np.ascontiguousarray(values.astype(BF16)))
    ended = cli("compare", packed, right)
    assert ended.code == 0, ended.lines
    assert "1 ROUNDED_EXACT" in ended.lines[1]
    values[2, 63, 31] += 0.5
    assert (
        cli("compare", packed, model(tmp_path / "other", p__weight=np.ascontiguousarray(values.astype(BF16)))).code == 1
    )


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


def test_rows_that_end_between_two_steps_are_kept_whole(cli: Cli, tmp_path: Path) -> None:
    values = RNG.standard_normal((33, 65)).astype(np.float32)
    scales = np.abs(values).max(1, keepdims=True) / np.float32(127)
    codes = np.rint(values / scales).astype(np.int8)
    source, settings = model(tmp_path / "source", p__weight=values), {"quant_method": "compressed-tensors"}
    packed = model(tmp_path / "packed", settings, p__weight=codes, p__weight_scale=scales)
    assert cli("compare", source, packed).code == 0
    codes[32, 64] ^= 1
    ended = cli("compare", source, model(tmp_path / "other", settings, p__weight=codes, p__weight_scale=scales))
    assert "1 of 2145 codes is not the nearest" in ended.lines[1]


# --- Packed weights as a source ---------------------------------------------------------------------------------------


def by_gptq(tensors: dict[str, Any], bits: int) -> Any:
    """Compute what GPTQ's and AutoGPTQ's formula gives, column by column."""
    codes, zeros, scales, groups = (tensors[f"{STEM}.{end}"] for end in ("qweight", "qzeros", "scales", "g_idx"))
    most, per = (1 << bits) - 1, 32 // bits
    shifts = bits * np.arange(per)
    code = (codes[:, None, :] >> shifts[None, :, None] & most).reshape(-1, codes.shape[1])
    zero = (zeros[:, :, None] >> shifts & most).reshape(scales.shape) + 1
    return ((code - zero[groups]) * scales[groups].astype(np.float32)).T.astype(np.float16)


def by_mlx(tensors: dict[str, Any], bits: int, of: str) -> Any:
    """Compute as mlx does: every step rounded to the dtype of the scales."""
    codes, scales, biases = (tensors[f"{of}.{end}"] for end in ("weight", "scales", "biases"))
    code = (codes[:, :, None] >> (bits * np.arange(32 // bits, dtype=np.uint32)) & ((1 << bits) - 1)).reshape(16, 128)
    each = 128 // scales.shape[1]
    product = (code.astype(BF16) * np.repeat(scales, each, axis=1)).astype(BF16)
    return (product + np.repeat(biases, each, axis=1)).astype(BF16)


@pytest.mark.parametrize(
    ("name", "bits"), [("gptq-4", 4), ("gptq-4-desc-act", 4), ("gptq-8", 8), ("mlx-q4", 4), ("mlx-q8", 8)]
)
def test_what_was_unpacked_holds_the_values_of_its_packed_source(
    cli: Cli, tmp_path: Path, name: str, bits: int
) -> None:
    tensors = load_file(HERE / name / "model.safetensors")
    stems = ("model.up_proj", "model.down_proj") if "mlx" in name else (STEM,)
    made = {of: by_mlx(tensors, bits, of) if "mlx" in name else by_gptq(tensors, bits) for of in stems}
    norm = tensors["model.norm.weight"]

    def compared(**changed: Any) -> Any:
        values = {f"{of}.weight": one for of, one in (made | changed).items()} | {"model.norm.weight": norm}
        entries = {key: (NAMES[one.dtype], one.shape, one.tobytes()) for key, one in values.items()}
        safetensors(tmp_path / "unpacked.safetensors", entries)
        return cli("compare", HERE / name, tmp_path / "unpacked.safetensors")

    right = compared()
    assert right.code == 0
    assert ("VALUE_EQUAL" if "mlx" in name else "1 ROUNDED_EXACT") in right.out
    one_bit = made[STEM].copy()
    one_bit.view(np.uint16)[3, 5] ^= 1
    exchanged = made[STEM].copy()
    exchanged[[1, 2]] = exchanged[[2, 1]]
    for damaged in (one_bit, exchanged):
        ended = compared(**{STEM: damaged})
        assert (ended.code, f"DIFFERENT: 1 of {len(stems) + 1} tensors" in ended.lines[-1]) == (1, True)


def blocks_file(path: Path, data: Any, dtype: Any = None) -> Path:
    """Write a GGUF file of one matrix, plain or in blocks, and one norm."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_up.weight", data, raw_dtype=dtype)
    writer.add_tensor("blk.0.ffn_norm.weight", NORM)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_blocks_are_the_source_of_what_was_decoded_from_them(cli: Cli, tmp_path: Path) -> None:
    blocks = gguf.quantize(WEIGHT, gguf.GGMLQuantizationType.Q8_0)
    values = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)

    source = blocks_file(tmp_path / "q8.gguf", blocks, gguf.GGMLQuantizationType.Q8_0)
    ended = cli("compare", source, blocks_file(tmp_path / "f32.gguf", values))
    assert (ended.code, "1 VALUE_EQUAL" in ended.out) == (0, True)
    damaged = values.copy()
    damaged.view(np.uint32)[3, 5] ^= 1
    assert cli("compare", source, blocks_file(tmp_path / "f32.gguf", damaged)).code == 1
