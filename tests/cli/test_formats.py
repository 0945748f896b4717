"""compare and inspect answer across formats, and refuse damaged files of each without a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.formats.files import safetensors
from tests.formats.quantised import QUANTISED, VALUES
from verifiers.specimens.make_formats import Apr, apr, gguf

SPECIMENS = Path(__file__).parents[2] / "verifiers" / "specimens"
SOURCE = SPECIMENS / "checkpoints" / "source.safetensors"
FORMATS = SPECIMENS / "formats"


@pytest.mark.parametrize(
    "name",
    ["source.pt", "transposed-view.pt", "legacy.pt", "old-codes.apr", "new-codes.apr", "source.onnx", "beside.onnx"],
)
def test_the_same_tensors_in_another_format_are_the_same(cli: Cli, name: str) -> None:
    for pair in ((SOURCE, FORMATS / name), (FORMATS / name, SPECIMENS / "checkpoints" / "import.gguf")):
        ended = cli("compare", *pair, "--policy", "same")
        assert (ended.code, "SAME: 2 of 2 tensors" in ended.out) == (0, True), ended.out


SHORT = bytes(range(64, 80))


@pytest.mark.parametrize("bf16", [2, 30])
def test_a_quantisers_blocks_are_the_same_in_apr_of_both_generations_and_in_gguf(
    cli: Cli, tmp_path: Path, bf16: int
) -> None:
    (tmp_path / "m.gguf").write_bytes(
        gguf({"w": (12, (2, 256), QUANTISED), "n": (30, (8,), SHORT), "f": (0, (2,), bytes(8))})
    )
    (tmp_path / "m.apr").write_bytes(
        apr({"w": Apr(12, (2, 256), QUANTISED), "n": Apr(bf16, (8,), SHORT), "f": Apr(0, (2,), bytes(8))})
    )
    source = {"w": ("F32", (2, 256), VALUES.tobytes()), "n": ("BF16", (8,), SHORT), "f": ("F32", (2,), bytes(8))}
    safetensors(tmp_path / "source", source)
    for pair, policy, blocks in (
        (("m.gguf", "m.apr"), "same", "BYTES_EQUAL"),
        (("m.apr", "m.gguf"), "same", "BYTES_EQUAL"),
        (("source", "m.apr"), "quantised:Q4_K_M", "NEAREST_CODES"),
    ):
        ended = cli("compare", *(tmp_path / name for name in pair), "--policy", policy, "--json")
        (answer,) = json.loads(ended.out)
        assert (ended.code, answer["classes"]) == (0, {"w": blocks, "n": "BYTES_EQUAL", "f": "BYTES_EQUAL"})


@pytest.mark.parametrize("path", sorted((FORMATS / "damaged").iterdir()), ids=lambda path: path.name)
def test_a_damaged_file_of_any_format_is_unreadable_with_place_and_reason(cli: Cli, path: Path) -> None:
    for verb in (("inspect", path), ("compare", SOURCE, path), ("compare", path, SOURCE)):
        ended = cli(*verb)
        assert ended.code == 4, ended.out
        assert "Traceback" not in ended.out + ended.err


def lightning(weight: Any) -> dict[str, Any]:
    """Return what Lightning saves by default: weights, and beside them a k-th value of infinity and Adam's state."""
    import torch

    kept: dict[str, Any] = {"monitor": None, "kth_value": torch.tensor(torch.inf), "best_k_models": {}}
    adam = {"step": torch.tensor(0.0), "exp_avg": torch.zeros(32, 32), "exp_avg_sq": torch.zeros(32, 32)}
    return {
        "epoch": 0, "pytorch-lightning_version": "2.6.6", "state_dict": {"net.weight": weight},
        "callbacks": {"ModelCheckpoint{'monitor': None}": kept}, "optimizer_states": [{"state": {0: adam}}],
    }  # fmt: skip


def test_what_a_trainer_saves_beside_the_weights_is_counted_not_judged(cli: Cli, workplace: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    torch.save(lightning(weight), workplace / "last.ckpt")
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=last.ckpt", "--verbose")
    assert ended.code == 0
    assert "in order: 1 tensor in 1 file, " in ended.out
    assert "not judged: 4 that are no weights" in ended.out
    weight[3, 3] = torch.nan
    torch.save(lightning(weight), workplace / "last.ckpt")
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=last.ckpt")
    assert (ended.code, "state_dict.net.weight: 1 NaN" in ended.out) == (1, True)


def test_a_state_dict_of_layers_called_like_training_state_is_judged(cli: Cli, workplace: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"optimizer.weight": torch.full((4, 4), torch.nan)}, workplace / "flat.pt")
    assert cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=flat.pt").code == 1
