"""What is told of packed weights: what they stand for, and never what happens to contain their codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import HERE, STEM, WEIGHT, blocks_file, kept, model, unpacked
from tests.cli.test_packed_alone import alone

LOST = {
    "gptq-4": "BF16 -> 4-bit GPTQ", "gptq-8": "BF16 -> 8-bit GPTQ", "awq-gemm": "BF16 -> 4-bit AWQ",
    "mlx-q4": "BF16 -> 4-bit MLX", "bitsandbytes-nf4": "BF16 -> bitsandbytes (nf4)",
    "compressed-tensors-pack4": "BF16 -> compressed-tensors (pack-quantized)",
    "transformers-fp8-blocks": "BF16 -> F8_E4M3", "bitsandbytes-int8": "BF16 -> I8",
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_what_is_lost_is_reported_by_the_method_and_not_by_what_contains_its_codes(cli: Cli, name: str) -> None:
    ended = cli("compare", unpacked(name), HERE / name)
    (lost,) = (line for line in ended.lines if line.startswith("  lost: "))
    assert lost.partition(": ")[2].partition(": ")[2].partition(";")[0].endswith(f" {LOST[name]}")
    every = cli("compare", unpacked(name), HERE / name, "--all").out
    assert f"{STEM}.weight: {LOST[name]} [" in every
    assert not re.search(r"-> [IU]32\b", every)


def test_the_name_of_a_method_cannot_end_a_line(cli: Cli, tmp_path: Path) -> None:
    def renamed(_tensors: dict[str, Any], config: dict[str, Any]) -> None:
        config["bnb_4bit_quant_type"] = "nf4\n::error::"

    ended = cli("compare", unpacked("bitsandbytes-nf4"), kept(tmp_path / "x", "bitsandbytes-nf4", renamed))
    assert not [line for line in ended.lines if line.startswith("::")]


def two_layers(tmp_path: Path, **changed: Any) -> Path:
    """Return GPTQ's weight in two layers, whose groups are numbered alike, as everywhere without act-order."""

    def again(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        own = {name: one for name, one in tensors.items() if name.startswith(STEM)}
        for name, one in own.items():
            code = name.rpartition(".")[2]
            other = one if code in ("g_idx", "qzeros") else np.roll(one, 1, axis=1)
            tensors[name.replace("up_proj", "gate_proj")] = changed.get(code, other)

    return kept(tmp_path / "two", "gptq-4", again)


def test_a_healthy_gptq_file_has_nothing_wrong(cli: Cli, tmp_path: Path) -> None:
    folder = two_layers(tmp_path)
    lines = cli("inspect", folder).lines
    assert "  looks wrong        nothing" in lines
    assert "  packed weights     2 by gptq (4 bits, groups of 32)" in lines
    assert not [line for line in lines if "undecided" in line]
    printed = cli("verify", "builtin:checkpoint-health", "--subject", f"checkpoint={folder}").out
    assert "PASS     GATE-HEALTH-001" in printed
    assert "PASS     GATE-HEALTH-003" in printed


@pytest.mark.parametrize("name", ["bitsandbytes-nf4", "bitsandbytes-nf4-double", "compressed-tensors-pack4"])
def test_what_stands_beside_codes_and_is_the_same_of_every_weight_is_no_copy(cli: Cli, name: str) -> None:
    assert "  looks wrong        nothing" in cli("inspect", HERE / name).lines


def test_codes_of_another_layer_are_still_a_copy(cli: Cli, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    own = load_file(HERE / "gptq-4" / "model.safetensors")[f"{STEM}.qweight"]
    lines = cli("inspect", two_layers(tmp_path, qweight=own)).lines
    assert f"    {STEM}.qweight: byte for byte the same as model.gate_proj.qweight, 1024 bytes" in lines


@pytest.mark.parametrize("name", ["gptq-4", "gptq-8", "awq-gemm", "mlx-q4", "compressed-tensors-pack4"])
def test_codes_are_judged_by_the_values_that_they_stand_for(cli: Cli, tmp_path: Path, name: str) -> None:
    codes = {"mlx-q4": ".weight", "compressed-tensors-pack4": ".weight_packed"}.get(name, ".qweight")
    bounds = [{"tensors": STEM + codes, "statistic": "absmax", "at_most": 1.0}]
    bounds.append({"tensors": "*", "statistic": "absmax", "at_most": 300.0})
    contract = {
        "weighbridge": "contract/v0", "id": "c", "version": "1.0.0", "title": "t", "owner": "o",
        "subjects": {"model": {"kind": "checkpoint"}},
        "gates": [{
            "id": "GATE-A", "title": "t", "why": "w", "kind": "tensor-statistics", "subjects": {"candidate": "model"},
            "with": {"bounds": bounds},
        }],
    }  # fmt: skip
    (tmp_path / "c.yaml").write_text(json.dumps(contract))

    def large(tensors: dict[str, Any], _config: dict[str, Any]) -> None:
        scales = next(end for end in (".scales", ".weight_scale") if STEM + end in tensors)
        tensors[STEM + scales] = tensors[STEM + scales] * tensors[STEM + scales].dtype.type(64)

    right = cli("verify", tmp_path / "c.yaml", "--subject", f"model={HERE / name}")
    assert right.code == 0, right.out
    wrong = cli("verify", tmp_path / "c.yaml", "--subject", f"model={kept(tmp_path / 'large', name, large)}")
    assert wrong.code == 1


def test_codes_that_no_rule_reads_have_no_statistics(cli: Cli) -> None:
    found = json.loads(cli("inspect", HERE / "mlx-q3", "--all", "--json").out)["table"]
    assert found[f"{STEM}.weight"]["mean"] is None
    assert found[f"{STEM}.scales"]["mean"] is not None


def test_the_first_value_of_a_block_that_differs_is_reported(cli: Cli, tmp_path: Path) -> None:
    blocks = gguf.quantize(WEIGHT, gguf.GGMLQuantizationType.Q8_0)
    other = blocks.copy()
    other[1, 34 + 2 + 7] ^= 1
    q8 = gguf.GGMLQuantizationType.Q8_0
    pair = blocks_file(tmp_path / "one.gguf", blocks, q8), blocks_file(tmp_path / "other.gguf", other, q8)
    ended = cli("compare", *pair, "--policy", "same")
    was, now = (gguf.dequantize(one, gguf.GGMLQuantizationType.Q8_0)[1, 39] for one in (blocks, other))
    printed = f"element {64 + 39} at byte "
    assert printed in ended.lines[1]
    assert f" was {was!s} (0x{blocks[1, 43]:02x}) and is {now!s} (0x{other[1, 43]:02x});" in ended.lines[1]


def test_the_dtype_of_a_configuration_is_reported_only_where_plain_tensors_have_another(
    cli: Cli, tmp_path: Path
) -> None:
    def of(name: str, **plain: Any) -> Path:
        folder = alone(tmp_path / name, "transformers-fp8-blocks")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}))
        return folder

    assert "note:" not in cli("compare", HERE / "source", of("fp8")).out
    plain = model(tmp_path / "plain", p__weight=WEIGHT)
    (plain / "config.json").write_text(json.dumps({"model_type": "llama", "dtype": "bfloat16"}))
    printed = (
        "note: import: config.json says dtype bfloat16, and most weights are F32: transformers 5 loads them as BF16"
    )
    assert printed in cli("compare", plain / "model.safetensors", plain).out


def by_auto_round(folder: Path) -> tuple[Path, Path]:
    """Write a source, and what GPTQ packed of it as auto-round leaves it: more keys, a note, the head as it was."""

    def more(tensors: dict[str, Any], config: dict[str, Any]) -> None:
        tensors["lm_head.weight"] = WEIGHT.astype(ml_dtypes.bfloat16)
        if config:
            config |= {"autoround_version": "0.16.1", "data_type": "int", "provider": "auto-round"}

    pair = kept(folder / "source", unpacked("gptq-4").name, more), kept(folder / "packed", "gptq-4", more)
    (pair[1] / "quantization_config.json").write_text('{"bits": 4}')
    return pair


def test_what_packs_and_leaves_the_rest_hears_the_policy_that_it_passes_with(cli: Cli, tmp_path: Path) -> None:
    pair = by_auto_round(tmp_path)
    ended = cli("compare", *pair, "--policy", "packed+rounded:F16")
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 3 tensors: 1 not made as meant")
    (hint,) = (line for line in ended.lines if "meant?" in line)
    assert hint == "  meant? it passes with --policy packed"
    assert cli("compare", *pair, "--policy", "packed").code == 0


def test_keys_that_are_harmless_for_one_reason_are_reported_in_one_line(cli: Cli, tmp_path: Path) -> None:
    pair = by_auto_round(tmp_path)
    start = "  configuration: different, and known to be harmless: "
    (printed,) = (line for line in cli("compare", *pair).lines if line.startswith(start))
    many, _, rest = printed.removeprefix(start).partition(" keys (it follows from the tensors, which are compared): ")
    named = rest.split(", ")
    assert named[-1] == f"+{int(many) - 3} more (--all)"
    each = [line.removeprefix(start) for line in cli("compare", *pair, "--all").lines if line.startswith(start)]
    assert [line.partition(" (")[0] for line in each][:3] == named[:3]
    assert len(each) == int(many)


def test_the_dtype_of_weights_beside_packed_ones_is_reported_as_theirs(cli: Cli, tmp_path: Path) -> None:
    source, packed = by_auto_round(tmp_path)
    config = json.loads((packed / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps({**config, "dtype": "float16"}))
    printed = "and most weights that are not packed are BF16: transformers 5 loads them as F16"
    assert f"  note: import: config.json says dtype float16, {printed}" in cli("compare", source, packed).lines
