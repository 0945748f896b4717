"""`weighbridge compare` of AWQ files whose channels were scaled: by what undoes the factors, and never by trust."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.formats.files import safetensors

HERE = Path(__file__).parent / "scaled_by_awq"  # see its README.md
LAYER = "model.layers.0"
WEIGHT, NORM = f"{LAYER}.self_attn.{{}}_proj", f"{LAYER}.input_layernorm.weight"
Damage: TypeAlias = Callable[[dict[str, Any], str], None]
KINDS = {"I32": "<i4", "F16": "<f2", "BF16": "<u2"}


def read(side: str) -> dict[str, Any]:
    """Return what a file holds, BF16 as its bits."""
    raw = (HERE / side / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    parts = {name: raw[begin:][slice(*one["data_offsets"])] for name, one in header.items()}
    kinds = {name: KINDS[one["dtype"]] for name, one in header.items()}
    return {name: np.frombuffer(parts[name], kinds[name]).reshape(header[name]["shape"]).copy() for name in header}


def written(folder: Path, damage: Damage, stem: str) -> Path:
    """Write what AutoAWQ packed again, with a damage."""
    shutil.copytree(HERE / "packed", folder)
    tensors = read("packed")
    damage(tensors, stem)
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    entries = {name: (names[one.dtype], one.shape, one.tobytes()) for name, one in tensors.items()}
    safetensors(folder / "model.safetensors", entries)
    return folder


def wrong_scale(tensors: dict[str, Any], stem: str) -> None:
    tensors[f"{stem}.scales"] *= np.float16(1.5)


def wrong_scale_of_a_row(tensors: dict[str, Any], stem: str) -> None:
    tensors[f"{stem}.scales"][:, 3] *= np.float16(1.5)


def swapped_nibbles(tensors: dict[str, Any], stem: str) -> None:
    data = tensors[f"{stem}.qweight"].view(np.uint8)
    tensors[f"{stem}.qweight"] = (data << 4 | data >> 4).view(np.int32)


def groups_twice_as_wide(tensors: dict[str, Any], stem: str) -> None:
    for end in (".scales", ".qzeros"):
        tensors[stem + end] = np.repeat(tensors[stem + end][::2], 2, axis=0)


def zero_off_by_one(tensors: dict[str, Any], stem: str) -> None:
    tensors[f"{stem}.qzeros"] = (tensors[f"{stem}.qzeros"].view(np.uint8) ^ 0x11).view(np.int32)


def scales_of_another(tensors: dict[str, Any], stem: str) -> None:
    others = (WEIGHT.format(one) for one in "qvo" if WEIGHT.format(one) != stem)
    tensors[f"{stem}.scales"] = tensors[f"{next(others)}.scales"]


def norm_off(tensors: dict[str, Any], _stem: str) -> None:
    tensors[NORM][5] ^= 0x0040  # half as large again, in BF16


def norm_of_the_source(tensors: dict[str, Any], _stem: str) -> None:
    tensors[NORM] = read("source")[NORM]


def test_channels_that_a_norm_and_the_weight_before_undo_are_as_meant(cli: Cli) -> None:
    ended = cli("compare", HERE / "source", HERE / "packed")
    assert ended.code == 0, ended.lines
    assert ended.lines[1] == "  4 of 4 tensors are what the file declares, 12352 elements (4 WITHIN_BOUND)"
    assert "lost: 3 of 4 tensors are of a type that holds less: 3 BF16 -> 4-bit AWQ" in ended.lines[2]
    assert cli("compare", HERE / "source", HERE / "packed", "--policy", "lossless").code == 1


CODES = (swapped_nibbles, groups_twice_as_wide, zero_off_by_one, scales_of_another)


@pytest.mark.parametrize("which", "qvo")
def test_no_damage_to_codes_or_scales_passes(cli: Cli, tmp_path: Path, which: str) -> None:
    stem = WEIGHT.format(which)
    for damage in (wrong_scale, wrong_scale_of_a_row, *CODES):
        ended = cli("compare", HERE / "source", written(tmp_path / damage.__name__, damage, stem))
        assert ended.code == 1, (damage, ended.lines)
        printed = (
            "codes are not the nearest" if damage in CODES else "AWQ scales channels, and a factor of these is off"
        )
        assert any(one.startswith(f"  {stem}.weight: ") and printed in one for one in ended.lines), (
            damage,
            ended.lines,
        )


def test_a_norm_that_undoes_another_factor_is_reported_by_name(cli: Cli, tmp_path: Path) -> None:
    ended = cli("compare", HERE / "source", written(tmp_path / "off", norm_off, ""))
    assert ended.code == 1
    assert any(line.startswith(f"  {NORM}: AWQ scales channels, and a factor of these is off") for line in ended.lines)


def test_factors_that_nothing_undoes_are_not_compared(cli: Cli, tmp_path: Path) -> None:
    ended = cli("compare", HERE / "source", written(tmp_path / "kept", norm_of_the_source, ""))
    assert ended.code == 3
    printed = "not compared: AWQ scales channels, and nothing in its layer undoes the factors of these"
    assert f"  {WEIGHT.format('q')}.weight: {printed}" in ended.lines
