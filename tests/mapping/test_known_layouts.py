"""Layouts that compare knows by their names: Meta's files, experts stacked or apart, fused projections."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import CONFIG, EXPERTS, HEADS, KV, Arrays, decoder, directory

from weighbridge.core.data import table
from weighbridge.mapping.chosen_mapping import converted
from weighbridge.mapping.gguf_mapping import Sides
from weighbridge.mapping.tensor_rules import Rule, built_in, encoders, made, projectors

META = {
    "embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3", "lm_head": "output",
}  # fmt: skip


def interleaved(values: Any, heads: int) -> Any:
    """Undo what convert_llama_weights_to_hf.py does: `view(h, d // 2, 2, w).transpose(1, 2)`."""
    return values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def of_meta(source: Arrays, heads: tuple[int, int] = (HEADS, KV)) -> Arrays:
    found: Arrays = {}
    for name, values in source.items():
        new = name.removeprefix("model.")
        for old, theirs in META.items():
            new = new.replace(old, theirs)
        many = {"wq": heads[0], "wk": heads[1]}.get(new.split(".")[-2])
        found[new] = np.ascontiguousarray(interleaved(values, many)) if many else values
    return found


@pytest.mark.parametrize("forth", [True, False])
@pytest.mark.parametrize("file", ["consolidated.00.pth", "consolidated.safetensors"])
def test_meta_s_files_are_hugging_face_s_with_rows_permuted(
    cli: Cli, workplace: Path, file: str, *, forth: bool,  # noqa: F811
) -> None:  # fmt: skip
    source = decoder(1)
    directory(workplace / "hf", source)
    directory(workplace / "meta", of_meta(source))
    (workplace / "meta/config.json").unlink()
    (workplace / "meta/params.json").write_text(json.dumps({"n_heads": HEADS, "n_kv_heads": KV, "dim": 64}))
    (workplace / "meta/model.safetensors").rename(workplace / "meta/consolidated.safetensors")
    if file.endswith(".pth"):
        torch = pytest.importorskip("torch")
        (workplace / "meta/consolidated.safetensors").unlink()
        torch.save({name: torch.from_numpy(one) for name, one in of_meta(source).items()}, workplace / "meta" / file)
    ended = cli("compare", *(("meta", "hf") if forth else ("hf", "meta")))
    assert (ended.code, "  names: identity, 12 by a known layout" in ended.lines) == (0, True)
    assert ended.lines[-1].startswith("SAME: 12 of 12 tensors")


def test_another_head_count_is_found_and_an_unknown_one_is_no_verdict(cli: Cli, workplace: Path) -> None:  # noqa: F811
    source = decoder(1)
    directory(workplace / "hf", source)
    directory(workplace / "meta", of_meta(source, (HEADS, HEADS)))
    assert cli("compare", "hf", "meta").lines[-1].startswith("DIFFERENT: 1 of 12 tensors")
    for folder in ("hf", "meta"):
        (workplace / folder / "config.json").unlink()
    ended = cli("compare", "hf", "meta")
    assert (ended.code, ended.lines[-1].split(": ")[:2]) == (4, ["UNREADABLE", "mapping"])


def test_one_of_several_model_parallel_files_is_not_taken_for_the_model(cli: Cli, workplace: Path) -> None:  # noqa: F811
    for name in ("consolidated.00.pth", "consolidated.01.pth"):
        (workplace / name).write_bytes(b"")
    ended = cli("inspect", workplace)
    assert "checkpoint-ambiguous consolidated.00.pth and more are parts of tensors" in ended.out + ended.err


def stacked(source: Arrays) -> Arrays:
    """Give a Mixtral's tensors as transformers 5 holds them."""
    found = {name: values for name, values in source.items() if ".block_sparse_moe." not in name}
    for layer in range(2):
        old, new = f"model.layers.{layer}.block_sparse_moe", f"model.layers.{layer}.mlp"
        each = [
            [source[f"{old}.experts.{one}.{matrix}.weight"] for one in range(EXPERTS)] for matrix in ("w1", "w3", "w2")
        ]
        found[f"{new}.gate.weight"] = source[f"{old}.gate.weight"]
        found[f"{new}.experts.gate_up_proj"] = np.concatenate([np.stack(each[0]), np.stack(each[1])], axis=1)
        found[f"{new}.experts.down_proj"] = np.stack(each[2])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("forth", [True, False])
def test_experts_are_the_same_stacked_or_apart_and_one_in_another_s_place_is_not(
    cli: Cli, workplace: Path, *, forth: bool,  # noqa: F811
) -> None:  # fmt: skip
    apart = decoder(experts=True)
    together = stacked(apart)
    sides = (apart, together) if forth else (together, apart)
    for folder, arrays in zip("ab", sides, strict=True):
        directory(workplace / folder, arrays, {**CONFIG, "model_type": "mixtral"})
    assert cli("compare", "a", "b").lines[-1].startswith(f"SAME: {len(sides[1])} of {len(sides[1])}")
    one, other = (f"model.layers.0.block_sparse_moe.experts.{at}.w1.weight" for at in (0, 1))
    wrong = apart | {one: apart[other], other: apart[one]}
    directory(workplace / "b", stacked(wrong) if forth else wrong, {**CONFIG, "model_type": "mixtral"})
    assert cli("compare", "a", "b").lines[-1].startswith(f"DIFFERENT: {1 if forth else 2} of {len(sides[1])}")


def test_q_k_and_v_in_one_tensor_are_known(cli: Cli, workplace: Path) -> None:  # noqa: F811
    source = decoder(1)
    fused = {name: values for name, values in source.items() if not name.endswith(("q_proj.weight", "k_proj.weight"))}
    base = "model.layers.0.self_attn"
    value = fused.pop(f"{base}.v_proj.weight")
    fused[f"{base}.qkv_proj.weight"] = np.concatenate(
        [source[f"{base}.q_proj.weight"], source[f"{base}.k_proj.weight"], value]
    )
    directory(workplace / "a", source)
    directory(workplace / "b", fused)
    assert cli("compare", "a", "b").lines[-1].startswith("SAME: 10 of 10")


def test_of_a_projector_that_was_never_tried_nothing_is_called_missing() -> None:
    source, there = {"vision_tower.novel.weight": (4, 4)}, {"v.novel.weight": (4, 4)}
    sides = Sides(
        architecture="clip", config={"vision_config": {"num_hidden_layers": 1}}, source=source, candidate=there
    )
    tried, untried = (converted(replace(sides, projectors=(name,))) for name in ("pixtral", "novel"))
    assert (tried.untried, tried.without_rule) == ("", frozenset())
    assert (untried.untried, untried.without_rule) == ("projector 'novel'", frozenset({*source, *there}))


# --- The table --------------------------------------------------------------------------------------------------------

NUMBERS = {"heads": 4, "kv_heads": 2}
PLACES = {"...": "model.layers.0", "layer": "3", "each": "0", "expert": "0", "at": "1", "half": "decoder"}


def example(name: str) -> str:
    return re.sub(r"<(\w+|\.\.\.)>", lambda place: PLACES[place[1]], name)


@pytest.mark.parametrize("rule", [*built_in(), *encoders()], ids=lambda rule: rule.tensor)
def test_every_rule_makes_its_tensor_of_those_that_it_names(rule: Rule) -> None:
    shape = (24, 8, 2, 4) if "dim3" in rule.view else (6, 8, 4) if "dim0" in rule.view else (24, 8)
    source = {example(one): shape for one in rule.of}
    (made_of,) = made((rule,), [example(rule.tensor)], source, {example(rule.tensor): shape}, lambda: NUMBERS).values()
    assert {part.source for part in made_of.parts} == set(source)


def test_every_row_gives_rules_and_no_rule_is_given_twice() -> None:
    read, given = table("mapping/known_layouts"), (*built_in(), *encoders())
    both_ends = [row for row in (*read["fused"], *read["encoders"]) if row["tensor"].endswith("{}")]
    same = sum(4 if pair[0].endswith("{}") else 2 for pair in read["same"])
    rows = 5 * len(read["experts"]) + same + 2 * len(read["rotated"])
    assert len(given) == rows + len(read["fused"]) + len(read["encoders"]) + len(both_ends) == len({*given})
    assert read.keys() == {"experts", "same", "rotated", "fused", "encoders", "projectors", "unmapped", "buffers"}
    assert len({*projectors()}) == len(read["projectors"]) == 11
