"""A checkpoint in which every tensor is packed is judged like any other: its codes can be damaged, and that is seen."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import CHOSEN, HERE, NAMES, NEAREST, by_gptq, by_mlx, unpacked
from tests.formats.files import Entry, safetensors

from weighbridge.core import Measurement, singular
from weighbridge.packing import unpacked_view
from weighbridge.verifiers import VERIFIERS, tensor_values
from weighbridge.verifiers.verifier import Canary
from weighbridge.views.checkpoint import open_checkpoint

pytestmark = pytest.mark.slow


def alone(folder: Path, name: str) -> Path:
    """Copy what a library packed without its norm."""
    shutil.copytree(HERE / name, folder)
    data = (folder / "model.safetensors").read_bytes()
    behind = 8 + int.from_bytes(data[:8], "little")
    kept = {key: one for key, one in json.loads(data[8:behind]).items() if not key.endswith(("norm.weight", "__"))}
    entries: dict[str, Entry] = {
        key: (
            one["dtype"],
            tuple(one["shape"]),
            data[behind + one["data_offsets"][0] : behind + one["data_offsets"][1]],
        )
        for key, one in kept.items()
    }
    safetensors(folder / "model.safetensors", entries)
    return folder


@pytest.mark.parametrize("name", sorted((NEAREST | CHOSEN) - {"awq-gemm"}))
def test_a_checkpoint_of_packed_weights_alone_is_compared(cli: Cli, tmp_path: Path, name: str) -> None:
    source = alone(tmp_path / "source", unpacked(name).name)
    ended = cli("compare", source, alone(tmp_path / "packed", name))
    assert ended.code == 0, ended.lines
    many = 1 if name in CHOSEN else 2
    assert ended.lines[-1].startswith(singular(f"LOSSY: {many} of {many} tensors ("))


@pytest.mark.parametrize(("name", "bits"), [("gptq-4", 4), ("mlx-q4", 4)])
def test_what_was_unpacked_of_packed_weights_alone_is_compared(cli: Cli, tmp_path: Path, name: str, bits: int) -> None:
    packed = alone(tmp_path / "packed", name)
    tensors = load_file(packed / "model.safetensors")
    stems = {key.rpartition(".")[0] for key in tensors}
    values = {of: by_mlx(tensors, bits, of) if "mlx" in name else by_gptq(tensors, bits) for of in stems}
    entries = {f"{of}.weight": (NAMES[one.dtype], one.shape, one.tobytes()) for of, one in values.items()}
    safetensors(tmp_path / "values.safetensors", entries)
    assert cli("compare", packed, tmp_path / "values.safetensors").code == 0


def test_two_files_of_packed_weights_alone_are_compared_by_their_own_keys(cli: Cli, tmp_path: Path) -> None:
    packed, other = alone(tmp_path / "packed", "gptq-4"), alone(tmp_path / "other", "gptq-4")
    config = json.loads((other / "config.json").read_text())
    config["quantization_config"]["sym"] = False
    (other / "config.json").write_text(json.dumps(config))
    assert cli("compare", packed, other).lines[-1].startswith("SAME VALUES: 1 of 1 tensor (")


def canary_of(source: Path, packed: Path, quantity: str) -> Any:
    """Return the canary of packed weights alone, and the views that it damages."""
    verifier = VERIFIERS[quantity, tensor_values.VERIFIER.kinds]
    views = open_checkpoint(source), open_checkpoint(packed)
    measured = verifier.measure(views, {})
    assert isinstance(measured, Measurement)
    return verifier, verifier.canary(views, {}, measured)


@pytest.mark.parametrize("quantity", ["tensor_values", "moment_changes"])
@pytest.mark.parametrize("name", sorted(NEAREST | CHOSEN))
def test_an_instrument_sees_damaged_codes_and_nothing_else(tmp_path: Path, name: str, quantity: str) -> None:
    source = alone(tmp_path / "source", unpacked(name).name)
    verifier, canary = canary_of(source, alone(tmp_path / "packed", name), quantity)
    assert isinstance(canary, Canary)
    assert canary.seen(verifier.measure(canary.views, {}))
    undamaged = canary.views[0], replace(canary.views[1], patches={})
    assert not canary.seen(verifier.measure(undamaged, {}))


def test_an_instrument_that_leaves_out_the_last_rows_is_blind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = unpacked_view.row_stretches
    monkeypatch.setattr(unpacked_view, "row_stretches", lambda *given: (rows[:-1] for rows in whole(*given)))
    verifier, canary = canary_of(HERE / "source", alone(tmp_path / "packed", "mlx-q8"), "tensor_values")
    assert isinstance(canary, Canary)
    assert not canary.seen(verifier.measure(canary.views, {}))


def test_codes_that_stand_for_no_value_are_passed_over(tmp_path: Path) -> None:
    # Rows of 20 codes of four bits leave twelve bits of their last word unused.
    codes = np.zeros((8, 3), np.int32)
    values = np.zeros((8, 20), np.float32)
    values[:, 0] = 1.0
    codes[:] = 0x88888888 - (1 << 32)
    codes[:, 0] += 1
    folder = tmp_path / "packed"
    folder.mkdir()
    stored: dict[str, Any] = {
        "p.weight_packed": codes,
        "p.weight_scale": np.ones((8, 1), np.float32),
        "p.weight_shape": np.array([8, 20], np.int64),
    }
    entries = {key: (NAMES[one.dtype], one.shape, one.tobytes()) for key, one in stored.items()}
    safetensors(folder / "model.safetensors", entries)
    weights = {"num_bits": 4, "type": "int", "strategy": "channel"}
    settings = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
    bf16 = values.astype(ml_dtypes.bfloat16)
    safetensors(tmp_path / "source.safetensors", {"p.weight": ("BF16", (8, 20), bf16.tobytes())})
    verifier, canary = canary_of(tmp_path / "source.safetensors", folder, "tensor_values")
    assert isinstance(canary, Canary)
    assert "p.weight_packed" not in canary.views[1].patches
    assert canary.seen(verifier.measure(canary.views, {}))


def test_packed_weights_of_another_shape_differ_and_blind_no_instrument(cli: Cli, tmp_path: Path) -> None:
    other = {"model.up_proj.weight": np.ones((8, 8), np.float32)}
    save_file(other, tmp_path / "other.safetensors")
    ended = cli("compare", tmp_path / "other.safetensors", alone(tmp_path / "packed", "mlx-q8"))
    assert ended.code == 1
    assert "wrong shape" in ended.lines[-1]
