"""A merge is the base plus s·BA, within what rounding makes of it: held by files that PEFT wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors.numpy import load_file, save_file
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture

BY_PEFT = Path(__file__).parents[1] / "cli/adapter_by_peft"
SCALES = {"layers.0.q_proj": 6 / 4, "layers.0.v_proj": 6 / 2, "layers.1.q_proj": 6 / 4, "layers.1.v_proj": 3 / 2}


@pytest.fixture
def files(workplace: Path) -> Path:
    shutil.copytree(BY_PEFT, workplace, dirs_exist_ok=True)
    return workplace


def merged(folder: Path, share: float) -> None:
    """Write the base with so many updates, in float32 and rounded once, as merging again would give it."""
    found, adapter = load_file(folder / "base.safetensors"), load_file(folder / "adapter/adapter_model.safetensors")
    for module, scale in SCALES.items():
        low, high = (adapter[f"base_model.model.{module}.lora_{one}.weight"] for one in "AB")
        values = found[f"{module}.weight"].astype(np.float32) + share * scale * (high @ low)
        found[f"{module}.weight"] = values.astype(bfloat16)
    save_file(found, folder / "made.safetensors")


def test_what_peft_merged_is_accepted(cli: Cli, files: Path) -> None:  # noqa: F811
    ended = cli("compare", files / "base.safetensors", files / "merged.safetensors", "--adapter", files / "adapter")
    assert ended.code == 0
    assert "(4 BYTES_EQUAL, 4 MERGED)" in ended.out


@pytest.mark.parametrize(
    ("share", "mechanism"), [(0, "adapter-not-merged"), (2, "adapter-merged-twice"), (1.25, "adapter-scaled"), (1, "")]
)
def test_what_was_merged_otherwise_is_named(cli: Cli, files: Path, share: float, mechanism: str) -> None:  # noqa: F811
    merged(files, share)
    ended = cli("compare", files / "base.safetensors", files / "made.safetensors", "--adapter", files / "adapter")
    printed = f"DIFFERENT: 4 of 8 tensors: 4 not as merged ({mechanism})" if mechanism else "AS MEANT: 8 of 8 tensors"
    assert (ended.code, ended.lines[-1].startswith(printed)) == (1 if mechanism else 0, True)


def test_one_element_beyond_its_rounding_is_refused(cli: Cli, files: Path) -> None:  # noqa: F811
    merged(files, 1)
    found = load_file(files / "made.safetensors")
    found["layers.1.v_proj.weight"].reshape(-1)[3] *= bfloat16(1.125)
    save_file(found, files / "made.safetensors")
    ended = cli("compare", files / "base.safetensors", files / "made.safetensors", "--adapter", files / "adapter")
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 8 tensors: 1 not as merged (different content)")


def test_a_rank_stabilised_adapter_is_merged_by_the_root_of_its_rank(cli: Cli, files: Path) -> None:  # noqa: F811
    adapter = load_file(files / "adapter/adapter_model.safetensors")
    for module, scale in SCALES.items():
        rank = adapter[f"base_model.model.{module}.lora_A.weight"].shape[0]
        assert scale * rank in (3, 6)  # its alpha
        adapter[f"base_model.model.{module}.lora_B.weight"] /= np.float32(rank**0.5)
    merged(files, 1)
    asked = ("compare", files / "base.safetensors", files / "made.safetensors", "--adapter", files / "adapter")
    changed(files, {"use_rslora": True}, {})
    assert cli(*asked).code == 1
    changed(files, {"use_rslora": True}, adapter)  # √rank more a factor, and √rank less in B
    assert cli(*asked).code == 0


def changed(folder: Path, config: dict[str, object], tensors: dict[str, np.ndarray]) -> None:
    """Write the adapter again, with more in its configuration and more tensors."""
    path, printed = folder / "adapter/adapter_model.safetensors", folder / "adapter/adapter_config.json"
    save_file({**load_file(path), **tensors}, path)
    printed.write_text(json.dumps(json.loads(printed.read_text()) | config))


@pytest.mark.parametrize("lost", [False, True])
def test_the_rows_of_a_dora_merge_have_their_magnitudes(cli: Cli, files: Path, *, lost: bool) -> None:  # noqa: F811
    merged(files, 1)
    found, magnitudes = load_file(files / "made.safetensors"), {}
    for module in SCALES:
        values = found[f"{module}.weight"].astype(np.float32)
        lengths = np.linalg.norm(values, axis=1) * np.linspace(0.5, 2, len(values), dtype=np.float32)
        magnitudes[f"base_model.model.{module}.lora_magnitude_vector"] = lengths
        made = values * (lengths / np.linalg.norm(values, axis=1))[:, None]
        found[f"{module}.weight"] = found[f"{module}.weight"] if lost else made.astype(bfloat16)
    save_file(found, files / "made.safetensors")
    changed(files, {"use_dora": True}, magnitudes)
    ended = cli("compare", files / "base.safetensors", files / "made.safetensors", "--adapter", files / "adapter")
    assert (ended.code, "4 MERGED" in ended.out) == ((1, False) if lost else (0, True))


def test_a_tensor_that_the_adapter_saved_whole_stands_for_the_bases(cli: Cli, files: Path) -> None:  # noqa: F811
    name = next(
        name for name in sorted(load_file(files / "base.safetensors")) if "q_proj" not in name and "v_proj" not in name
    )
    values = load_file(files / "base.safetensors")[name] + bfloat16(1)
    changed(files, {"modules_to_save": ["any"]}, {f"base_model.model.{name}": values})
    asked = ("compare", files / "base.safetensors", files / "made.safetensors", "--adapter", files / "adapter")
    merged(files, 1)
    assert cli(*asked).code == 1  # it has the base's
    save_file(load_file(files / "made.safetensors") | {name: values}, files / "made.safetensors")
    assert cli(*asked).code == 0


CHANGED = {
    "use_dora": (True, "no rule for use_dora"), "peft_type": ("LOHA", "no rule for LOHA"),
    "lora_bias": (True, "no rule for lora_bias"), "lora_alpha": (None, "has no number lora_alpha"),
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGED)
def test_an_adapter_of_another_algebra_has_no_rule(cli: Cli, files: Path, key: str) -> None:  # noqa: F811
    config = json.loads((files / "adapter/adapter_config.json").read_text())
    value, printed = CHANGED[key]
    (files / "adapter/adapter_config.json").write_text(json.dumps(config | {key: value}))
    ended = cli("compare", files / "base.safetensors", files / "merged.safetensors", "--adapter", files / "adapter")
    assert (ended.code, printed in ended.out) == (4, True)


@pytest.mark.parametrize("pattern", ["(", "(.+)+x", "[a-z_]*" * 9 + "x", "a?" * 60 + "x", "(q|q)" * 60 + "x", "q{9}"])
def test_a_pattern_that_may_take_for_ever_or_is_none_is_refused(cli: Cli, files: Path, pattern: str) -> None:  # noqa: F811
    changed(files, {"alpha_pattern": {pattern: 4}}, {})
    ended = cli("compare", files / "base.safetensors", files / "merged.safetensors", "--adapter", files / "adapter")
    assert (ended.code, "or a pattern of another form before it" in ended.out) == (4, True)


def test_the_adapter_of_another_model_is_refused(cli: Cli, files: Path) -> None:  # noqa: F811
    base = load_file(files / "base.safetensors")
    save_file({f"other.{name}": values for name, values in base.items()}, files / "base.safetensors")
    ended = cli("compare", files / "base.safetensors", files / "merged.safetensors", "--adapter", files / "adapter")
    assert (ended.code, "which the base does not have" in ended.out) == (4, True)


def test_a_rank_that_is_not_that_of_its_matrices_is_refused(cli: Cli, files: Path) -> None:  # noqa: F811
    changed(files, {"r": 99}, {})
    ended = cli("compare", files / "base.safetensors", files / "merged.safetensors", "--adapter", files / "adapter")
    assert (ended.code, "says r = 99, and " in ended.out) == (4, True)
