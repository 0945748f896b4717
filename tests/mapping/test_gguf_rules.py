"""Each row of the table of rules, by what the converter was seen to make, and what a rule must not hide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.cases import each
from tests.comparison.conversions import CONFIG, converted, decoder, directory, gguf_file, weighed

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.core.model import Outcome
from weighbridge.mapping.gguf_mapping import MASK, POOLER, Sides, plan
from weighbridge.mapping.gguf_rules import generated, rules
from weighbridge.mapping.mapping_plan import Pairing, Shape
from weighbridge.views.checkpoint import open_checkpoint

LATENT = {"num_attention_heads": 2, "qk_nope_head_dim": 3, "v_head_dim": 2}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3, "linear_value_head_dim": 2}
SECTIONS = {"num_attention_heads": 2, "rope_parameters": {"mrope_section": [1, 1], "partial_rotary_factor": 0.5}}
TWELVE, EXPERTS = {"ffn_config": {"moe_num_experts": 2}}, "model.layers.0.mlp.experts."


def values_of(tmp_path: Path, name: str, values: np.ndarray, pairing: Pairing) -> np.ndarray:
    """Read the values that a pairing gives, in their order."""
    hf = directory(tmp_path / "hf", {name: values})
    file = gguf_file(tmp_path / "m.gguf", {pairing.candidate: np.zeros(pairing.shape, np.float32)}, "llama")
    aligned = AlignedTensor(open_checkpoint(hf), open_checkpoint(file), pairing)
    found = np.concatenate([words.view(np.float32).reshape(-1) for words in aligned.predicted()])
    return found.reshape(pairing.shape)


def by_key_head(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put q, k, v and z apart as Qwen3-Next's own modelling code takes them: of each key head one after the other."""
    q, k, v, z = np.split(w.reshape(2, 14, -1), [3, 6, 10], axis=1)
    return np.concatenate([one.reshape(-1, w.shape[1]) for one in (q, k, v)]), z.reshape(-1, w.shape[1])


def tiled(w: np.ndarray, size: int) -> np.ndarray:
    """Take the value heads of all key heads in turn: the first of each, then the second."""
    return w.reshape(2, 2, size, -1).swapaxes(0, 1).reshape(w.shape)


def latent(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heads = w.reshape(2, 5, -1)
    return heads[:, :3].swapaxes(1, 2), heads[:, 3:]


class Case(NamedTuple):
    """One source tensor of a family, and one tensor of layer 0 that it becomes."""

    architecture: str
    config: Mapping[str, Any]
    name: str
    shape: Shape
    target: str
    meant: Callable[[Any], Any]


TOLD: tuple[tuple[Any, ...], ...] = (
    ("llama4", {}, EXPERTS + "gate_up_proj", (2, 4, 6), "ffn_gate_exps.weight", lambda w: w[..., :3].swapaxes(1, 2)),
    ("llama4", {}, EXPERTS + "gate_up_proj", (2, 4, 6), "ffn_up_exps.weight", lambda w: w[..., 3:].swapaxes(1, 2)),
    ("llama4", {}, EXPERTS + "down_proj", (2, 3, 4), "ffn_down_exps.weight", lambda w: w.swapaxes(1, 2)),
    ("gpt-oss", {}, EXPERTS + "gate_up_proj", (2, 4, 6), "ffn_gate_exps.weight", lambda w: w[..., ::2].swapaxes(1, 2)),
    ("gpt-oss", {}, EXPERTS + "gate_up_proj", (2, 4, 6), "ffn_up_exps.weight", lambda w: w[..., 1::2].swapaxes(1, 2)),
    ("gpt-oss", {}, EXPERTS + "down_proj", (2, 3, 4), "ffn_down_exps.weight", lambda w: w.swapaxes(1, 2)),
    ("gpt-oss", {}, EXPERTS + "gate_up_proj_bias", (2, 6), "ffn_gate_exps.bias", lambda w: w[:, ::2]),
    ("gpt-oss", {}, EXPERTS + "gate_up_proj_bias", (2, 6), "ffn_up_exps.bias", lambda w: w[:, 1::2]),
    ("gpt-oss", {}, EXPERTS + "down_proj_bias", (2, 4), "ffn_down_exps.bias", lambda w: w),
    ("gpt-oss", {}, "model.layers.0.self_attn.sinks", (4,), "attn_sinks.weight", lambda w: w),
    ("qwen3vlmoe", {}, EXPERTS + "gate_up_proj", (2, 4, 6), "ffn_up_exps.weight", lambda w: w[..., 3:].swapaxes(1, 2)),
    ("qwen3vlmoe", {}, EXPERTS + "down_proj", (2, 3, 4), "ffn_down_exps.weight", lambda w: w.swapaxes(1, 2)),
    ("qwen3vlmoe", {}, "thinker.model.layers.0.mlp.gate.weight", (2, 3), "ffn_gate_inp.weight", lambda w: w),
    ("muse-glimmer", {}, "model.layers.0.pre_feedforward_layernorm.weight", (4,), "ffn_norm.weight", lambda w: w + 1),
    ("muse-glimmer", {}, "model.layers.0.post_attention_layernorm.weight", (4,), "post_attention_norm.weight",
     lambda w: w + 1),
    ("bert", {}, "distilbert.transformer.layer.0.ffn.lin1.weight", (3, 2), "ffn_up.weight", lambda w: w),
    ("modern-bert", {}, "model.layers.0.mlp_norm.weight", (4,), "ffn_norm.weight", lambda w: w),
    ("qwen4exp", {}, "model.language_model.layers.0.attn_hyper_connection.input_mix_weight_down.weight", (2, 3),
     "hc_attn_down.weight", lambda w: w),
    ("glm4", SECTIONS, "model.layers.0.self_attn.k_proj.weight", (16, 2), "attn_k.weight",
     lambda w: w[[0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15]]),
    ("qwen3moe", {}, EXPERTS + "gate_up_proj", (2, 6, 4), "ffn_gate_exps.weight", lambda w: w[:, :3]),
    ("qwen3moe", {}, EXPERTS + "gate_up_proj", (2, 6, 4), "ffn_up_exps.weight", lambda w: w[:, 3:]),
    ("qwen3moe", {}, EXPERTS + "gate_up_proj", (2, 6, 4), "ffn_gate_up_exps.weight", lambda w: w),
    ("qwen3moe", {}, EXPERTS + "down_proj", (2, 4, 3), "ffn_down_exps.weight", lambda w: w),
    ("granite_swa", {}, "model.layers.0.block_sparse_moe.input_linear.weight", (2, 6, 4), "ffn_gate_up_exps.weight",
     lambda w: w),
    ("granitemoe", {}, "model.layers.0.block_sparse_moe.input_linear.weight", (2, 6, 4), "ffn_up_exps.weight",
     lambda w: w[:, 3:]),
    ("granitemoe", {}, "model.layers.0.shared_mlp.input_linear.weight", (6, 4), "ffn_gate_shexp.weight",
     lambda w: w[:3]),
    ("granitehybrid", {}, "model.layers.0.shared_mlp.input_linear.weight", (6, 4), "ffn_up.weight", lambda w: w[3:]),
    ("granite_swa", {}, "model.layers.0.shared_mlp.input_linear.weight", (6, 4), "ffn_up_shexp.weight", lambda w: w),
    ("dbrx", TWELVE, "transformer.blocks.0.ffn.experts.mlp.w1", (6, 4), "ffn_gate_exps.weight",
     lambda w: w.reshape(2, 3, 4)),
    ("dbrx", TWELVE, "transformer.blocks.0.ffn.experts.mlp.v1", (6, 4), "ffn_up_exps.weight",
     lambda w: w.reshape(2, 3, 4)),
    ("dbrx", TWELVE, "transformer.blocks.0.ffn.experts.mlp.w2", (6, 4), "ffn_down_exps.weight",
     lambda w: w.reshape(2, 3, 4).swapaxes(1, 2)),
    ("deepseek2", LATENT, "model.layers.0.self_attn.kv_b_proj.weight", (10, 4), "attn_k_b.weight",
     lambda w: latent(w)[0]),
    ("deepseek2", LATENT, "model.layers.0.self_attn.kv_b_proj.weight", (10, 4), "attn_v_b.weight",
     lambda w: latent(w)[1]),
    ("minicpm3", LATENT, "model.layers.0.self_attn.kv_b_proj.weight", (10, 4), "attn_kv_b.weight", lambda w: w),
    ("qwen3next", LINEAR, "model.layers.0.linear_attn.in_proj_qkvz.weight", (28, 3), "attn_qkv.weight",
     lambda w: by_key_head(w)[0]),
    ("qwen3next", LINEAR, "model.layers.0.linear_attn.in_proj_qkvz.weight", (28, 3), "attn_gate.weight",
     lambda w: by_key_head(w)[1]),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.in_proj_qkv.weight", (20, 3), "attn_qkv.weight",
     lambda w: np.concatenate([w[:12], tiled(w[12:], 2)])),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.in_proj_z.weight", (8, 3), "attn_gate.weight",
     lambda w: tiled(w, 2)),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.conv1d.weight", (20, 3), "ssm_conv1d.weight",
     lambda w: np.concatenate([w[:12], tiled(w[12:], 2)])),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.in_proj_a.weight", (4, 3), "ssm_alpha.weight",
     lambda w: tiled(w, 1)),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.in_proj_b.weight", (4, 3), "ssm_beta.weight", lambda w: tiled(w, 1)),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.dt_bias", (4,), "ssm_dt.bias", lambda w: tiled(w, 1)),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.A_log", (4,), "ssm_a", lambda w: -np.exp(tiled(w, 1))),
    ("qwen35", LINEAR, "model.layers.0.linear_attn.out_proj.weight", (3, 8), "ssm_out.weight",
     lambda w: tiled(w.T.copy(), 2).T),
    ("hrm_text", {}, "model.L_module.layers.0.attn.gqkv_proj.weight", (8, 3), "attn_k.weight", lambda w: w[4:6]),
    ("hrm_text", {}, "model.L_module.layers.0.mlp.gate_up_proj.weight", (8, 3), "ffn_up.weight", lambda w: w[4:]),
    ("qwen3next", {}, "model.layers.0.input_layernorm.weight", (4,), "attn_norm.weight", lambda w: w + 1),
    ("qwen3next", {}, "model.layers.0.linear_attn.norm.weight", (4,), "ssm_norm.weight", lambda w: w),
    ("gemma-embedding", {}, "layers.0.input_layernorm.weight", (4,), "attn_norm.weight", lambda w: w + 1),
    ("mamba2", {}, "backbone.layers.0.mixer.norm.weight", (4,), "ssm_norm.weight", lambda w: w),
    ("mamba2", {}, "backbone.layers.0.mixer.dt_bias", (4,), "ssm_dt.bias", lambda w: w),
    ("bloom", {}, "transformer.h.0.post_attention_layernorm.weight", (4,), "ffn_norm.weight", lambda w: w),
    ("lfm2moe", {}, "model.layers.0.feed_forward.expert_bias", (4,), "exp_probs_b.bias", lambda w: w),
    ("ernie4_5-moe", {}, "model.layers.0.mlp.moe_statics.e_score_correction_bias", (1, 4), "exp_probs_b.bias",
     lambda w: w),
    ("hy_v3", {}, "model.layers.0.mlp.expert_bias", (4,), "exp_probs_b", lambda w: w),
    ("gemma4", {}, "model.layers.0.layer_scalar", (1,), "layer_output_scale.weight", lambda w: w),
    ("falcon-h1", {"key_multiplier": 0.75, "attention_in_multiplier": 0.5}, "model.layers.0.self_attn.k_proj.weight",
     (3, 4), "attn_k.weight", lambda w: w * np.float32(0.75) * np.float32(0.5)),
    ("falcon-h1", {"mamba_d_ssm": 2, "mamba_n_groups": 1, "mamba_d_state": 1, "ssm_in_multiplier": 0.5,
                   "ssm_multipliers": [1.0, 2.0, 3.0, 4.0, 5.0]}, "model.layers.0.mamba.in_proj.weight", (8, 3),
     "ssm_in.weight", lambda w: w * np.float32(0.5) * np.array([1, 1, 2, 2, 3, 4, 5, 5], np.float32)[:, None]),
)  # fmt: skip
CASES = [Case(*printed) for printed in TOLD]


@each("case", CASES)
def test_a_rule_gives_the_values_in_the_file_s_order(tmp_path: Path, case: Case) -> None:
    values = np.arange(1, 1 + np.prod(case.shape), dtype=np.float32).reshape(case.shape)
    wanted, target = case.meant(values), f"blk.0.{case.target}"
    sides = Sides(
        architecture=case.architecture, config=case.config, source={case.name: case.shape},
        candidate={target: wanted.shape},
    )  # fmt: skip
    pairing = plan(sides).pairings[target]
    assert pairing.shape == wanted.shape
    assert np.allclose(values_of(tmp_path, case.name, values, pairing), wanted, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3), (0, 4), (2, 3, 4, 5)])
def test_a_shape_or_a_configuration_that_does_not_fit_is_no_reason_to_fail(shape: Shape) -> None:
    for case in CASES:
        for config in (case.config, dict.fromkeys(case.config, "x"), dict.fromkeys(case.config, ())):
            source, candidate = {case.name: shape}, {f"blk.0.{case.target}": (5, 2), "token_embd.weight": (9, 9)}
            sides = Sides(architecture=case.architecture, config=config, source=source, candidate=candidate)
            assert plan(sides).name == f"gguf:auto ({case.architecture})"


@pytest.mark.parametrize("said", [{"rope_type": "llama3", "factor": "x"}, {"rope_type": "proportional"}])
def test_a_table_that_the_configuration_does_not_give_is_none(said: dict[str, Any]) -> None:
    assert generated({"rope_parameters": said, "hidden_size": "x", "per_layer_config": 3}) == {}


def test_the_table_of_llama_3_stands_on_8192_tokens_where_no_other_number_is_stated() -> None:
    config = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 131072}
    rope = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}
    stated, silent, longer = (
        generated({**config, "rope_parameters": {**rope, **said}})["rope_freqs.weight"]
        for said in ({"original_max_position_embeddings": 8192}, {}, {"original_max_position_embeddings": 131072})
    )
    assert stated == silent != longer
    assert (stated[0], stated[-1], len(stated)) == (1.0, 8.0, 16)


def test_every_rule_has_a_case_and_families_that_are_proven() -> None:
    tried = [(case.architecture, case.name.partition(".0.")[2]) for case in CASES]
    for rule in rules().tensors:
        assert set(rule.of) <= set(rules().proven)
        assert any(
            re.fullmatch(rule.names, f"layers.0.{name}") and (not rule.of or architecture in rule.of)
            for architecture, name in tried
        ), rule


# A name that each row is for, in the order of the rows.
NAMED = {
    "respelled": (
        *("a.gamma", "a.beta", "a.experts.0.w", "e_score_correction_bias", "a.expert_bias", "a.dt_bias", "a.sinks"),
        *("a.layer_scalar", "classifier.bias", "a.attn.o_proj.w", "a.mlp.router.gate.w"),
        *("a.mlp.experts.e_score_correction.bias", "a.block_sparse_moe.router.weight", "model.z_L_init"),
        *("a.hc_norm.w", "a.input_mix_weight_up.w", "a.block_inject_weight.w"),
        *("model.layers.3.attn_hyper_connection.w", "model.layers.3.mlp_hyper_connection.w"),
        "model.language_model.hyper_connection_mixer.w",
    ),
    "stacks": ("model.altup_projections.1.weight", "altup_unembed_projections.0.weight"),
    "in_header": ("model.layers.3.mlp.act_fn.alpha_p",),
    "plus_one": (
        *("model.norm.weight", "model.norm.weight", "layers.0.input_layernorm.weight", "model.norm.weight"),
        "layers.0.indexer.k_layernorm.weight",
    ),
    "left_out": (
        *("h.0.attn.masked_bias", "layers.0.rotary_emb.inv_freq", "bert.embeddings.position_ids"),
        *("roberta.pooler.dense.bias", "vocab_projector.bias"),
    ),
    "multiplied": (
        *("a.down_proj.weight", "a.gate_proj.weight", "a.k_proj.bias", "a.v_proj.weight", "a.o_proj.weight"),
        *("a.out_proj.weight", "lm_head.weight", "model.embed_tokens.weight"),
    ),
    "faults": (*("blk.0.attn_q.weight", "blk.0.attn_k.bias", "blk.0.ffn_up_exps.weight", "bert.pooler.dense.weight"),),
}


@pytest.mark.parametrize("kind", NAMED)
def test_every_other_row_is_for_the_names_that_it_was_written_for(kind: str) -> None:
    rows = getattr(rules(), kind)
    patterns = [row if isinstance(row, str) else row.names for row in rows]
    looked_for = re.search if kind == "respelled" else re.fullmatch
    assert [name for pattern, name in zip(patterns, NAMED[kind], strict=True) if not looked_for(pattern, name)] == []


def test_what_is_left_out_under_a_condition_is_in_the_table() -> None:
    assert {MASK, POOLER} <= {*rules().left_out.values()}


def test_every_row_is_of_architectures_that_are_known() -> None:
    import gguf

    rows = [row for kind in ("tensors", "in_header", "plus_one", "faults") for row in getattr(rules(), kind)]
    named = {one for row in rows for one in row.of} | {*rules().permuted, *rules().interleaved, *rules().of_sections}
    named |= {*rules().cut_vocabulary, *rules().padded_vocabulary}
    assert named - {*gguf.MODEL_ARCH_NAMES.values()} <= {*rules().proven}  # the newer ones are of the converter's own


def test_an_architecture_is_proven_where_the_page_shows_a_family_of_it_that_is_accepted() -> None:
    page = (Path(__file__).resolve().parents[2] / "spec" / "conversions.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[2:6]
        for line in page.splitlines()
        if re.match(r"\| [a-z0-9-]+ \| \S+ \| \d+ \| \d+ \| \d+ \|", line)
    ]
    assert len(rows) > 100
    accepted = {cells[0].strip() for cells in rows if int(cells[1])}
    assert accepted == set(rules().proven) - {"clip"}  # mmproj files, which are in no row: test_known_layouts.py


@pytest.mark.parametrize(
    ("said", "turned"), [({}, True), ({"partial_rotary_factor": "x"}, False), ({"partial_rotary_factor": 1e-9}, False)]
)
def test_pairs_of_a_head_are_put_apart_where_a_share_of_it_turns(said: dict[str, Any], turned: bool) -> None:
    config = {"num_attention_heads": 2, "rope_parameters": {"mrope_section": [1], **said}}
    name, target = "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight"
    sides = Sides(architecture="glm4", config=config, source={name: (16, 2)}, candidate={target: (16, 2)})
    assert len(plan(sides).pairings[target].parts) == (4 if turned else 1)


@pytest.mark.parametrize("stored", [(2, 4, 6), (2, 6, 4)])
def test_experts_are_turned_as_published_ones_are_and_not_where_they_are_stored_turned(stored: tuple[int, ...]) -> None:
    name, target = "model.layers.0.mlp.experts.gate_up_proj", "blk.0.ffn_up_exps.weight"
    config = {"hidden_size": 4}
    sides = Sides(architecture="qwen3vlmoe", config=config, source={name: stored}, candidate={target: (2, 3, 4)})
    pairing = plan(sides).pairings[target]
    assert (pairing.shape, pairing.parts[0].transposed) == ((2, 3, 4), stored == (2, 4, 6))


def test_norms_that_stand_for_a_scale_are_computed() -> None:
    found = generated({"qk_scale_factor": 3.87, "num_hidden_layers": 1, "head_dim": 2})
    assert found == {"blk.0.attn_q_norm.weight": (3.87, 3.87), "blk.0.attn_k_norm.weight": (1.0, 1.0)}


def test_experts_of_a_layer_that_has_one_are_no_stack() -> None:
    names = {f"model.layers.0.feed_forward.experts.0.{one}_proj.weight": (2, 2) for one in ("gate", "up", "down")}
    candidate = {f"blk.0.ffn_{one}.weight": (2, 2) for one in ("gate", "up", "down")}
    found = plan(Sides(architecture="jamba", config={}, source=names, candidate=candidate))
    assert set(found.pairings) == set(candidate)


def test_numbered_tensors_are_stacked_by_number() -> None:
    names = {f"model.altup_projections.{at}.weight": (2, 2) for at in range(3)}
    found = plan(Sides(architecture="gemma3n", config={}, source=names, candidate={"altup_proj.weight": (3, 2, 2)}))
    assert [part.source for part in found.pairings["altup_proj.weight"].parts] == sorted(names)


@pytest.mark.parametrize(("rows", "padded"), [(5, True), (6, False)])
def test_an_embedding_may_be_padded_with_zeros_up_to_the_vocabulary(tmp_path: Path, rows: int, padded: bool) -> None:
    name, target = "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"
    values = np.ones((3, 2), np.float32)
    sides = Sides(
        architecture="gemma3n", config={"vocab_size": 5}, source={name: (3, 2)}, candidate={target: (rows, 2)}
    )
    pairing = plan(sides).pairings[target]
    assert (pairing.shape == (rows, 2)) is padded
    if padded:
        assert np.array_equal(values_of(tmp_path, name, values, pairing), np.pad(values, ((0, 2), (0, 0))))


MTP = {
    "mtp.fc.weight": "nextn.eh_proj.weight",
    "mtp.pre_fc_norm_hidden.weight": "nextn.hnorm.weight",
    "mtp.layers.0.self_attn.q_proj.weight": "attn_q.weight",
}


def test_the_layer_that_predicts_further_tokens_stands_behind_the_others() -> None:
    source = dict.fromkeys(MTP, (2, 2))
    there = {f"blk.2.{target}": (2, 2) for target in MTP.values()}
    config = {"num_hidden_layers": 2}
    found = plan(Sides(architecture="qwen35", config=config, source=source, candidate=there))
    assert {target: one.parts[0].source for target, one in found.pairings.items()} == {
        f"blk.2.{target}": name for name, target in MTP.items()
    }
    without = plan(
        Sides(architecture="qwen35", config=config, source=source, candidate={"blk.1.attn_q.weight": (2, 2)})
    )
    assert set(without.drop_rules) == set(source)
    short = plan(Sides(architecture="qwen35", config=config, source=source, candidate=dict([*there.items()][:2])))
    assert short.drop_rules == {}  # a layer that the file has is not left out, so what it lacks is missing


def test_layers_are_counted_by_their_names_where_no_number_says_how_many_there_are() -> None:
    source = {"backbone.layers.7.mixer.up_proj.weight": (2, 2)}
    found = plan(
        Sides(architecture="nemotron_h_moe", config={}, source=source, candidate={"blk.7.ffn_up.weight": (2, 2)})
    )
    assert set(found.pairings) == {"blk.7.ffn_up.weight"}


@pytest.mark.parametrize(("head", "code"), [([0.5, 0.25], ""), ([0.5, 0.75], "missing"), ([0.5], "missing")])
def test_a_learned_number_may_stand_in_the_header_where_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: list[float], code: str
) -> None:
    from weighbridge.formats.gguf_file import LongValues

    source = decoder()
    import_ = gguf_file(tmp_path / "m.gguf", converted(source, "apertus"), "apertus")
    source |= {
        f"model.layers.{at}.mlp.act_fn.beta": np.array(value, np.float32) for at, value in enumerate((0.5, 0.25))
    }
    monkeypatch.setattr(LongValues, "numbers", lambda _self, key: head if key == "xielu.beta" else None)
    rows, verdict = weighed(directory(tmp_path / "hf", source), import_)
    assert {offence.code for offence in verdict.offences} == {code} - {""}
    assert rows["model.layers.0.mlp.act_fn.beta"].identical_to == "xielu.beta"


def test_global_heads_have_a_table_of_their_own_size() -> None:
    rope = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}}
    config = {"rope_parameters": rope, "head_dim": 8, "global_head_dim": 16}
    assert generated(config) == {"rope_freqs.weight": (1.0, 1.0, *[1e30] * 6)}
    layers = {"layer_types": ["sliding_attention", "full_attention"], "per_layer_config": {"1": {"head_dim": 16}}}
    assert generated({"rope_parameters": rope, "head_dim": 8, **layers}) == generated(config)


@pytest.mark.parametrize("architecture", ["llama", "never-tried"])
def test_what_no_rule_speaks_of_is_missing_only_where_the_rules_are_proven(tmp_path: Path, architecture: str) -> None:
    source = decoder()
    arrays = converted(source, "qwen2")
    source["model.layers.0.self_attn.novel.weight"] = np.ones((2, 2), np.float32)
    arrays["blk.0.attn_novel.weight"] = np.ones((2, 2), np.float32)
    import_ = gguf_file(tmp_path / "m.gguf", arrays, architecture)
    rows, verdict = weighed(directory(tmp_path / "hf", source, CONFIG), import_)
    codes = {offence.place: offence.code for offence in verdict.offences}
    novel = {"model.layers.0.self_attn.novel.weight", "blk.0.attn_novel.weight"}
    if architecture == "never-tried":
        assert verdict.outcome is Outcome.BLOCKED
        assert codes == dict.fromkeys(novel, "no-rule")
        assert {name for name, row in rows.items() if row.no_rule} == novel
    else:
        assert verdict.outcome is Outcome.FAIL
        assert {codes[place] for place in novel} == {"missing", "extra"}


def test_a_tensor_that_is_lost_is_missing_whether_its_family_was_tried_or_not(tmp_path: Path) -> None:
    source = decoder()
    arrays = converted(source, "qwen2")
    del arrays["blk.1.ffn_up.weight"]
    _, verdict = weighed(directory(tmp_path / "hf", source), gguf_file(tmp_path / "m.gguf", arrays, "never-tried"))
    assert [(one.place, one.code) for one in verdict.offences] == [("model.layers.1.mlp.up_proj.weight", "missing")]


def test_no_mechanism_is_named_where_no_rule_speaks(tmp_path: Path) -> None:
    source = decoder()
    arrays = converted(source, "qwen2")
    arrays["blk.1.attn_norm.weight"] = arrays["blk.1.attn_norm.weight"] + np.float32(1)
    hf = directory(tmp_path / "hf", source)
    _, tried = weighed(hf, gguf_file(tmp_path / "m.gguf", arrays, "qwen2"))
    assert [one.figures["mechanism"] for one in tried.offences] == ["plus-one-unasked"]
    _, untried = weighed(hf, gguf_file(tmp_path / "n.gguf", arrays, "never-tried"))
    assert untried.outcome is Outcome.BLOCKED
    assert [one.figures.get("mechanism") for one in untried.offences] == [None]
