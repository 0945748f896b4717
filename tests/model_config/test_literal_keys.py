"""Every key has a name and a value that differs where the written one does, and none of them is lost."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.rows import typed

from weighbridge.core.data import table
from weighbridge.model_config.literal_keys import MAX_KEYS, as_text, elsewhere, is_list, key_rows, of_document, unread
from weighbridge.model_config.model_keys import GGUF, HUGGING_FACE, Stated

FILE = "config.json"


def test_nested_objects_are_named_by_their_path_and_null_says_nothing() -> None:
    document = {"a": 1, "b": {"c": {"d": [1, 2]}, "e": None}, "f": {}}
    assert of_document(document, FILE) == {"config.json:a": 1, "config.json:b.c.d": "[1, 2]"}
    assert of_document(None, FILE) == {}


def test_the_vocabulary_is_no_key_and_a_pipeline_is_one() -> None:
    tokenizer = {"model": {"vocab": {"a": 0}, "merges": [], "type": "BPE"}, "normalizer": {"type": "NFC"}}
    found = of_document(tokenizer, "tokenizer.json")
    assert found == {"tokenizer.json:model.type": "BPE", "tokenizer.json:normalizer": '{"type": "NFC"}'}


def test_a_file_of_too_many_keys_is_one_value() -> None:
    many = {str(at): at for at in range(MAX_KEYS + 1)}
    (one,), (other,) = (of_document({**many, "0": first}, FILE).items() for first in (0, 1))
    assert (one[0], other[0]) == (FILE, FILE)
    assert one[1] != other[1]


@pytest.mark.parametrize(("one", "other"), [(True, 1), (False, 0), ([1], [2]), ("x" * 200, "x" * 199 + "y"), (1, 1.5)])
def test_values_that_are_written_otherwise_differ(one: Any, other: Any) -> None:
    assert as_text(one) != as_text(other)


def rows(*sides: dict[str, Any], forms: tuple[str, str] = (HUGGING_FACE, HUGGING_FACE)) -> dict[str, Any]:
    return {row.name: row for row in key_rows(forms, sides, ({}, {}), ())}


def test_a_file_that_one_side_lacks_is_reported_once() -> None:
    lacking = {f"{FILE}:a": 1}
    found = rows({**lacking, "tokenizer.json:x": 1, "tokenizer.json:y": 2}, lacking)
    assert found.keys() == {"tokenizer.json", f"{FILE}:a"}
    assert found["tokenizer.json"].why == "the import has no tokenizer.json beside it, or an empty one"


def test_a_colon_in_a_header_hides_no_key() -> None:
    found = rows({"a:b": 1}, {"c": 1}, forms=(GGUF, GGUF))
    assert [(row.name, row.source, row.candidate, row.why) for row in found.values()] == [
        ("a:b", 1, None, ""),
        ("c", None, 1, ""),
    ]


def test_a_key_of_which_a_field_reads_less_is_compared_literally() -> None:
    keys = [of_document({"layer_types": [kind, "full_attention"]}, FILE) for kind in ("mamba", "conv")]
    field = {"source": "01", "candidate": "01", "source_read": f"{FILE} layer_types"}
    alike = typed("model_config", {"name": "attention_layers", **field, "candidate_read": f"{FILE} layer_types"})
    forms = (HUGGING_FACE, HUGGING_FACE)
    none: tuple[dict[str, Stated], ...] = ({}, {})
    assert [row.name for row in key_rows(forms, keys, none, [alike])] == ["config.json:layer_types"]
    assert key_rows(forms, [keys[0], keys[0]], none, [alike]) == []
    assert key_rows(forms, keys, none, [replace(alike, candidate="10")]) == []


def test_a_text_model_s_own_key_is_read_and_the_one_around_it_is_not() -> None:
    keys = of_document({"hidden_size": 1, "text_config": {"hidden_size": 2}}, FILE)
    fields = {"embedding_length": Stated(value=2, read=f"{FILE} hidden_size")}
    assert unread(keys, fields) == {"config.json:hidden_size": 1}


# --- The table --------------------------------------------------------------------------------------------------------

READ = table("model_config/literal_keys")
OLD = {
    "rope_scaling.factor": "rope_parameters.factor",
    "rope_scaling.type": "rope_parameters.rope_type",
    "rope_parameters.type": "rope_parameters.rope_type",
    "rotary_emb_base": "rope_parameters.rope_theta",
    "partial_rotary_factor": "rope_parameters.partial_rotary_factor",
    "torch_dtype": "dtype",
    "pad_index": "pad_token_id",
}
SILENT = ("is_encoder_decoder", "rope_parameters.rope_type")


def test_every_place_elsewhere_is_named_for_a_key_of_its_pattern() -> None:
    assert {glob: elsewhere(glob.replace("*", "x")) for glob in READ["elsewhere"]} == READ["elsewhere"]


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_a_key_is_compared_with_the_one_that_took_its_place(old: str, new: str) -> None:
    (row,) = rows({f"{FILE}:{old}": 1}, {f"{FILE}:{new}": 1}).values()
    assert (row.name, row.source, row.candidate) == (f"{FILE}:{new}", 1, 1)


def test_every_pattern_of_a_key_has_a_case_above() -> None:
    assert [old for old, _ in READ["renamed"] if not any(re.search(old, f"{FILE}:{one}") for one in OLD)] == []
    assert [old for old in READ["taken"] if not any(re.search(old, f"{FILE}:{one}") for one in SILENT)] == []


@pytest.mark.parametrize("key", SILENT)
def test_what_every_class_takes_is_compared_where_one_side_is_silent(key: str) -> None:
    forms = (HUGGING_FACE, HUGGING_FACE)
    (row,) = key_rows(forms, ({f"{FILE}:{key}": "x"}, {f"{FILE}:y": 1}), ({}, {}), (), "not in {}")[:1]
    taken = next(value for old, value in READ["taken"].items() if re.search(old, f"{FILE}:{key}"))
    assert (row.source, row.candidate, row.candidate_basis) == ("x", taken, "default")


def test_lists_are_no_keys_and_what_is_read_as_one_is_one() -> None:
    for name in (*READ["lists"], *READ["whole"]):
        place, _, path = name.partition(":")
        outer, _, inner = path.rpartition(".")
        found = of_document({outer: {inner: {"a": 1}}} if outer else {path: {"a": 1}}, place) if path else {}
        assert found == ({} if is_list(name) else {name: '{"a": 1}'})
    kinds = {"layer_types": [*READ["layers"], "x"]}
    assert of_document(kinds, FILE) == {f"{FILE}:layer_types": json.dumps([*READ["layers"].values(), "x"])}
