"""Keys of `quantization_config` are part of packed weights: each side's codes are read by its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import HERE, STEM, kept, model

pytestmark = pytest.mark.slow


def copy(tmp_path: Path, name: str, changed: dict[str, Any] | None) -> tuple[Path, Path]:
    """Copy what a library packed, and change keys of its configuration; None takes all of them away."""
    folder = tmp_path / "copy"
    shutil.copytree(HERE / name, folder)
    config = json.loads((folder / "config.json").read_text())
    for key in ("quantization_config", "quantization"):
        if changed is None:
            config.pop(key, None)
        elif key in config:
            config[key] |= changed
    (folder / "config.json").write_text(json.dumps(config))
    return HERE / name, folder


def scheme(**changed: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    return {"config_groups": {"group_0": {"weights": weights | changed}}}


OTHERWISE: dict[str, tuple[str, dict[str, Any], str]] = {  # of a packing, keys by which its codes are other values
    "gptq_v2": ("gptq-4", {"checkpoint_format": "gptq_v2", "sym": False}, "checkpoint_format unsaid -> gptq_v2"),
    "gptq_v2 and sym": ("gptq-4", {"checkpoint_format": "gptq_v2"}, "sym true means zero points of 8"),
    "8 bits": ("gptq-4", {"bits": 8}, "bits 4 -> 8"),
    "groups of 128": ("gptq-4", {"group_size": 128}, "group_size 32 -> 128"),
    "GPTQ as AWQ": ("gptq-4", {"quant_method": "awq"}, "quant_method gptq -> awq"),
    "groups in order": ("gptq-4-desc-act", {"desc_act": False}, "desc_act true -> false"),
    "sym": ("gptq-4-desc-act", {"sym": True}, "sym false -> true"),
    "AWQ as GPTQ": ("awq-gemm", {"quant_method": "gptq"}, "quant_method awq -> gptq"),
    "no zero point": ("awq-gemm", {"zero_point": False}, "zero_point true -> false"),
    "AWQ's groups": ("awq-gemm", {"group_size": 64}, "group_size 32 -> 64"),
    "blocks": ("transformers-fp8-blocks", {"weight_block_size": [128, 128]}, "weight_block_size [8, 64] -> [128, 128]"),
    "a type": ("compressed-tensors-int8-channel", scheme(type="float"), "weights.type int -> float"),
    "a strategy": ("compressed-tensors-int8-channel", scheme(strategy="tensor"), "weights.strategy channel -> tensor"),
    "a format": ("compressed-tensors-int8-channel", {"format": "pack-quantized"}, "int-quantized -> pack-quantized"),
    "another format": ("compressed-tensors-pack4", {"format": "int-quantized"}, "pack-quantized -> int-quantized"),
    "pack4's groups": ("compressed-tensors-pack4", scheme(num_bits=4, strategy="group", group_size=32), "64 -> 32"),
    "MLX's bits": ("mlx-q4", {"bits": 8}, "bits 4 -> 8"),
    "MLX's groups": ("mlx-q4", {"group_size": 32}, "group_size 64 -> 32"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERWISE)
def test_equal_codes_under_keys_that_read_them_otherwise_are_other_values(cli: Cli, tmp_path: Path, case: str) -> None:
    name, changed, printed = OTHERWISE[case]
    pair = copy(tmp_path, name, changed)
    for policy in ((), ("--policy", "same"), ("--policy", "packed")):
        ended = cli("compare", *pair, *policy)
        assert ended.code == 1
        of_codes = [line for line in ended.lines if "elements explained: packing-keys: " in line]
        assert of_codes, ended.lines
        assert all(printed in line and ", whose keys differ: " in line for line in of_codes)
        assert ended.lines[-1].endswith("changed (packing-keys)")
        assert not [line for line in ended.lines if "known to be harmless" in line and "quantization" in line]


UNREAD: dict[str, tuple[str, dict[str, Any] | None, str]] = {
    "another kernel": ("awq-gemm", {"version": "gemv"}, "version gemm -> gemv"),
    "AWQ of 8 bits": ("awq-gemm", {"bits": 8}, "bits 4 -> 8"),
    "a key that no rule reads": ("gptq-4", {"novel": 1}, "novel unsaid -> 1"),
    "modules of their own": ("gptq-4", {"dynamic": {"+:.*up.*": {"bits": 8}}}, "dynamic.+:.*up.*.bits unsaid -> 8"),
    "modules that are left alone": ("gptq-4", {"dynamic": {"-:.*down.*": {}}}, "dynamic.-:.*down.* unsaid -> {}"),
    "int8": ("bitsandbytes-nf4", {"load_in_8bit": True}, "load_in_8bit unsaid -> true"),
    "a packing without a rule": ("mlx-q3", {"group_size": 32}, "group_size 64 -> 32"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
def test_equal_codes_under_keys_that_no_rule_reads_are_blocked_by_the_keys(cli: Cli, tmp_path: Path, case: str) -> None:
    name, changed, printed = UNREAD[case]
    ended = cli("compare", *copy(tmp_path, name, changed))
    assert ended.code == 3, ended.lines
    assert " not compared: packed by " in ended.lines[1]
    assert printed in ended.lines[1]
    assert ended.lines[1].endswith(": no rule")


@pytest.mark.parametrize("name", ["gptq-4", "compressed-tensors-pack4", "transformers-fp8-blocks"])
def test_equal_codes_that_lost_their_configuration_are_what_no_loader_unpacks(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    ended = cli("compare", *copy(tmp_path, name, None))
    assert (ended.code, "no loader unpacks it: config.json has no quantization_config" in ended.lines[1]) == (1, True)


@pytest.mark.parametrize(
    ("method", "names"), [("aqlm", ("p.codes", "p.codebooks", "p.weight")), ("own", ("p.n", "p.of", "p.n"))]
)
def test_codes_of_a_method_without_any_rule_are_blocked_by_the_keys_that_differ(
    cli: Cli, tmp_path: Path, method: str, names: tuple[str, str, str]
) -> None:
    codes, values, weight = names
    stored: dict[str, Any] = {codes: np.ones((32, 8, 1), np.int8), values: np.ones((1, 256, 8), np.float16)}
    keys = {"quant_method": method, "in_group_size": 8}
    one, same = (model(tmp_path / name, keys, **stored) for name in ("one", "same"))
    other = model(tmp_path / "other", keys | {"in_group_size": 4}, **stored)
    assert cli("compare", one, same).lines[-1].startswith("SAME: 3 of 3 tensors")
    ended = cli("compare", one, other)
    assert ended.code == 3
    printed = f"{weight}: not compared: packed by {method}, whose keys differ: in_group_size 8 -> 4: no rule"
    assert ended.lines[1] == f"  {printed}"


IDLE: dict[str, tuple[str, dict[str, Any]]] = {
    "GPTQ's damping": ("gptq-4", {"damp_percent": 0.1, "true_sequential": True}),
    "zero points that the file has anyway": ("gptq-4", {"sym": False}),
    "groups that are in order": ("gptq-4", {"desc_act": True}),
    "the format that is taken": ("gptq-4", {"checkpoint_format": "gptq"}),
    "what each weight says of itself": ("bitsandbytes-nf4", {"bnb_4bit_quant_type": "fp4"}),
    "the version of a library": ("compressed-tensors-pack4", {"version": "0.9"}),
}  # fmt: skip


@pytest.mark.parametrize(("case", "code"), [("gptq_v2", 1), ("8 bits", 1), ("zero points that the file has anyway", 0)])
def test_a_contract_that_keeps_dtypes_holds_the_values_of_equal_codes(
    cli: Cli, tmp_path: Path, case: str, code: int
) -> None:
    source, changed = copy(tmp_path, *(OTHERWISE.get(case) or IDLE[case])[:2])
    bound = "--subject", f"source={source}", "--subject", f"import={changed}"
    ended = cli("verify", "builtin:checkpoint-import", *bound)
    assert ended.code == code, ended.lines
    assert ("elements explained: packing-keys: " in ended.out) is bool(code)


@pytest.mark.parametrize("case", IDLE)
def test_keys_that_change_no_value_stay_harmless(cli: Cli, tmp_path: Path, case: str) -> None:
    for policy in ("packed", "same"):
        ended = cli("compare", *copy(tmp_path / policy, *IDLE[case]), "--policy", policy)
        assert ended.code == 0, ended.lines
        assert ended.lines[-1].startswith("SAME")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gptq-4", "modules_to_not_convert", ["up_proj"]),
        ("transformers-fp8-blocks", "activation_scheme", "static"),
        ("compressed-tensors-int8-channel", "ignore", ["lm_head"]),
    ],
)
def test_keys_that_change_what_a_model_computes_are_compared(
    cli: Cli, tmp_path: Path, name: str, key: str, value: Any
) -> None:
    pair = copy(tmp_path, name, {key: value})
    ended = cli("compare", *pair)
    assert ended.code == 1
    assert ended.lines[-1].endswith(f"configuration fields differs: config.json:quantization_config.{key}")
    assert cli("compare", *pair, "--may-differ", f"config.json:quantization_config.{key}").code == 0


def test_zero_points_that_were_converted_with_their_key_are_the_same_values(cli: Cli, tmp_path: Path) -> None:
    def as_v2(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        zeros = tensors[f"{STEM}.qzeros"].view(np.uint32) + np.uint32(0x11111111)
        tensors[f"{STEM}.qzeros"] = zeros.view(np.int32)
        config["checkpoint_format"] = "gptq_v2"

    ended = cli("compare", HERE / "gptq-4", kept(tmp_path / "v2", "gptq-4", as_v2))
    assert ended.code == 0
    assert "1 VALUE_EQUAL" in ended.lines[1]


def test_a_file_without_a_configuration_is_compared_as_it_is_stored(cli: Cli, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        shutil.copy(HERE / "gptq-4" / "model.safetensors", tmp_path / folder)
    ended = cli("compare", tmp_path / "one", tmp_path / "other")
    assert ended.lines[-1].startswith("SAME: 5 of 5 tensors")


@pytest.mark.parametrize("silent", ["source", "import"])
def test_codes_are_compared_as_they_are_stored_where_one_side_has_no_configuration(
    cli: Cli, tmp_path: Path, silent: str
) -> None:
    for folder in ("source", "import"):
        shutil.copytree(HERE / "gptq-4", tmp_path / folder)
    (tmp_path / silent / "config.json").unlink()
    ended = cli("compare", tmp_path / "source", tmp_path / "import")
    assert ended.lines[-1].startswith("SAME: 5 of 5 tensors"), ended.out


def test_mlx_may_give_a_module_keys_of_its_own(cli: Cli, tmp_path: Path) -> None:
    def mixed(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        eight = load_file(HERE / "mlx-q8" / "model.safetensors")
        tensors |= {name: one for name, one in eight.items() if name.startswith(STEM)}
        config |= {STEM: {"bits": 8, "group_size": 32}}

    folder = kept(tmp_path / "mixed", "mlx-q4", mixed)
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization")
    (folder / "config.json").write_text(json.dumps(config))
    ended = cli("compare", HERE / "source", folder)
    assert ended.code == 0, ended.lines
    assert "2 NEAREST_CODES" in ended.lines[1]


def test_codes_that_differ_under_other_keys_are_compared_as_values(cli: Cli, tmp_path: Path) -> None:
    def damaged(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        tensors[f"{STEM}.qweight"] = tensors[f"{STEM}.qweight"].copy()
        tensors[f"{STEM}.qweight"][0, 0] ^= 1
        config["sym"] = False

    ended = cli("compare", HERE / "gptq-4", kept(tmp_path / "x", "gptq-4", damaged))
    assert ended.code == 1
    assert "1 of 2048 elements is not the source's" in ended.lines[1]
    assert "packing-keys" not in ended.lines[1]
