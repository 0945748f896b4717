"""Labels and traces of training decide nothing; whatever a model computes with does."""

from __future__ import annotations

import pytest

from weighbridge.gates.families.harmless_keys import harmless


@pytest.mark.parametrize(
    "name",
    [
        *("config.json:transformers_version", "config.json:text_config.dtype", "config.json:id2label.0"),
        *("general.name", "config.json:quantization_config.bits", "general.source.url", "quantize.imatrix.file"),
        *("split.no", "metadata:use_cache", "tokenizer_config.json:padding_side", "generation_config.json:temperature"),
    ],
)
def test_what_is_known_to_be_harmless_has_a_reason(name: str) -> None:
    assert harmless(name)


@pytest.mark.parametrize(
    "name",
    [
        *("config.json:attention_bias", "config.json:rope_parameters.factor", "config.json:hidden_act", "general.type"),
        *("config.json:layer_types", "general.architecture", "tokenizer.ggml.pre", "llama.attention.causal", "dtype"),
        *("tokenizer.json:normalizer", "generation_config.json:eos_token_id", "llama.name", "block_count"),
    ],
)
def test_what_a_model_computes_with_decides(name: str) -> None:
    assert not harmless(name)
