"""The points of an architecture are told without weights: those that a run has, in its order, with other names."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.cli.conftest import Cli, cli  # noqa: E402
from tests.forward.tiny_models import saved  # noqa: E402

from weighbridge.core.data import table  # noqa: E402
from weighbridge.forward.hugging_face import Directory, channels_of, names_of  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402

__all__ = ["cli"]
TOKENS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "gemma3_text", "gpt2", "opt", "bloom", "qwen3_moe", "mamba", "bert", "t5"])
def test_the_points_are_those_of_a_run_without_its_weights(tmp_path: Path, family: str) -> None:
    directory = Directory.named(f"hf:{saved(family, tmp_path)}")
    stack = directory.make()
    assert isinstance(stack, Torch)
    seen: list[tuple[str, tuple[int, bool]]] = []
    stack.forward(TOKENS, lambda point, rows: seen.append((point, (rows.shape[2], len(rows) == 1))))
    for path in directory.path.glob("*.safetensors"):
        path.unlink()
    assert list(channels_of(directory).items()) == seen


def test_a_point_of_a_layer_is_named_with_its_number() -> None:
    assert names_of("model.layers.17.mlp.up_proj.out")["llama.cpp"] == "ffn_up-17 MUL_MAT"
    assert names_of("model.layers.{n}.mlp.up_proj.out")["llama.cpp"] == "ffn_up-{n} MUL_MAT"
    assert names_of("encoder.block.0.out") == {}


def test_every_engine_says_with_what_its_names_were_tried() -> None:
    names = table("forward/engine_names")
    assert {engine for row in names["points"].values() for engine in row} == set(names["tried"])


@pytest.mark.slow
def test_the_table_is_printed_once_for_layers_that_are_alike(cli: Cli, tmp_path: Path) -> None:
    model = f"hf:{saved('qwen2', tmp_path)}"
    printed = cli("trace", "points", model)
    assert printed.code == 0
    assert "  model.layers.{n}.mlp.up_proj.out  [sequences, tokens, 96]\n      llama.cpp: ffn_up-{n}" in printed.out
    assert "  vllm: untried" in printed.out
    assert "model.layers.2.mlp.up_proj.out" in cli("trace", "points", model, "--all").out
    assert '"llama.cpp":"ffn_up-2 MUL_MAT"' in cli("trace", "points", model, "--json").out
    wrong = cli("trace", "points", str(tmp_path))
    assert (wrong.code, "points-model" in wrong.err) == (2, True)
    (tmp_path / "qwen2" / "config.json").write_text("{}")
    assert cli("trace", "points", model).code == 4
