"""own_claims compares what a checkpoint says of its layers, packed weights and shards with names, shapes and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from weighbridge.core.data import data_path
from weighbridge.core.model import Measurement, Rows
from weighbridge.evaluation.runner import lay_canary
from weighbridge.verifiers.own_claims import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

SPECIMENS = data_path("verifiers") / "specimens" / "checkpoints"
PACKED = Path(__file__).parents[1] / "cli" / "packed_by_others"
NAMES = "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"
IN_GGUF = "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_up", "ffn_gate", "ffn_down"


def rows_of(path: Path) -> dict[str, Any]:
    view = open_checkpoint(path)
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    assert VERIFIER.extent((view,), {}) == len(found.value.rows) == found.examined
    assert lay_canary(VERIFIER, (view,), {}, found).seen
    return {row.name: row for row in found.value.rows}


def wrong(path: Path) -> dict[str, str]:
    return {name: row.wrong for name, row in rows_of(path).items() if row.wrong}


def folder(path: Path, names: list[str], **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    save_file({name: np.full(2, at, "<f4") for at, name in enumerate(names)}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    return path


def layers(count: int, stem: str = "model.layers", ends: tuple[str, ...] = NAMES) -> list[str]:
    return [f"{stem}.{at}.{end}.weight" for at in range(count) for end in ends]


def llama(path: Path, names: list[str], **keys: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        writer.add_uint32(f"llama.{key}", value)
    for name in names:
        writer.add_tensor(name, np.ones((2, 32), "<f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_layers_that_are_stated_and_not_there_or_there_and_not_stated_are_named(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 8}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **sizes))
    model.save_pretrained(tmp_path / "hf")
    assert rows_of(tmp_path / "hf")["model.layers"].says == "2 layers by config.json num_hidden_layers"
    assert wrong(tmp_path / "hf") == {}
    config, weights = tmp_path / "hf" / "config.json", tmp_path / "hf" / "model.safetensors"
    whole = json.loads(config.read_text())
    for count, said in ((3, "no tensor is of layer 2"), (1, "there is a layer 1, too")):
        config.write_text(json.dumps({**whole, "num_hidden_layers": count}))
        assert wrong(tmp_path / "hf") == {"model.layers": said}
    config.write_text(json.dumps(whole))
    save_file({name: one for name, one in load_file(weights).items() if ".layers.1." not in name}, weights)
    assert wrong(tmp_path / "hf") == {"model.layers": "no tensor is of layer 1"}


def test_a_header_that_states_other_layers_and_a_weight_that_one_inner_layer_lacks_are_named(tmp_path: Path) -> None:
    four = layers(4, "blk", IN_GGUF)
    assert wrong(llama(tmp_path / "a.gguf", four, block_count=4)) == {}
    assert wrong(llama(tmp_path / "b.gguf", four, block_count=5)) == {"blk": "no tensor is of layer 4"}
    assert wrong(llama(tmp_path / "c.gguf", four, block_count=1)) == {"blk": "there is a layer 1, 2, 3, too"}
    lacking = [name for name in four if name != "blk.1.ffn_norm.weight"]
    said = "layer 1 has no ffn_norm.weight, which 3 others have"
    assert wrong(llama(tmp_path / "d.gguf", lacking, block_count=4)) == {"blk": said}
    assert wrong(llama(tmp_path / "e.gguf", four, block_count=5, nextn_predict_layers=1)) == {}
    assert wrong(llama(tmp_path / "f.gguf", [f"{name}.lora_a" for name in four[:9]], block_count=4)) == {}


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        (("2.mlp.up_proj",), "layer 2 has no mlp.up_proj.weight, which 2 others have"),
        (("1.input_layernorm",), "layer 1 has no input_layernorm.weight, which 2 others have"),
        (("0.self_attn.o_proj",), "layer 0 has no self_attn.o_proj.weight, which 2 others have"),
        (("0.input_layernorm",), ""),
        (
            tuple(f"1.self_attn.{one}_proj" for one in "qkvo"),
            "layer 1 has no self_attn.k_proj.weight, self_attn.o_proj.weight, self_attn.q_proj.weight, …, "
            "which 2 others have",
        ),
        (("0.mlp.up_proj", "1.mlp.up_proj"), ""),
        (("0.mlp.up_proj", "1.mlp.down_proj"), ""),
        (("0.self_attn.q_norm",), ""),
    ],
)
def test_what_each_layer_is_made_of_and_one_alone_lacks_is_named(
    tmp_path: Path, absent: tuple[str, ...], said: str
) -> None:
    names = layers(3, ends=(*NAMES, "self_attn.q_norm", "mlp.up_proj", "mlp.down_proj"))
    left = [name for name in names if name.removeprefix("model.layers.").removesuffix(".weight") not in absent]
    assert wrong(folder(tmp_path, left, num_hidden_layers=3)) == ({"model.layers": said} if said else {})


def test_one_layer_that_is_packed_otherwise_lacks_nothing(tmp_path: Path) -> None:
    ends = "weight", "weight_scale"
    names = [f"model.layers.{at}.mlp.up_proj.{end}" for at in range(3) for end in ends]
    assert wrong(folder(tmp_path, names[:-1], num_hidden_layers=3)) == {}


@pytest.mark.parametrize(
    ("names", "config"),
    [
        (layers(3), {"num_hidden_layers": 2, "num_nextn_predict_layers": 1}),
        (layers(1, "encoder.albert_layer_groups"), {"num_hidden_layers": 12, "num_hidden_groups": 1}),
        (layers(4)[1:], {"num_hidden_layers": 4}),  # ModernBERT's first layer has no norm
        ([*layers(4), *layers(2, "vision_tower.layers")], {"text_config": {"num_hidden_layers": 4}}),
        ([*layers(4, "encoder.block"), *layers(2, "decoder.block")], {"num_layers": 4, "num_decoder_layers": 2}),
        (layers(2, "model.layers.0.experts"), {"num_hidden_layers": 1}),
        (layers(4, "0.auto_model.encoder.layer"), {"num_hidden_layers": 4}),
        (["model.mm_projector.0.weight", "model.mm_projector.2.weight"], {"num_hidden_layers": 4}),
        ([f"base_model.{name}.lora_{of}.weight" for name in layers(1) for of in "AB"], {"num_hidden_layers": 4}),
        (layers(2), {"num_hidden_layers": 10**15}),
        (layers(2), {"num_hidden_layers": "two"}),
        ([f"layers.{at}.{end}.weight" for at, end in enumerate(("embd", "h", "h", "head"))], {"n_layer": 2}),
    ],
)
def test_what_is_a_design_contradicts_nothing(tmp_path: Path, names: list[str], config: Mapping[str, Any]) -> None:
    assert wrong(folder(tmp_path / "x", names, **config)) == {}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"hidden_size": 8}, True),
        ({"text_config": {"hidden_size": 8}}, True),
        ({"hidden_size": 4}, False),
        ({"hidden_size": 8, "word_embed_proj_dim": 4}, False),
        ({"vision_config": {"embed_dims": [2, 4]}}, False),
        ({"vocab_size": 6}, False),
    ],
)
def test_weights_of_another_model_than_the_configuration_s_are_named_by_their_embedding(
    tmp_path: Path, config: Mapping[str, Any], named: bool
) -> None:
    save_file({"model.embed_tokens.weight": np.ones((6, 4), "<f4")}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    said = {"model.embed_tokens.weight": "its shape is [6, 4]"} if named else {}
    assert wrong(tmp_path) == said


SHAPES = {
    "model.embed_tokens": (10, 8), "model.norm": (8,), "lm_head": (10, 8), "model.layers.0.input_layernorm": (8,),
    "model.layers.0.self_attn.q_proj": (12, 8), "model.layers.0.self_attn.k_proj": (6, 8),
    "model.layers.0.self_attn.v_proj": (6, 8), "model.layers.0.self_attn.o_proj": (8, 12),
    "model.layers.0.mlp.gate_proj": (20, 8), "model.layers.0.mlp.up_proj": (20, 8),
}  # fmt: skip
OF_SHAPES = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 10, "hidden_size": 8, "num_attention_heads": 4, "head_dim": 3,
    "num_key_value_heads": 2, "intermediate_size": 20, "tie_word_embeddings": False,
}  # fmt: skip
Q, K, V = (f"model.layers.0.self_attn.{one}_proj" for one in "qkv")
GATE, UP, EMBED = "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj", "model.embed_tokens"


@pytest.mark.parametrize(
    ("shapes", "config", "said"),
    [
        ({}, {}, {}),
        ({K: (3, 8)}, {}, {f"{K}.weight": "its shape is [3, 8]"}),
        ({UP: (19, 8)}, {}, {f"{UP}.weight": "its shape is [19, 8]"}),
        ({Q: (6, 8)}, {}, {f"{Q}.weight": "its shape is [6, 8]"}),
        ({}, {"vocab_size": 11}, {f"{EMBED}.weight": "its shape is [10, 8]"}),
        ({EMBED: None}, {}, {EMBED: f"there is no {EMBED}.weight"}),
        ({"model.norm": None}, {}, {"model.norm": "there is no model.norm.weight"}),
        ({"lm_head": None}, {}, {"lm_head": "there is no lm_head.weight"}),
        ({}, {"vocab_size": 9}, {}),  # padded
        ({"lm_head": None}, {"tie_word_embeddings": True}, {}),
        ({"lm_head": None}, {"architectures": ["LlamaModel"]}, {}),
        ({"lm_head": None}, {"architectures": 5}, {}),
        ({K: (12, 8), V: (12, 8)}, {"num_key_value_heads": None}, {}),
        ({Q: (8, 8), K: (4, 8), V: (4, 8)}, {"head_dim": None}, {}),
        ({Q: (8, 8), K: (4, 8), V: (4, 8)}, {"text_config": {"num_attention_heads": 4}}, {}),  # of another part
        ({K: (3, 8)}, {"kv_lora_rank": 4}, {}),
        ({K: (3, 8), UP: (19, 8)}, {"block_configs": []}, {}),
        ({UP: (5, 8)}, {"text_config": {"intermediate_size": 5}}, {f"{GATE}.weight": "its shape is [20, 8]"}),
        ({Q: (24, 8)}, {}, {}),  # with a gate
        ({"model.vision_tower.layers.0.self_attn.k_proj": (1, 8)}, {}, {}),
        ({f"base_model.{Q}.lora_A": (2, 8), f"base_model.{Q}.lora_B": (12, 2), "lm_head": None}, {}, {}),
    ],
)  # fmt: skip
def test_shapes_that_config_json_contradicts_and_what_it_says_that_is_not_there_are_named(
    tmp_path: Path, shapes: Mapping[str, Any], config: Mapping[str, Any], said: Mapping[str, str]
) -> None:
    there = {f"{name}.weight": shape for name, shape in {**SHAPES, **shapes}.items() if shape}
    save_file({name: np.ones(shape, "<f4") for name, shape in there.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**OF_SHAPES, **config}))
    assert wrong(tmp_path) == said


def test_a_shard_alone_lacks_nothing_of_the_whole_but_its_other_shards(tmp_path: Path) -> None:
    save_file(
        {"model.layers.0.input_layernorm.weight": np.ones(8, "<f4")}, tmp_path / "model-00001-of-00002.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps(OF_SHAPES))
    assert [*wrong(tmp_path / "model-00001-of-00002.safetensors")] == ["file model-00001-of-00002.safetensors"]


@pytest.mark.parametrize("kind", ["Llama", "Gemma2", "Phi3", "Qwen3Moe", "GptOss", "OPT", "DeepseekV3", "Olmo2"])
def test_no_causal_model_that_transformers_writes_contradicts_its_configuration(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {**SIZES, **HEADS, "head_dim": 12, "num_hidden_layers": 3, "num_experts": 4, "num_local_experts": 4}
    latent = {"kv_lora_rank": 8, "q_lora_rank": 8, "n_routed_experts": 8, "qk_rope_head_dim": 4}
    config = getattr(transformers, f"{kind}Config")(**sizes, **(latent if kind == "DeepseekV3" else {}))
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(tmp_path)
    assert wrong(tmp_path) == {}


@pytest.mark.parametrize(
    ("config", "absent", "said"),
    [
        ({"r": 2}, "", ""),
        ({"r": 4}, "", "it has 2 rows"),
        ({"r": 4, "rank_pattern": {"q_proj": 2}}, "", ""),
        ({"r": 2, "rank_pattern": {"q_proj": 4}}, "", "it has 2 rows"),
        ({"r": 4, "rank_pattern": {"k_proj": 2}}, "", "it has 2 rows"),
        ({"r": 2, "rank_pattern": {"proj": 4}}, "", ""),  # the end of a name is a whole part of it
        ({"r": 4, "rank_pattern": {"[qk]_proj": 2}}, "", ""),
        ({"r": 4, "rank_pattern": {"^.*\\.(q_proj|k_proj)$": 2}}, "", ""),
        ({"r": 4, "rank_pattern": {"(q+)+": 2}}, "", ""),  # not read: it may take for ever
        ({"r": 4, "peft_type": "ADALORA"}, "", ""),
        ({"r": 2}, "lora_B", "there is no base_model.q_proj.lora_B.weight"),
    ],
)
def test_an_adapter_that_lacks_a_matrix_or_has_another_rank_than_is_said_is_named(
    tmp_path: Path, config: Mapping[str, Any], absent: str, said: str
) -> None:
    both = {"lora_A": np.ones((2, 8), "<f4"), "lora_B": np.ones((8, 2), "<f4")}
    tensors = {f"base_model.q_proj.{name}.weight": one for name, one in both.items() if name != absent}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    assert wrong(tmp_path) == ({"base_model.q_proj.lora_A.weight": said} if said else {})


def test_eyes_of_the_stated_depth_do_not_stand_for_layers_of_text(tmp_path: Path) -> None:
    names = [*layers(3), *layers(4, "vision_tower.layers")]
    said = {"model.layers": "no tensor is of layer 3"}
    assert wrong(folder(tmp_path / "x", names, text_config={"num_hidden_layers": 4})) == said


FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "Albert": {"num_hidden_layers": 3, "embedding_size": 16},
    "Bart": {"encoder_layers": 2, "decoder_layers": 3, "d_model": 16},
    "Bert": {"num_hidden_layers": 2},
    "DeepseekV3": {"num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 8, "kv_lora_rank": 8},
    "GPT2": {"n_layer": 2, "n_embd": 16, "n_head": 2},
    "Jamba": {"num_hidden_layers": 4, "num_experts": 2, "attn_layer_period": 4, "attn_layer_offset": 2},
    "Mamba": {"num_hidden_layers": 3},
    "ModernBert": {"num_hidden_layers": 4},
    "T5": {"num_layers": 2, "num_decoder_layers": 3, "d_model": 16, "d_ff": 16, "num_heads": 2, "d_kv": 8},
    "XLM": {"n_layers": 2, "emb_dim": 16, "n_heads": 2},
}
SIZES = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "pad_token_id": 0}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_that_transformers_writes_contradicts_itself(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **HEADS, **FAMILIES[family]})
    getattr(transformers, f"{family}Model")(config).save_pretrained(tmp_path)
    assert wrong(tmp_path) == {}


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LINEAR = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
GROUPS = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"a": LINEAR}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
STEM = "model.layers.0.self_attn.q_proj"
CODES = np.random.default_rng(0).integers(0, 2**31, (8, 64), dtype=np.int32)
PARTS: Mapping[str, Any] = {
    f"{STEM}.qweight": CODES,
    f"{STEM}.scales": np.linspace(0.01, 0.02, 128, dtype="<f2").reshape(2, 64),
    f"{STEM}.qzeros": np.full((2, 8), 0x77777777, "<i4"),
    f"{STEM}.g_idx": np.arange(64, dtype="<i4") // 32,
}


@pytest.mark.parametrize(
    ("parts", "keys", "said"),
    [
        ({}, {}, ""),
        ({}, {"bits": 8}, "groups of 32 need scales of [1, 64], and there are [2, 64]"),
        ({"g_idx": np.full(64, 99, "<i4")}, {}, f"{STEM}.g_idx does not number 2 groups of 64"),
        ({"qweight": CODES[:-1]}, {}, f"{STEM}.g_idx does not number 2 groups of 56"),
        ({"scales": None}, {}, f"there is no {STEM}.scales"),
        ({"scales": None}, {"quant_method": "another"}, ""),
        ({"qweight": None}, {}, f"there is no {STEM}.qweight"),
        ({"qweight": None, "qzeros": None}, {}, ""),
    ],
)
def test_codes_and_scales_that_are_not_of_the_packing_that_is_said_are_named(
    tmp_path: Path, parts: Mapping[str, Any], keys: Mapping[str, Any], said: str
) -> None:
    path = folder(tmp_path, [], quantization_config={**GPTQ, **keys})
    there = {**PARTS, **{f"{STEM}.{name}": part for name, part in parts.items()}}
    save_file({name: part for name, part in there.items() if part is not None}, path / "model.safetensors")
    assert wrong(path) == ({f"{STEM}.qweight": said} if said else {})


@pytest.mark.parametrize(
    ("scale", "scheme", "said"),
    [
        (0.5, "static", ""),
        (0.0, "static", f"{STEM}.input_scale is 0, which no quantiser writes"),
        (-0.5, "static", f"{STEM}.input_scale is -0.5, which no quantiser writes"),
        (np.nan, "static", f"{STEM}.input_scale is nan, which no quantiser writes"),
        (None, "static", f"its inputs have a static scheme, and no {STEM}.input_scale is there"),
        (None, "dynamic", ""),
        (0.5, {"dynamic": False}, ""),
        (None, {"dynamic": False}, f"its inputs have a static scheme, and no {STEM}.input_scale is there"),
        (None, {"dynamic": True}, ""),
        (None, None, ""),
    ],
)
def test_a_scale_of_inputs_that_is_lost_or_no_scale_is_named(
    tmp_path: Path, scale: float | None, scheme: Any, said: str
) -> None:
    of_groups = {**GROUPS, "config_groups": {"a": {**LINEAR, "input_activations": scheme}}}
    settings = {"quant_method": "fp8", "activation_scheme": scheme} if isinstance(scheme, str) else of_groups
    path = folder(tmp_path, [], quantization_config=settings)
    codes = np.linspace(-100, 100, 64).reshape(8, 8).astype(ml_dtypes.float8_e4m3fn)
    parts: dict[str, Any] = {f"{STEM}.weight": codes, f"{STEM}.weight_scale": np.full(1, 0.001, "<f4")}
    parts |= {f"{STEM}.input_scale": np.full(1, scale, "<f4")} if scale is not None else {}
    save_file(parts, path / "model.safetensors")
    assert wrong(path) == ({f"{STEM}.weight": said} if said else {})


DOWN = "model.layers.1.mlp.experts.0.down_proj"


def three_layers(path: Path, plain: tuple[str, ...], settings: Mapping[str, Any]) -> Path:
    """Write three layers of FP8, of which some weights are plain; a router, a norm and a head always are."""
    whole = np.linspace(-0.1, 0.1, 64).reshape(8, 8)
    parts: dict[str, Any] = {"lm_head.weight": whole.astype("<f4")}
    for at in range(3):
        stem = f"model.layers.{at}"
        parts |= {f"{stem}.mlp.gate.weight": whole[:2].astype("<f4"), f"{stem}.norm.weight": np.ones(8, "<f4")}
        for name in (f"{stem}.mlp.experts.0.down_proj", f"{stem}.mlp.experts.1.down_proj", f"{stem}.self_attn.q_proj"):
            if name.startswith(plain or "-"):
                parts[f"{name}.weight"] = whole.astype("<f4")
            else:
                parts[f"{name}.weight"] = (whole * 4480).astype(ml_dtypes.float8_e4m3fn)
                parts[f"{name}.weight_scale"] = np.full(1, 1 / 4480, "<f4")
    folder(path, [], num_hidden_layers=3, quantization_config=settings)
    save_file(parts, path / "model.safetensors")
    return path


ALONE, LAYER = (DOWN,), ("model.layers.1.",)


@pytest.mark.parametrize(
    ("plain", "settings", "many"),
    [
        ((), FP8, 0),
        (ALONE, FP8, 1),
        (ALONE, GROUPS, 1),
        (LAYER, FP8, 3),
        (ALONE, {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.1.mlp.experts.1"]}, 1),
        (ALONE, {**FP8, "modules_to_not_convert": ["lm_head", DOWN]}, 0),
        (LAYER, {**FP8, "modules_to_not_convert": [r"model.layers.(1|7)"]}, 0),
        (LAYER, {**GROUPS, "ignore": ["lm_head", r"re:.*layers\.1\..*"]}, 0),
        (ALONE, {**GROUPS, "ignore": ["language_model." + DOWN]}, 0),  # named as in another library's model
        (ALONE, {**GROUPS, "config_groups": {"a": {**LINEAR, "targets": ["re:.*layers.[02].*"]}}}, 0),
        (ALONE, {**FP8, "quant_method": "bitsandbytes"}, 0),  # whose loader packs what is plain
        (ALONE, {**FP8, "quant_method": "gptq", "dynamic": {"-:.*1.mlp.*": {}}}, 0),
    ],
)
def test_a_plain_matrix_like_which_others_are_packed_is_named_unless_a_list_names_it(
    tmp_path: Path, plain: tuple[str, ...], settings: Mapping[str, Any], many: int
) -> None:
    found = {name: said for name, said in wrong(three_layers(tmp_path, plain, settings)).items() if "plain" in said}
    assert len(found) == many
    if many == 1:
        assert found == {f"{DOWN}.weight": "it is plain, 5 like it are packed, and no list names it"}


def test_plain_layers_behind_those_that_are_stated_predict_further_tokens(tmp_path: Path) -> None:
    path = three_layers(tmp_path, ("model.layers.2.",), FP8)
    assert len(wrong(path)) == 3
    (path / "config.json").write_text(
        json.dumps({"model_type": "deepseek_v3", "num_hidden_layers": 2, "quantization_config": FP8})
    )
    assert not [said for said in wrong(path).values() if "plain" in said]


@pytest.mark.parametrize("path", sorted(one.parent for one in PACKED.glob("*/config.json")), ids=lambda path: path.name)
def test_nothing_contradicts_what_the_packers_wrote(path: Path) -> None:
    assert wrong(path) == {}


def test_a_shard_that_is_bound_by_its_own_name_is_bound_without_the_others() -> None:
    name = "model-00001-of-00002.safetensors"
    assert wrong(SPECIMENS / "sharded" / name) == {f"file {name}": "bound without model-00002-of-00002.safetensors"}
    assert wrong(SPECIMENS / "sharded") == wrong(SPECIMENS / "source.safetensors") == {}
