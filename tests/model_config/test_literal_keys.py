"""Every key has a name and a value that differs where the written one does, and none of them is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.rows import typed

import pytest
from weighbridge.model_config.literal_keys import MAX_KEYS, as_text, key_rows, of_document, unread
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


def test_a_file_that_one_side_lacks_is_told_once() -> None:
    lacking = {f"{FILE}:a": 1}
    found = rows({**lacking, "tokenizer.json:x": 1, "tokenizer.json:y": 2}, lacking)
    assert found.keys() == {"tokenizer.json", f"{FILE}:a"}
    assert found["tokenizer.json"].why == "the import has no tokenizer.json beside it"


def test_a_colon_in_a_header_hides_no_key() -> None:
    found = rows({"a:b": 1}, {"c": 1}, forms=(GGUF, GGUF))
    assert [(row.name, row.source, row.candidate, row.why) for row in found.values()] == [
        ("a:b", 1, None, ""),
        ("c", None, 1, ""),
    ]


def test_a_key_of_which_a_field_reads_less_is_held_literally() -> None:
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
