"""Every field of a header is read under GGUF's own key, and lists by layer as a directory states them."""

from __future__ import annotations

from typing import Any

import pytest

from weighbridge.model_config.model_keys import gguf_keys, of_gguf


def test_every_field_of_a_header_is_read_under_gguf_s_own_key() -> None:
    keys = gguf_keys("qwen2")
    assert (keys["rope_base"], keys["head_count_kv"]) == (("qwen2.rope.freq_base",), ("qwen2.attention.head_count_kv",))
    metadata: dict[str, Any] = {name[0]: 7 for name in keys.values()} | {"general.architecture": "qwen2"}
    # A period of windows is told as unread.
    assert set(of_gguf(metadata, frozenset())) == set(keys) - {"sliding_layers"}
    assert of_gguf({}, frozenset({"rope_freqs.weight"}))["rope_scaling"].value == "table"


def test_every_key_of_a_header_is_one_that_the_gguf_package_names() -> None:
    from gguf.constants import Keys

    known = {value for part in vars(Keys).values() if isinstance(part, type) for value in vars(part).values()}
    used = {key for keys in gguf_keys("{arch}").values() for key in keys}
    # No converter writes the one today, and the other is younger than the package.
    assert used - known == {"{arch}.hidden_activation", "{arch}.attention.recurrent_layers"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"attention.sliding_window_pattern": [True, False, True]}, {"sliding_layers": "101"}),
        ({"attention.sliding_window_pattern": 6}, {}),
        ({"attention.sliding_window_pattern": [False, False], "attention.sliding_window": 16},
         {"sliding_layers": "00", "sliding_window": 0}),
        ({"feed_forward_length": [0, 96, 0]}, {"feed_forward_length": 96}),
        ({"attention.head_count_kv": [0, 2, 0, 2]}, {"head_count_kv": 2, "attention_layers": "0101"}),
        ({"attention.recurrent_layers": [True, True, False]}, {"attention_layers": "001"}),
        ({"attention.head_count_kv": [4, 2]}, {"head_count_kv": [4, 2]}),
        ({"expert_gating_func": 2}, {"expert_gating": "sigmoid"}),
        ({"expert_gating_func": 9}, {"expert_gating": "9 (int)"}),
    ],
)  # fmt: skip
def test_what_a_header_says_a_layer_at_a_time_is_reported_as_a_directory_does(
    said: dict[str, Any], expected: dict[str, Any]
) -> None:
    metadata = {"general.architecture": "lfm2", **{f"lfm2.{key}": value for key, value in said.items()}}
    found = {name: stated.value for name, stated in of_gguf(metadata, frozenset()).items()}
    assert found == {"architecture": "lfm2", **expected}


def test_a_block_count_with_prediction_layers_is_either_of_two() -> None:
    metadata: dict[str, Any] = {
        "general.architecture": "glm4moe",
        "glm4moe.block_count": 47,
        "glm4moe.nextn_predict_layers": 1,
        "glm4moe.attention.sliding_window_pattern": [at > 0 for at in range(47)],
    }
    found = of_gguf(metadata, frozenset())
    blocks, layers = found["block_count"], found["sliding_layers"]
    assert (blocks.value, blocks.also) == (47, ((46, "glm4moe.block_count less glm4moe.nextn_predict_layers"),))
    assert (layers.value, layers.also[0][0]) == ("0" + 46 * "1", "0" + 45 * "1")


def test_nemotron_s_loader_reads_the_other_epsilon() -> None:
    keys = {"layer_norm_epsilon": 1e-5, "layer_norm_rms_epsilon": 1e-6}
    for architecture, expected in (("nemotron", 1e-5), ("llama", 1e-6)):
        metadata: dict[str, Any] = {"general.architecture": architecture}
        metadata |= {f"{architecture}.attention.{key}": value for key, value in keys.items()}
        assert of_gguf(metadata, frozenset())["norm_epsilon"].value == expected
