"""Every spelling of a field is read, the newer place before the older, and no value of a wrong type breaks anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.core.data import table
from weighbridge.mapping.gguf_mapping import Sides
from weighbridge.model_config.model_defaults import computed_activations, default, incomparable
from weighbridge.model_config.model_keys import (
    GGUF,
    HUGGING_FACE,
    Model,
    Stated,
    canonical,
    field_keys,
    of_config,
    of_post_processor,
    of_tokenizer,
    text,
)
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, FieldKind


def values(config: dict[str, Any]) -> dict[str, Any]:
    return {name: stated.value for name, stated in of_config(config, "config.json").items()}


def model(form: str = HUGGING_FACE, architecture: str = "llama", tokenizer: str = "", **fields: Any) -> Model:
    stated = {name: Stated(value=value, read="x") for name, value in fields.items()}
    return Model(form=form, architecture=architecture, fields=stated, tokenizer=tokenizer)


@each("name, keys", [(name, one.config) for name, one in field_keys().items()])
def test_every_spelling_is_read_and_null_says_nothing(name: str, keys: tuple[str, ...]) -> None:
    value = of_kind(name)
    for key in keys:
        assert of_config({key: value}, "p")[name] == Stated(value=value, read=f"p {key}")
        assert name not in values({key: None})


def of_kind(name: str) -> Any:
    kinds = {FieldKind.COUNT: 7, FieldKind.NUMBER: 2.5, FieldKind.WORD: "silu", FieldKind.SWITCH: True}
    return kinds[CONFIG_FIELDS[name]]


def test_every_row_of_keys_is_of_a_field_and_no_field_is_without_one() -> None:
    assert set(CONFIG_FIELDS) - set(field_keys()) == {"chat_template"}
    assert set(field_keys()) <= set(CONFIG_FIELDS)


def test_every_key_of_rotary_positions_is_read() -> None:
    keys = {name: one.rope for name, one in field_keys().items() if one.rope}
    rope = {key: of_kind(name) for name, key in keys.items()}
    assert values({"rope_parameters": rope}) == {name: of_kind(name) for name in keys}


OTHER = table("model_config/model_keys")["of_model_type"]


@each(
    "family, name, key",
    [(family, name, key) for family, row in OTHER.items() for name, keys in row.items() for key in keys],
)
def test_every_key_of_a_family_is_read_in_it(family: str, name: str, key: str) -> None:
    outer, _, inner = key.partition(".")
    config = {outer: {inner: of_kind(name)} if inner else of_kind(name), "model_type": family}
    assert of_config(config, "p")[name] == Stated(value=of_kind(name), read=f"p {key}")


@each(
    "config, expected",
    [
        ({"rope_scaling": {"type": "linear", "factor": 2}}, {"rope_scaling": "linear", "rope_scaling_factor": 2.0}),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}},
         {"rope_scaling": "table", "rope_scaling_factor": 8.0, "rope_original_context": 64}),
        ({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
         {"rope_base": 5e5, "rope_scaling": "none"}),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}},
         {"rope_base": 1e6, "rope_base_local": 1e4}),
        ({"rope_scaling": {"type": "su"}}, {"rope_scaling": "longrope"}),
        ({"rope_scaling": "yes"}, {"rope_scaling": '"yes" (str)'}),
        ({"head_dim": 64, "partial_rotary_factor": 0.5}, {"head_dim": 64, "rope_dimensions": 32}),
        ({"hidden_size": 64, "num_attention_heads": 4, "rope_parameters": {"partial_rotary_factor": 0.25}},
         {"embedding_length": 64, "head_count": 4, "rope_dimensions": 4}),
        ({"num_attention_heads": 8, "multi_query": True}, {"head_count": 8, "head_count_kv": 1}),
        ({"model_type": "falcon", "intermediate_size": 9, "ffn_hidden_size": 12, "multi_query": True,
          "new_decoder_architecture": True, "num_kv_heads": 2},
         {"architecture": "falcon", "feed_forward_length": 12, "head_count_kv": 2}),
        ({"model_type": "cohere", "max_position_embeddings": 8192, "model_max_length": 131072},
         {"architecture": "cohere", "context_length": 131072}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"sliding_window": 0}),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, {"sliding_window": 0}),
        ({"layer_types": ["sliding_attention", "full_attention"]}, {"sliding_layers": "10"}),
        ({"layer_types": ["conv", "full_attention"]}, {"attention_layers": "01"}),
        ({"layers_block_type": ["mamba", "attention", "moe"]}, {"attention_layers": "010", "block_count": 3}),
        ({"model_type": "dbrx", "ffn_config": {"moe_top_k": 2}, "attn_config": {"kv_n_heads": 4, "rope_theta": 5e5}},
         {"architecture": "dbrx", "expert_used_count": 2, "head_count_kv": 4, "rope_base": 5e5}),
        *(({"model_type": "nemotron_h", "intermediate_size": 96, "moe_intermediate_size": 32, key: kinds},
           {"architecture": "nemotron_h", "feed_forward_length": width, "expert_feed_forward_length": 32, **layers})
          for key, kinds, width, layers in (
              ("layers_block_type", ["mamba", "mlp"], 96, {"block_count": 2, "attention_layers": "00"}),
              ("layers_block_type", ["mamba", "moe"], 32, {"block_count": 2, "attention_layers": "00"}),
              ("hybrid_override_pattern", "M-*-", 96, {}), ("hybrid_override_pattern", "ME*E", 32, {}),
              ("hybrid_override_pattern", [[{}]], 96, {}), ("hybrid_override_pattern", 7, 96, {}),
          )),
        ({"model_type": "mpt", "d_model": 64, "expansion_ratio": 3},
         {"architecture": "mpt", "embedding_length": 64, "feed_forward_length": 192}),
        ({"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "head_dim": 8}, {"head_dim": 24, "rope_dimensions": 8}),
        ({"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"],
          "per_layer_config": {"1": {"head_dim": 32}}}, {"head_dim": 32, "sliding_layers": "10"}),
        ({"architectures": ["LlamaModel"], "tie_word_embeddings": False}, {}),
        ({"architectures": ["GPT2LMHeadModel"], "tie_word_embeddings": False}, {"tied_embeddings": False}),
        ({"layer_types": "all"}, {}),
        ({"": 1}, {}),
        ({"layer_types": ["full_attention", "unheard_of"], "sliding_window": 8}, {"sliding_window": 8}),
        ({"model_type": "lfm2", "block_auto_adjust_ff_dim": True, "block_ff_dim": 96, "block_multiple_of": 32,
          "block_ffn_dim_multiplier": 1.5}, {"architecture": "lfm2", "feed_forward_length": 96}),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1},
         {"architecture": "roberta", "context_length": 512}),
        ({"model_type": "mamba2", "num_heads": 8, "time_step_rank": 4},
         {"architecture": "mamba2", "head_count": 8, "ssm_time_step_rank": 8}),
        ({"rope_parameters": {"rope_type": "yarn", "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.5}},
         {"rope_scaling": "yarn", "rope_beta_fast": 32.0, "rope_beta_slow": 1.0, "rope_attn_factor": 1.5}),
    ],
)  # fmt: skip
def test_what_a_configuration_says_in_other_ways(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert values(config) == expected


@each(
    "value, kind, expected",
    [
        (4096.0, FieldKind.COUNT, 4096),
        (4096.5, FieldKind.COUNT, 4096.5),
        ([2, 2, 2], FieldKind.COUNT, 2),
        ([2, 4], FieldKind.COUNT, [2, 4]),
        ([], FieldKind.COUNT, "[] (list)"),
        (True, FieldKind.COUNT, "true (bool)"),
        ("32", FieldKind.COUNT, '"32" (str)'),
        (10000, FieldKind.NUMBER, 10000.0),
        (False, FieldKind.NUMBER, "false (bool)"),
        ({"a": 1}, FieldKind.NUMBER, '{"a": 1} (dict)'),
        (1, FieldKind.SWITCH, "1 (int)"),
        (False, FieldKind.SWITCH, False),
        (5, FieldKind.WORD, "5 (int)"),
    ],
)
def test_a_value_of_another_kind_is_reported_as_what_it_is(value: Any, kind: FieldKind, expected: Any) -> None:
    found = canonical(value, kind)
    assert (found, type(found)) == (expected, type(expected))


def test_long_values_that_begin_alike_are_distinguished() -> None:
    assert canonical("a" * 100, FieldKind.WORD) != canonical("a" * 100 + "b", FieldKind.WORD)
    assert len(text(["a"] * 10_000)) < 200
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    assert text(nested) == "a value that cannot be written"
    assert canonical(10**400, FieldKind.NUMBER) == text(10**400)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *{key for keys in field_keys().values() for key in keys.config},
        *("rope_parameters", "rope_scaling", "partial_rotary_factor", "bos_token", "eos_token_id", "bos_token_id"),
        *("add_bos_token", "cls_token"),
    ]
)
ROPE = st.dictionaries(st.sampled_from(["rope_theta", "type", "factor", "full_attention", "sliding_attention",
    "partial_rotary_factor"]), JSON, max_size=4)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200)
@given(config=st.dictionaries(KEYS, JSON | ROPE, max_size=8), processor=JSON)
def test_no_configuration_whatever_breaks_the_reading_of_it(config: dict[str, Any], processor: Any) -> None:
    found = of_config(config, "p") | of_tokenizer(config, config, config, {}) | of_post_processor(processor, {})
    assert set(found) <= set(CONFIG_FIELDS)
    source = Model(form=HUGGING_FACE, architecture="llama", fields=found)
    for name in CONFIG_FIELDS:
        default(name, source)
        incomparable(name, source, model(GGUF))


# --- Tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_numbered_by_the_tokenizer_before_the_configurations() -> None:
    found = of_tokenizer(
        {"eos_token_id": [7, 8], "pad_token_id": 0},
        {"eos_token_id": 9},
        {"eos_token": {"content": "</s>"}},
        {"</s>": 2},
    )
    also = (
        (7, "config.json eos_token_id"),
        (8, "config.json eos_token_id"),
        (9, "generation_config.json eos_token_id"),
    )
    assert found["eos_token_id"] == Stated(value=2, read="tokenizer_config.json eos_token", also=also)
    assert found["pad_token_id"] == Stated(value=0, read="config.json pad_token_id")
    assert set(found) == {"eos_token_id", "pad_token_id"}


def test_an_encoders_own_tokens_stand_for_the_first_and_the_last() -> None:
    known = {"[CLS]": 2, "[SEP]": 3}
    found = of_tokenizer({}, {}, {"cls_token": "[CLS]", "sep_token": "[SEP]"}, known)
    assert {name: stated.value for name, stated in found.items()} == {
        "bos_token_id": 2,
        "eos_token_id": 3,
        "sep_token_id": 3,
    }


def template(*pieces: str) -> dict[str, Any]:
    single = [{"Sequence": {"id": "A"}} if one == "A" else {"SpecialToken": {"id": one}} for one in pieces]
    return {"type": "TemplateProcessing", "single": single}


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (None, {}),
        ({"type": "ByteLevel"}, {"add_bos_token": False, "add_eos_token": False}),
        ({"type": "RobertaProcessing"}, {"add_bos_token": True, "add_eos_token": True}),
        (template("<s>", "A"), {"add_bos_token": True}),
        (template("<s>", "A", "</s>"), {"add_bos_token": True, "add_eos_token": True}),
        (template("x", "A"), {"add_bos_token": False}),
        (template("A"), {}),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template("<s>", "A")]},
         {"add_bos_token": True, "add_eos_token": False}),
    ],
)  # fmt: skip
def test_what_frames_a_text_is_read_from_the_post_processor(processor: Any, expected: dict[str, bool]) -> None:
    found = of_post_processor(processor, {"bos": "<s>", "eos": "</s>"})
    assert {name: stated.value for name, stated in found.items()} == expected


# --- Defaults ---------------------------------------------------------------------------------------------------------


@each(
    "name, side, expected",
    [
        ("norm_epsilon", model(architecture="olmo"), 1e-5),
        ("norm_epsilon", model(architecture="llama"), None),
        ("causal", model(architecture="bert"), False),
        ("rope_base", model(), 10000.0),
        ("rope_base", model(architecture="mixtral"), 1e6),
        ("rope_base", model(GGUF, "llama"), 10000.0),
        ("head_dim", model(embedding_length=64, head_count=4), 16),
        ("head_dim", model(embedding_length=65, head_count=4), None),
        ("head_dim", model(embedding_length=64, head_count=0), None),
        ("head_dim", model(architecture="gemma", embedding_length=64, head_count=4), 256),
        ("head_dim", model(GGUF, "gemma", embedding_length=64, head_count=4), 16),
        ("rope_dimensions", model(head_dim=32), 32),
        ("head_count_kv", model(head_count=8), 8),
        ("feed_forward_length", model(architecture="gpt2", embedding_length=64), 256),
        ("feed_forward_length", model(embedding_length=64), None),
        ("attn_logit_softcap", model(GGUF, "gemma2"), 50.0),
        ("attn_logit_softcap", model(GGUF, "llama"), 0.0),
        ("rope_base_local", model(GGUF, "gemma3"), 10000.0),
        ("rope_base_local", model(GGUF, "llama"), None),
        ("activation", model(GGUF, "llama"), "silu"),
        ("activation", model(GGUF, "unheard-of"), None),
        ("activation", model(), None),
        ("tied_embeddings", model(GGUF, "llama"), True),
        ("tied_embeddings", model(GGUF, "bert"), None),
        ("tied_embeddings", replace(model(GGUF, "llama"), tensors={"lm_head.weight": (4,)}), None),
        ("tied_embeddings", replace(model(GGUF, "llama"), tensors={"model.lm_head.weight": (4,)}), None),
        ("tied_embeddings", replace(model(GGUF, "llama"), tensors={"output.weight": (4,)}), None),
        ("bos_token_id", model(GGUF, tokenizer="llama"), 1),
        ("bos_token_id", model(GGUF, tokenizer="gpt2"), None),
        ("add_bos_token", model(tokenizer="LlamaTokenizer"), True),
        ("block_count", model(), None),
    ],
)
def test_what_a_loader_takes_where_nothing_is_said(name: str, side: Model, expected: Any) -> None:
    found = default(name, side)
    assert (None if found is None else found.value) == expected
    assert found is None or found.basis == "default"


@each(
    "name, source, candidate, why",
    [
        ("architecture", model(), model(GGUF, "grok"), "the two formats name architectures differently"),
        ("architecture", model(architecture="x"), model(GGUF), "the two formats name architectures differently"),
        ("architecture", model(), model(GGUF), ""),
        ("architecture", model(), model(), ""),
        ("rope_base", model(), model(GGUF), ""),
        ("context_length", model(architecture="mamba"), model(GGUF, "mamba"), "the import holds a placeholder"),
        ("context_length", model(architecture="mamba"), model(architecture="mamba"), ""),
        (
            "rope_scaling_factor",
            model(rope_scaling="table"),
            model(GGUF, rope_scaling="table"),
            "the factors are a tensor",
        ),
        ("rope_scaling_factor", model(), model(GGUF, rope_scaling="yarn"), ""),
        ("activation", model(activation="silu"), model(GGUF, "unheard-of"), "GGUF does not say it"),
        ("activation", model(activation="silu"), model(GGUF, "llama"), ""),
        ("eos_token_id", model(eos_token_id=32000, vocab_size=320), model(GGUF), "the id lies outside the vocabulary"),
        ("eos_token_id", model(eos_token_id=319, vocab_size=320), model(GGUF), ""),
        ("eos_token_id", model(eos_token_id=320, vocab_size=320), model(GGUF, eos_token_id=320), ""),
    ],
)
def test_what_two_formats_cannot_be_compared_in_is_said(name: str, source: Model, candidate: Model, why: str) -> None:
    found = incomparable(name, source, candidate)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_the_architectures_whose_activation_is_known_are_gguf_s() -> None:
    import gguf

    newer = {"cohere2moe", "deepseek32", "granite_swa", "hrm_text", "hy_v3", "laguna", "mellum", "qwen4exp"}
    # The newer ones are of the converter's own gguf.
    assert set(computed_activations()) - newer <= set(gguf.MODEL_ARCH_NAMES.values())


def test_a_mapping_counts_heads_under_the_same_names() -> None:
    config = {"n_head": 4, "num_kv_heads": 2, "n_layer": 3}
    sides = Sides(architecture="llama", config=config, source={}, candidate={})
    assert (sides.heads, sides.number("block_count")) == ((4, 2), 3)
