"""model_config sees what two sides say, whichever file says it, and its canary shows that it does."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import runpy
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.formats.files import safetensors

from weighbridge.core.data import data_path
from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement, Rows, Unmeasured
from weighbridge.evaluation.runner import lay_canary
from weighbridge.evidence.codec import encode_measured
from weighbridge.model_config.header_pairs import shortest
from weighbridge.quantities.checkpoints import UNREAD, EntryDifference
from weighbridge.verifiers.model_config import VERIFIER
from weighbridge.verifiers.verifier import NoCanary
from weighbridge.views.checkpoint import CONFIG, CheckpointView, open_checkpoint

SPECIMENS = data_path("verifiers") / "specimens"
CONFIGURATION = {
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 300,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
}
PIECES = [f"piece-{at}" for at in range(300)]
MERGES = [f"{one} {other}" for one, other in itertools.product("abcdefghijkl", repeat=2)]


TENSORS = {
    "minimax-m2": {
        "blk.0.attn_norm.weight": (4,),
        "blk.1.attn_norm.weight": (4,),
        "blk.1.ffn_down_exps.weight": (2, 64, 48),
    }
}


def folder(home: Path, config: Mapping[str, Any], **files: Any) -> CheckpointView:
    home.mkdir()
    safetensors(home / "model.safetensors", {"w": ("F32", (1,), bytes(4))})
    for name, content in {CONFIG: config, **files}.items():
        (home / name.replace("__", ".")).write_text(json.dumps(content))
    return open_checkpoint(home)


def tokenizer(pieces: list[str] = PIECES, merges: list[str] = MERGES) -> dict[str, Any]:
    vocabulary = {piece: at for at, piece in enumerate(pieces)}
    return {"model": {"vocab": vocabulary, "merges": merges}, "added_tokens": []}


def header(
    path: Path,
    pieces: list[str] = PIECES,
    merges: list[str] = MERGES,
    *,
    architecture: str = "qwen2",
    kind: str = "gpt2",
    **changed: Any,
) -> CheckpointView:
    writer = gguf.GGUFWriter(path, architecture)
    said: dict[str, Any] = {
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "head_count": 4,
        "head_count_kv": 2,
        "context_length": 128,
        "layer_norm_rms_eps": 1e-6,
        "rope_freq_base": 1e6,
        **changed,
    }
    for name, value in said.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(pieces)
    writer.add_token_merges(merges)
    for name, shape in {"output.weight": (4,), **TENSORS.get(architecture, {})}.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_checkpoint(path)


def rows(*views: CheckpointView) -> dict[str, Any]:
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    assert found.examined == VERIFIER.extent(views, {})
    return {row.name: row for row in found.value.rows}


def unlike(found: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Give the fields that can be compared and do not agree."""
    return {
        name: (row.source, row.candidate) for name, row in found.items() if not row.why and row.source != row.candidate
    }


@pytest.fixture
def source(tmp_path: Path) -> CheckpointView:
    return folder(tmp_path / "hf", CONFIGURATION, tokenizer__json=tokenizer())


@pytest.mark.parametrize(
    ("changed", "field", "values"),
    [
        ({"rope_freq_base": 1e4}, "rope_base", (1e6, 1e4)),
        ({"rope_freq_base": None}, "rope_base", (1e6, 1e4)),
        ({"head_count_kv": 4}, "head_count_kv", (2, 4)),
        ({"head_count_kv": None}, "head_count_kv", (2, 4)),
        ({"head_count_kv": [2, 4]}, "head_count_kv", (2, [2, 4])),
        ({"layer_norm_rms_eps": 1e-5}, "norm_epsilon", (1e-6, 1e-5)),
        ({"layer_norm_rms_eps": math.nan}, "norm_epsilon", None),
        ({"context_length": 127}, "context_length", (128, 127)),
        ({"sliding_window": 32}, "sliding_window", (0, 32)),
        ({"expert_count": 4}, "expert_count", (0, 4)),
        ({"rope_dimension_count": 8}, "rope_dimensions", (16, 8)),
        ({"rope_scaling_type": gguf.RopeScalingType.YARN}, "rope_scaling", ("none", "yarn")),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcap", (0.0, 30.0)),
        ({"bos_token_id": 1}, "bos_token_id", (None, 1)),
        ({"add_bos_token": True}, "add_bos_token", (False, True)),
        ({"chat_template": "x"}, "chat_template", None),
    ],
)
def test_one_changed_field_is_the_one_that_differs(
    source: CheckpointView, tmp_path: Path, changed: dict[str, Any], field: str, values: Any
) -> None:
    assert unlike(rows(source, header(tmp_path / "same.gguf"))) == {}
    found = unlike(rows(source, header(tmp_path / "other.gguf", **changed)))
    assert list(found) == [field]
    assert values is None or found[field] == values


def test_an_activation_that_the_import_s_loader_does_not_compute_differs(tmp_path: Path) -> None:
    gelu = folder(tmp_path / "hf", {**CONFIGURATION, "hidden_act": "gelu_new"}, tokenizer__json=tokenizer())
    assert unlike(rows(gelu, header(tmp_path / "x.gguf"))) == {"activation": ("gelu", "silu")}


def test_entries_are_compared_one_by_one_and_padding_is_no_entry(source: CheckpointView, tmp_path: Path) -> None:
    padded = header(tmp_path / "padded.gguf", [*PIECES, "[PAD300]", "[PAD301]"], vocab_size=300)
    assert rows(source, padded)["tokens"].differing == 0
    swapped = header(tmp_path / "swapped.gguf", [*PIECES[:-2], PIECES[-1], PIECES[-2]], MERGES[::-1])
    found = rows(source, swapped)
    assert (found["tokens"].differing, found["tokens"].first_difference.index) == (2, 298)
    assert found["merges"].first_difference == EntryDifference(index=0, source="a a", candidate="l l")
    short = rows(source, header(tmp_path / "short.gguf", PIECES[:-1], vocab_size=300))["tokens"]
    assert short.first_difference == EntryDifference(index=299, source="piece-299", candidate="nothing")
    longer = rows(source, header(tmp_path / "longer.gguf", [*PIECES, "more"], vocab_size=300))["tokens"]
    assert longer.first_difference == EntryDifference(index=300, source="nothing", candidate="more")


BYTE_PAIRS = {**tokenizer(), "model": {**tokenizer()["model"], "type": "BPE"}, "post_processor": None}


@pytest.mark.parametrize("kind", ["rwkv", "none", "qpt2", "t5", "bert", "llama"])
def test_another_kind_of_tokenizer_differs_whatever_it_is_called(tmp_path: Path, kind: str) -> None:
    hf = folder(tmp_path / "hf", CONFIGURATION, tokenizer__json=BYTE_PAIRS)
    right = rows(hf, header(tmp_path / "right.gguf"))["tokenizer_model"]
    assert (right.source, right.candidate) == ("gpt2", "gpt2")
    assert unlike(rows(hf, header(tmp_path / "x.gguf", kind=kind)))["tokenizer_model"] == ("gpt2", kind)


@pytest.mark.parametrize(
    ("config", "files", "kind"),
    [
        (
            {"model_type": "gemma4_text"},
            {"tokenizer__json": {"model": {"type": "BPE", "byte_fallback": True}}},
            "gemma4",
        ),
        ({"model_type": "t5"}, {"tokenizer__json": {"model": {"type": "Unigram"}}}, "t5"),
        ({}, {"vocab__json": {"a": 0}}, "gpt2"),
    ],
)
def test_a_kind_of_tokenizer_follows_from_the_family_or_the_file_that_holds_it(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], kind: str
) -> None:
    for file in files.values():
        file.get("model", {}).setdefault("vocab", {"a": 0})
    hf = folder(tmp_path / "hf", {**CONFIGURATION, **config}, **files)
    for said in (kind, "llama"):
        found = rows(hf, header(tmp_path / f"{said}.gguf", ["a"], kind=said))["tokenizer_model"]
        assert (found.source, found.candidate, found.why) == (kind, said, "")


def test_a_tokenizer_model_that_is_no_sentencepiece_says_no_kind(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", CONFIGURATION)
    (tmp_path / "hf" / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")  # pieces in base 64, as tiktoken keeps them
    found = rows(open_checkpoint(tmp_path / "hf"), header(tmp_path / "x.gguf"))["tokenizer_model"]
    assert hf.format == "safetensors"
    assert found.why == "the source does not state it, and its loader is not asked"


@pytest.mark.parametrize("written", [2048, 4096])
def test_a_value_that_is_written_for_every_model_is_compared_with_that_value(tmp_path: Path, written: int) -> None:
    silent = {key: value for key, value in CONFIGURATION.items() if key != "max_position_embeddings"}
    hf = folder(tmp_path / "hf", {**silent, "model_type": "mamba"}, tokenizer__json=tokenizer())
    right, wrong = (
        rows(hf, header(tmp_path / f"{at}.gguf", architecture="mamba", context_length=at))["context_length"]
        for at in (1 << 20, written)
    )
    assert "placeholder" in right.why
    assert (wrong.why, wrong.source, wrong.candidate) == ("", 1 << 20, written)


def test_separator_and_mask_are_compared_where_both_sides_name_them(tmp_path: Path) -> None:
    added = [{"id": at, "content": piece, "special": True} for at, piece in enumerate(PIECES[:3])]
    named = {"sep_token": "piece-1", "mask_token": "piece-2", "eos_token": "piece-1"}
    files = {"tokenizer__json": {**BYTE_PAIRS, "added_tokens": added}, "tokenizer_config__json": named}
    hf = folder(tmp_path / "hf", CONFIGURATION, **files)
    said: dict[str, Any] = {
        "sep_token_id": 1,
        "mask_token_id": 2,
        "eos_token_id": 1,
        "token_types": [3] * 3 + [1] * 297,
    }
    assert unlike(rows(hf, header(tmp_path / "right.gguf", **said))) == {}
    wrong = header(tmp_path / "wrong.gguf", **{**said, "sep_token_id": 3, "mask_token_id": 4})
    assert unlike(rows(hf, wrong)) == {"sep_token_id": (1, 3), "mask_token_id": (2, 4)}
    assert unlike(rows(hf, header(tmp_path / "silent.gguf", eos_token_id=1))) == {}


def test_a_tokenizer_without_a_post_processor_adds_nothing(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", CONFIGURATION, tokenizer__json=BYTE_PAIRS)
    for said, found in ((False, {}), (True, {"add_bos_token": (False, True)})):
        file = header(tmp_path / f"{said}.gguf", add_bos_token=said)
        assert unlike(rows(hf, file)) == found
        assert "without a post_processor adds nothing" in rows(hf, file)["add_bos_token"].source_read
    older = {"tokenizer_class": "LlamaTokenizer"}  # whose class puts one before a text
    hf = folder(tmp_path / "older", CONFIGURATION, tokenizer__json=BYTE_PAIRS, tokenizer_config__json=older)
    assert unlike(rows(hf, header(tmp_path / "older.gguf", add_bos_token=True))) == {}


@pytest.mark.parametrize(
    ("changed", "name", "values"),
    [
        ({}, None, None),
        ({"expert_feed_forward_length": 49}, "expert_feed_forward_length", (48, 49)),
        ({"leading_dense_block_count": 0}, "leading_dense_block_count", (1, 0)),
        ({"interleave_moe_layer_step": 3}, "minimax-m2.interleave_moe_layer_step", (2, 3)),
    ],
)
def test_what_a_source_does_not_say_is_compared_with_the_tensors_and_other_keys(
    tmp_path: Path, changed: dict[str, Any], name: str | None, values: Any
) -> None:
    config = {**CONFIGURATION, "moe_layer_interval": 2}
    hf = folder(tmp_path / "hf", config, tokenizer__json=tokenizer())
    said = {"expert_feed_forward_length": 48, "leading_dense_block_count": 1, "interleave_moe_layer_step": 2}
    found = rows(hf, header(tmp_path / "x.gguf", architecture="minimax-m2", **{**said, **changed}))
    another = {"architecture": ("qwen2", "minimax-m2")}
    assert unlike(found) == another | ({} if name is None else {name: values})
    assert "config.json:moe_layer_interval" not in found
    assert found["expert_feed_forward_length"].source_read == "the shape of blk.1.ffn_down_exps.weight"


def test_both_directions_tell_the_same(source: CheckpointView, tmp_path: Path) -> None:
    file = header(tmp_path / "x.gguf", [PIECES[1], PIECES[0], *PIECES[2:]], rope_freq_base=5.0)
    there, back = rows(source, file), rows(file, source)
    turned = {name: values[::-1] for name, values in unlike(back).items()}
    assert unlike(there) == turned
    assert set(turned) == {"rope_base", "tokens"}


def test_added_tokens_may_be_written_with_plain_spaces(tmp_path: Path) -> None:
    added = [
        {"id": 300, "content": "\u2581\u2581new", "special": False},
        {"id": 301, "content": "\u2581x", "special": True},
    ]
    settings = {**CONFIGURATION, "vocab_size": 302}
    hf = folder(tmp_path / "hf", settings, tokenizer__json={**tokenizer(), "added_tokens": added})
    file = header(tmp_path / "x.gguf", [*PIECES, "  new", " x"])
    found = rows(hf, file)["tokens"]
    assert (found.differing, found.first_difference.index) == (1, 301)


def test_a_folder_without_a_tokenizer_cannot_be_compared_in_what_one_says(tmp_path: Path) -> None:
    bare = folder(tmp_path / "hf", CONFIGURATION)
    found = rows(bare, header(tmp_path / "x.gguf", chat_template="x", add_bos_token=True))
    why = "the source has no tokenizer beside it"
    assert {name for name, row in found.items() if row.why == why} == {
        *("add_bos_token", "add_eos_token", "chat_template", "tokenizer_model", "token_types", "tokens", "merges"),
        *(f"{token}_token_id" for token in ("bos", "eos", "pad", "unk", "sep", "mask")),
    }
    assert unlike(found) == {}


def test_an_apr_file_says_it_in_its_metadata(source: CheckpointView, tmp_path: Path) -> None:
    apr = runpy.run_path(str(SPECIMENS / "make_formats.py"))
    said = {"architecture": "qwen2", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
    said |= {"rope_theta": 1e4, "rms_norm_eps": 1e-6}
    data = apr["apr"]({"w": apr["Apr"](0, (1,), bytes(4))}, metadata=json.dumps(said).encode())
    (tmp_path / "x.apr").write_bytes(data)
    found = rows(source, open_checkpoint(tmp_path / "x.apr"))
    assert unlike(found)["rope_base"] == (1e6, 1e4)
    assert found["tokens"].why == "the import has no tokenizer beside it"


LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 2.0}


@pytest.mark.parametrize(
    ("changed", "name", "values"),
    [
        ({"attention_bias": True}, "config.json:attention_bias", (None, "true")),
        ({"rope_scaling": LLAMA3}, "config.json:rope_scaling.low_freq_factor", (None, 2.0)),
        ({"layer_types": ["full_attention"] * 2}, "config.json:layer_types", None),
    ],
)
def test_two_directories_are_compared_with_each_other_key_by_key(
    source: CheckpointView, tmp_path: Path, changed: dict[str, Any], name: str, values: Any
) -> None:
    other = folder(tmp_path / "other", {**CONFIGURATION, **changed}, tokenizer__json=tokenizer())
    found = unlike(rows(source, other))
    assert name in found
    assert values is None or found[name] == values


def test_two_headers_are_compared_with_each_other_key_by_key(tmp_path: Path) -> None:
    one, other = (
        header(tmp_path / f"{name}.gguf", token_types=[1] * 299 + [last], logit_scale=scale, tokenizer_pre=pre)
        for name, last, scale, pre in (("one", 1, 0.5, "qwen2"), ("other", 3, 0.25, "gpt-2"))
    )
    found = unlike(rows(one, other))
    assert set(found) == {"logit_scale", "tokenizer.ggml.pre", "token_types"}
    assert found["token_types"] == ("1 x 300", "1 x 299, 3 x 1")
    assert unlike(rows(one, one)) == {}


def test_what_no_rule_reads_across_formats_is_a_row_of_its_own(source: CheckpointView, tmp_path: Path) -> None:
    beside = folder(tmp_path / "hf2", {**CONFIGURATION, "query_scale": 3}, tokenizer__json=tokenizer())
    found = rows(beside, header(tmp_path / "x.gguf", tokenizer_pre="qwen2"))
    assert (found["config.json:query_scale"].source, found["config.json:query_scale"].why) == (3, UNREAD)
    assert found["tokenizer.ggml.pre"].why.startswith("a directory names no pre-tokenizer")
    assert not any(name.startswith("config.json:") and name != "config.json:query_scale" for name in found)


def test_a_field_that_one_format_does_not_state_is_no_difference(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", {**CONFIGURATION, "logits_scaling": 4.0}, tokenizer__json=tokenizer())
    silent, said = (rows(hf, header(tmp_path / f"{at}.gguf", logit_scale=at)) for at in (None, 8.0))
    assert silent["logit_scale"].why == "the import does not state it, and its loader is not asked"
    assert unlike(said) == {"logit_scale": (4.0, 8.0)}


@pytest.mark.parametrize(("architecture", "differs"), [("qwen2", False), ("llama", True), ("unheard-of", False)])
def test_another_architecture_differs_where_it_is_known_what_is_written_as_it(
    source: CheckpointView, tmp_path: Path, architecture: str, differs: bool
) -> None:
    found = rows(source, header(tmp_path / "x.gguf", architecture=architecture))
    assert unlike(found).get("architecture") == (("qwen2", "llama") if differs else None)


@pytest.mark.parametrize("said", ["attention_scale", "clamp_kqv", "logit_scale", "rope_scaling_attn_factors"])
def test_a_key_that_no_converter_writes_for_the_family_is_its_own(
    source: CheckpointView, tmp_path: Path, said: str
) -> None:
    alone: dict[str, Any] = {said: 0.5}
    assert list(unlike(rows(source, header(tmp_path / "known.gguf", **alone))).values()) == [(None, 0.5)]
    assert unlike(rows(source, header(tmp_path / "other.gguf", architecture="grok", **alone))) == {}


def test_the_text_part_of_a_larger_model_is_read_and_the_whole_says_whether_embeddings_are_tied(tmp_path: Path) -> None:
    for at, part in enumerate(("text_config", "llm_config", "language_config")):
        inner = {**CONFIGURATION, "tie_word_embeddings": False}
        whole = {"model_type": "mistral3", "hidden_size": 1, "tie_word_embeddings": True, part: inner}
        larger = folder(tmp_path / part, whole, tokenizer__json=tokenizer())
        found = rows(larger, header(tmp_path / f"{at}.gguf", rope_freq_base=1e6))
        assert (found["tied_embeddings"].source, found["embedding_length"].source) == (True, 64)
        assert found["config.json:hidden_size"].why == UNREAD
    thinker = {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": CONFIGURATION}}
    omni = folder(tmp_path / "omni", thinker, tokenizer__json=tokenizer())
    assert rows(omni, header(tmp_path / "o.gguf", rope_freq_base=1e6))["embedding_length"].source == 64


def resaved(home: Path, version: str, **changed: Any) -> CheckpointView:
    return folder(home, {"model_type": "llama", "hidden_size": 64, "transformers_version": version, **changed})


OLDER: dict[str, Any] = {
    "rope_theta": 1e4,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": True},
    "pretraining_tp": 1,
    "torch_dtype": "bfloat16",
    "query_scale": 3,
    "layer_types": ["mamba", "attention"],
}
NEWER: dict[str, Any] = {
    "rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "truncate": True},
    "dtype": "bfloat16",
    "query_scale": 3,
    "is_decoder": False,
    "tie_word_embeddings": True,
    "layer_types": ["linear_attention", "full_attention"],
}


def test_what_another_version_of_transformers_renames_or_leaves_out_is_no_difference(tmp_path: Path) -> None:
    found = rows(resaved(tmp_path / "4", "4.57.6", **OLDER), resaved(tmp_path / "5", "5.23.0", **NEWER))
    assert set(unlike(found)) == {"config.json:transformers_version"}
    why = "the source does not state it, and another version of transformers wrote it"
    assert found["tied_embeddings"].why == why
    assert found["config.json:is_decoder"].source_basis == "default"


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"rope_parameters": {**NEWER["rope_parameters"], "rope_theta": 1e6}}, "rope_base"),
        ({"rope_parameters": {**NEWER["rope_parameters"], "truncate": False}}, "config.json:rope_parameters.truncate"),
        ({"query_scale": 4}, "config.json:query_scale"),
        ({"is_decoder": True}, "config.json:is_decoder"),
        ({"layer_types": ["conv", "full_attention"]}, "config.json:layer_types"),
    ],
)
def test_a_value_that_both_versions_know_is_compared(tmp_path: Path, changed: dict[str, Any], name: str) -> None:
    found = rows(resaved(tmp_path / "4", "4.57.6", **OLDER), resaved(tmp_path / "5", "5.23.0", **{**NEWER, **changed}))
    assert set(unlike(found)) == {"config.json:transformers_version", name}


def test_a_key_that_one_side_lacks_is_missing_where_one_version_wrote_both(tmp_path: Path) -> None:
    found = rows(resaved(tmp_path / "a", "5.23.0", **NEWER), resaved(tmp_path / "b", "5.23.0"))
    assert {"config.json:query_scale", "tied_embeddings"} <= set(unlike(found))


def test_a_directory_without_its_tokenizer_differs_in_nothing(tmp_path: Path) -> None:
    settings = {"unk_token": "piece-0", "bos_token": "piece-1"}
    added = [{"id": at, "content": piece, "special": True} for at, piece in enumerate(PIECES[:2])]
    full = {**tokenizer(), "added_tokens": added}
    full["model"] |= {"type": "BPE"}
    source = folder(tmp_path / "full", CONFIGURATION, tokenizer__json=full, tokenizer_config__json=settings)
    found = rows(source, folder(tmp_path / "bare", CONFIGURATION))
    assert unlike(found) == {}
    absent = {"unk_token_id", "bos_token_id", "tokens", "merges"}
    assert {found[name].why for name in absent} == {"the import has no tokenizer beside it"}


def test_the_types_of_tokens_are_what_added_tokens_make_them(tmp_path: Path) -> None:
    added = [("<|end|>", False), ("hello", False), ("piece-2", True)]
    entries = [{"id": at, "content": text, "special": special} for at, (text, special) in enumerate(added)]
    pairs = {**tokenizer(), "added_tokens": entries}
    pairs["model"] |= {"type": "BPE"}
    source = folder(tmp_path / "hf", {**CONFIGURATION, "vocab_size": 302}, tokenizer__json=pairs)
    pieces = [*(text for text, _ in added), *PIECES[3:], "[PAD300]", "[PAD301]"]
    right = [3, 4, 3, *[1] * 297, 5, 5]
    for name, types in (("right", right), ("wrong", [1, *right[1:]]), ("short", right[:-1])):
        found = rows(source, header(tmp_path / f"{name}.gguf", pieces, token_types=types, vocab_size=302))
        assert list(unlike(found)) == ([] if name == "right" else ["token_types"])
        assert found["token_types"].source == "3 x 1, 4 x 1, 3 x 1, 1 x 297, 5 x 2"


def test_an_infinity_that_python_writes_is_read_as_newer_versions_write_it(tmp_path: Path) -> None:
    tagged = folder(tmp_path / "5", {**CONFIGURATION, "time_step_limit": [0.0, {"__float__": "Infinity"}]})
    bare = folder(tmp_path / "4", {**CONFIGURATION, "time_step_limit": [0.0, math.inf]})
    assert unlike(rows(bare, tagged)) == {}


def test_what_a_converter_is_known_to_lose_stays_a_difference_and_says_where(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", {**CONFIGURATION, "model_type": "mistral", "sliding_window": 16})
    found = rows(hf, header(tmp_path / "x.gguf", architecture="llama"))
    assert unlike(found)["sliding_window"] == (16, 0)
    assert "no window is written" in found["sliding_window"].candidate_read
    other = rows(hf, header(tmp_path / "y.gguf", architecture="llama", sliding_window=8))
    assert other["sliding_window"].candidate_read == "llama.attention.sliding_window"


def test_what_is_lost_and_stated_no_more_is_reported_by_where_the_source_says_it(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", {**CONFIGURATION, "model_type": "cohere2_moe", "intermediate_size": 96})
    found = rows(hf, header(tmp_path / "x.gguf", architecture="cohere2moe", feed_forward_length=None))
    assert "prefix_dense_intermediate_size is read" in found["feed_forward_length"].source_read


@pytest.mark.parametrize(("kind", "known"), [("full_attention", True), ("sliding_attention", False)])
def test_a_window_is_known_to_be_made_up_where_no_layer_has_one(tmp_path: Path, kind: str, known: bool) -> None:
    said = {"model_type": "laguna", "sliding_window": 16, "layer_types": [kind] * 2}
    source = folder(tmp_path / "hf", {**CONFIGURATION, **said})
    found = rows(source, header(tmp_path / "x.gguf", architecture="laguna", sliding_window=32))
    assert unlike(found)["sliding_window"] == (0 if known else 16, 32)
    assert ("laguna.py:87" in found["sliding_window"].candidate_read) is known


def test_two_files_of_one_folder_are_not_compared(source: CheckpointView) -> None:
    found = VERIFIER.measure((source, source), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "config-same"


def test_a_damaged_configuration_is_an_error_and_no_finding(source: CheckpointView, tmp_path: Path) -> None:
    (tmp_path / "hf" / "config.json").write_text('{"rope_theta": 1, "rope_theta": 2}')
    with pytest.raises(SubjectError, match="given twice"):
        VERIFIER.measure((source, header(tmp_path / "x.gguf")), {})


# --- The canary -------------------------------------------------------------------------------------------------------


def test_the_canary_is_seen_and_reads_a_few_entries_only(source: CheckpointView, tmp_path: Path) -> None:
    views = source, header(tmp_path / "x.gguf")
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary(views, {}, found)
    assert not isinstance(canary, NoCanary)
    assert canary.views[0].vocabulary.first == len(PIECES) - 64
    assert canary.views[1].vocabulary.first_merge == len(MERGES) - 64
    again = VERIFIER.measure(canary.views, {})
    assert canary.seen(again)
    assert not canary.seen(found)


@pytest.mark.parametrize("changed", [{}, {"rope_freq_base": 1e4}, {"head_count": 2}, {"context_length": 5}])
def test_the_canary_is_seen_in_sides_that_differ_already(
    source: CheckpointView, tmp_path: Path, changed: dict[str, Any]
) -> None:
    views = source, header(tmp_path / "x.gguf", ["another", *PIECES[1:]], **changed)
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    aligned = lay_canary(VERIFIER, views, {}, found)
    assert (aligned.applied, aligned.seen) == (True, True)


@pytest.mark.parametrize("tied", [True, False])
def test_the_canary_is_seen_where_the_last_field_is_a_switch_that_differs(tmp_path: Path, tied: bool) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 9}
    views = [folder(tmp_path / str(one), {**config, "tie_word_embeddings": one}) for one in (tied, not tied)]
    found = VERIFIER.measure(tuple(views), {})
    assert isinstance(found, Measurement)
    aligned = lay_canary(VERIFIER, tuple(views), {}, found)
    assert (aligned.applied, aligned.seen) == (True, True)


def test_the_canary_is_seen_where_the_last_field_is_one_that_a_converter_loses(tmp_path: Path) -> None:
    hf = folder(tmp_path / "hf", {"model_type": "chatglm", "hidden_size": 64, "rms_norm_eps": 1e-7})
    unsaid = ("block_count", "feed_forward_length", "head_count", "head_count_kv", "context_length", "rope_freq_base")
    said: dict[str, Any] = {"layer_norm_rms_eps": 1e-5, **dict.fromkeys(unsaid)}
    file = header(tmp_path / "x.gguf", architecture="chatglm", **said)
    found = VERIFIER.measure((hf, file), {})
    assert isinstance(found, Measurement)
    aligned = lay_canary(VERIFIER, (hf, file), {}, found)
    assert (aligned.applied, aligned.place, aligned.seen) == (True, "norm_epsilon", True)


@pytest.mark.parametrize("known", [{"hidden_size": 64}, {"hidden_size": 64, "num_attention_heads": 4}])
def test_the_canary_is_seen_where_other_fields_are_computed_from_the_changed_one(
    tmp_path: Path, known: dict[str, Any]
) -> None:
    views = folder(tmp_path / "one", {**known, "head_dim": 16}), folder(tmp_path / "other", known)
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    aligned = lay_canary(VERIFIER, views, {}, found)
    assert (aligned.applied, aligned.seen) == (True, True)


def test_sides_without_a_common_field_have_no_canary(tmp_path: Path) -> None:
    views = folder(tmp_path / "one", {"vocab_size": 64}), folder(tmp_path / "other", {"hidden_size": 4})
    found = VERIFIER.measure(views, {})
    assert isinstance(found, Measurement)
    assert isinstance(VERIFIER.canary(views, {}, found), NoCanary)


# --- Numbers ----------------------------------------------------------------------------------------------------------


@given(st.floats(width=32))
@example(3.4028234663852886e38)
@example(1.401298464324817e-45)
@example(math.inf)
def test_a_number_of_32_bits_keeps_its_bits_under_its_shortest_name(value: float) -> None:
    assert struct.pack("<f", shortest(value)) == struct.pack("<f", value)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e38, max_value=1e38))
def test_the_nearest_number_of_32_bits_has_the_same_name(value: float) -> None:
    assert shortest(value) == shortest(float(np.float32(value)))


def test_names_are_short() -> None:
    assert [shortest(float(np.float32(value))) for value in (1e-6, 0.1, 500000.0, 1e-12)] == [1e-6, 0.1, 5e5, 1e-12]
    assert shortest(1e300) == 1e300


# --- Anything at all --------------------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def some(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), ANYTHING, max_size=len(keys))


SPOILED = st.fixed_dictionaries({}, optional={
    "tokenizer.json": st.fixed_dictionaries({"model": ANYTHING | some("vocab", "merges"), "added_tokens": ANYTHING},
        optional={"post_processor": ANYTHING | some("processors", "single", "type")}),
    "tokenizer_config.json": some("added_tokens_decoder", "bos_token", "eos_token", "add_bos_token", "chat_template"),
    "generation_config.json": some("eos_token_id", "bos_token_id"),
    "vocab.json": st.dictionaries(st.text(max_size=3), ANYTHING, max_size=3),
    "added_tokens.json": st.dictionaries(st.text(max_size=3), ANYTHING, max_size=3),
    "chat_template.json": some("chat_template"),
})  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60)
@given(config=some(*CONFIGURATION, "rope_scaling", "head_dim", "text_config", "eos_token_id"), files=SPOILED)
@example(config={"text_config": {"": 1}}, files={})
def test_whatever_lies_beside_a_checkpoint_is_measured_or_refused(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], files: dict[str, Any]
) -> None:
    home = tmp_path_factory.mktemp("spoiled")
    views = folder(home / "hf", config, **{name.replace(".", "__"): value for name, value in files.items()})
    other = open_checkpoint(SPECIMENS / "configs" / "llama.gguf")
    with contextlib.suppress(SubjectError):
        found = VERIFIER.measure((views, other), {})
        if isinstance(found, Measurement):
            assert encode_measured(found)
            assert lay_canary(VERIFIER, (views, other), {}, found).seen or not anything_compared(found)


def anything_compared(found: Measurement) -> bool:
    assert isinstance(found.value, Rows)
    return any(row.source_basis and row.candidate_basis and not row.why for row in found.value.rows)


HEADER = (SPECIMENS / "configs" / "llama.gguf").read_bytes()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, len(HEADER) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_a_header_says_is_measured_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("header") / "x.gguf"
    data = bytearray(HEADER)
    for at, byte in changes:
        data[at] = byte
    path.write_bytes(data)
    with contextlib.suppress(SubjectError):
        views = open_checkpoint(SPECIMENS / "configs" / "llama"), open_checkpoint(path)
        found = VERIFIER.measure(views, {})
        assert isinstance(found, Unmeasured) or encode_measured(found)
