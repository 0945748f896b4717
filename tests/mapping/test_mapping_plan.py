"""A mapping that a person wrote is followed, and refused where it cannot be; nothing is guessed without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import converted, decoder, directory, gguf_file

from weighbridge.mapping.mapping_plan import EMBEDDINGS, HEADS, table, ties

SHAPES = {"model.a.weight": (2,), "model.b.weight": (3,), "c": (4,)}


def test_names_are_rewritten_in_turn_and_a_table_wins() -> None:
    found = table(
        SHAPES, ("a.weight", "b.w", "d"), names={"d": "c"}, rename=[(r"^model\.", ""), (r"b\.weight$", "b.w")]
    )
    origins = {name: pairing.parts[0].source for name, pairing in found.pairings.items()}
    assert origins == {"a.weight": "model.a.weight", "b.w": "model.b.weight", "d": "c"}
    assert found.used() == set(SHAPES)


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_heads_may_be_tied_to_the_embedding_and_nothing_else_may(embedding: str) -> None:
    names = (embedding, *HEADS, "model.norm.weight", "model.layers.0.mlp.up_proj.weight")
    assert ties(names) == dict.fromkeys(HEADS, embedding)
    assert ties(names[1:]) == {}


def test_a_name_in_the_table_that_the_source_lacks_pairs_nothing() -> None:
    assert table(SHAPES, ("d",), names={"d": "nothing"}, rename=[]).pairings == {}


def renamed(folder: Path) -> tuple[Path, Path]:
    source = decoder(1)
    arrays = {name.replace("model.", "m."): values for name, values in source.items()}
    return directory(folder / "hf", source), gguf_file(folder / "m.gguf", arrays, "none")


def test_a_map_file_says_how_names_map(cli: Cli, workplace: Path) -> None:  # noqa: F811
    hf, import_ = renamed(workplace)
    (workplace / "map.yaml").write_text("rename:\n  - {from: '^model[.]', to: 'x.'}\n  - {from: '^x', to: m}\n")
    ended = cli("compare", hf, import_, "--map", "map.yaml")
    assert ended.code == 0
    ended = cli("compare", hf, import_)
    assert ended.code == 3
    said = "  22 of 23 tensors: not compared: no rule for architecture 'none' (model.embed_tokens.weight, "
    assert ended.lines[1].startswith(said)
    printed = "m.layers.0.mlp.up_proj.weight: not compared: no rule for architecture 'none'"
    assert printed in cli("compare", hf, import_, "--all").out
    assert "--map FILE" in ended.out


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("rename: [{from: '(', to: x}]", 2, "map.yaml:1:17: map the pattern cannot be used: missing )"),
        ("renames: []", 2, "map.yaml:1:1: map unknown key 'renames'; did you mean 'rename'?"),
        ("[1]", 2, "map.yaml:1:1: map a list is not a mapping"),
    ],
)
def test_a_map_file_that_cannot_be_used_is_reported(cli: Cli, workplace: Path, text: str, code: int, says: str) -> None:  # noqa: F811
    hf, import_ = renamed(workplace)
    (workplace / "map.yaml").write_text(text)
    ended = cli("compare", hf, import_, "--map", "map.yaml")
    assert ended.code == code
    assert says in ended.out + ended.err


def test_a_directory_and_a_gguf_file_need_no_other_option(cli: Cli, workplace: Path) -> None:  # noqa: F811
    source = decoder()
    hf = directory(workplace / "hf", source)
    ended = cli("compare", hf, gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama"), "--all")
    assert ended.code == 0
    printed = "  BYTES_EQUAL   blk.0.attn_k.weight: F32 -> F32 [32, 64], rope permutation of 2 heads"
    assert printed in ended.lines


def test_without_a_configuration_nothing_is_guessed(cli: Cli, workplace: Path) -> None:  # noqa: F811
    source = decoder()
    hf = directory(workplace / "hf", source)
    (hf / "config.json").unlink()
    ended = cli("compare", hf, gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama"))
    assert ended.code == 4
    assert "no config.json beside the source says its head counts" in ended.out
