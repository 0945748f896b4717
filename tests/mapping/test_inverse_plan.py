"""A Hugging Face directory that was made of a GGUF file, and the two files of a model that sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import CONFIG, HEADS, WIDTH, converted, decoder, directory, gguf_file

from weighbridge.mapping.mapping_plan import NO_RULE, Pairing, Part, Plan, inverse


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "experts"), [("llama", False), ("llama", True), ("qwen2", False)])
def test_a_gguf_file_is_the_source_of_its_directory(
    cli: Cli, workplace: Path, architecture: str, *, experts: bool,  # noqa: F811
) -> None:  # fmt: skip
    source = decoder(experts=experts)
    origin = gguf_file(workplace / "m.gguf", converted(source, architecture), architecture)
    made = directory(workplace / "hf", source)
    ended = cli("compare", origin, made)
    assert f"  names: from gguf:auto ({architecture})" in ended.lines
    assert f"{len(source)} BYTES_EQUAL" in ended.out
    query = "model.layers.1.self_attn.q_proj.weight"
    wrong = source[query].reshape(HEADS, -1, 2, WIDTH).swapaxes(1, 2).reshape(source[query].shape)
    made = directory(workplace / "hf", source | {query: np.ascontiguousarray(wrong)})
    assert f"{query}: F32 -> F32, but " in cli("compare", origin, made).out


def test_a_norm_comes_back_by_taking_one_away() -> None:
    plan = Plan(
        name="", pairings={"n": Pairing(candidate="n", parts=(Part(source="norm"),), shape=(4,), arithmetic="+1")}
    )
    assert inverse(plan, {"norm": (4,)}).pairings["norm"].arithmetic == "-1.0"


def test_what_cannot_be_undone_has_no_rule() -> None:
    pairings = {
        "a": Pairing(candidate="a", parts=(Part(source="A_log"),), shape=(4,), arithmetic="-exp"),
        "e": Pairing(candidate="e", parts=(Part(source="embed", take=(0, 0, 3)),), shape=(3, 2)),
    }
    found = inverse(Plan(name="", pairings=pairings), {"A_log": (4,), "embed": (4, 2)}).pairings
    assert {name: one.arithmetic for name, one in found.items()} == {"A_log": NO_RULE, "embed": NO_RULE}


SEEING = {
    "vision_tower.patch.weight": np.ones((2, 2), np.float32),
    "multi_modal_projector.weight": np.ones(2, np.float32),
}


def test_the_vision_tower_is_left_out_of_the_text_file_and_counted(cli: Cli, workplace: Path) -> None:  # noqa: F811
    text = decoder(1)
    whole = {f"language_model.{name}": values for name, values in text.items()} | SEEING
    source = directory(workplace / "hf", whole, CONFIG | {"vision_config": {"num_hidden_layers": 1}})
    import_ = gguf_file(workplace / "m.gguf", converted(text, "llama"), "llama")
    ended = cli("compare", source, import_)
    assert "  2 left out: of what goes before the text model, into the mmproj file" in ended.lines
    assert "(12 BYTES_EQUAL, 2 LEFT_OUT)" in ended.out
    source = directory(workplace / "hf", whole)
    assert "2 missing" in cli("compare", source, import_).lines[-1]


def test_what_draws_or_speaks_is_left_out_of_either_half(cli: Cli, workplace: Path) -> None:  # noqa: F811
    text, speaking = (
        decoder(1),
        {name: np.ones(2, np.float32) for name in ("model.vqmodel.a", "talker.b", "code2wav.c")},
    )
    source = directory(workplace / "hf", text | speaking, CONFIG)
    ended = cli("compare", source, gguf_file(workplace / "m.gguf", converted(text, "llama"), "llama"))
    assert "  3 left out: of what draws or speaks, which the converter leaves out" in ended.lines
