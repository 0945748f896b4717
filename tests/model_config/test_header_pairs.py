"""Every row of the table of header keys says what the key should be, from each place that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weighbridge.core.data import table
from weighbridge.model_config.header_pairs import expected, paired
from weighbridge.model_config.literal_keys import key_rows
from weighbridge.model_config.model_description import ModelDescription
from weighbridge.model_config.model_keys import GGUF, HUGGING_FACE, Model

KEYS = table("model_config/header_pairs")["keys"]
PLACES = [(key, place) for key, row in KEYS.items() for place in row if place not in ("words", "entries", "count")]
TENSORS = {
    "blk.0.attn_norm.weight": (4,),
    "blk.1.attn_norm.weight": (4,),
    "blk.1.ffn_down_exps.weight": (2, 4, 5),
    "blk.1.ffn_down_shexp.weight": (4, 6),
    "blk.1.ssm_out.weight": (4, 7),
    "blk.0.shortconv.conv.weight": (4, 3),
    "blk.0.attn_kv_a_mqa.weight": (40, 4),
    "blk.0.attn_kv_a_norm.weight": (32,),
}


def side(form: str, name: str, keys: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> ModelDescription:
    return ModelDescription(
        model=Model(form=form, architecture=name, fields={}, tensors=tensors), vocabulary=None, keys=keys
    )


@pytest.mark.parametrize(("key", "place"), PLACES)
def test_every_place_of_every_row_says_a_value(key: str, place: str) -> None:
    row = KEYS[key]
    file = side(GGUF, key.partition(".")[0], {key: 1}, TENSORS if place in ("shape", "before") else {})
    of = next(iter(row["of"])) if place == "of" else "y"
    word = next(iter(row.get("words", {"3": 3})))
    for one in row["config"] if place == "config" else ("",):
        other = side(HUGGING_FACE, of, {f"config.json:{one}": word} if one else {}, {})
        found = expected(key, file, other)
        assert found is not None
        assert found.read == (f"config.json {one}" if one else found.read)


def test_a_key_of_a_text_model_s_own_part_comes_first() -> None:
    file = side(GGUF, "x", {"x.altup.num_inputs": 4}, {})
    other = side(
        HUGGING_FACE, "y", {"config.json:altup_num_inputs": 2, "config.json:text_config.altup_num_inputs": 4}, {}
    )
    found = expected("x.altup.num_inputs", file, other)
    assert found is not None
    assert (found.value, found.read) == (4, "config.json text_config.altup_num_inputs")


@pytest.mark.parametrize(
    ("said", "value"),
    [("[1, 1]", 1), ("[1, 2]", "[1, 2]"), *((said, said) for said in ("[]", "[no list", "[1, 2,… sha256:0"))],
)
def test_a_list_of_one_value_is_that_value_and_no_other_text_breaks(said: str, value: Any) -> None:
    found = expected(
        "x.expert_shared_count",
        side(GGUF, "x", {}, {}),
        side(HUGGING_FACE, "y", {"config.json:num_shared_expert": said}, {}),
    )
    assert found is not None
    assert found.value == value


def test_sections_are_filled_up_with_zeros_and_compared_entry_by_entry() -> None:
    file = side(GGUF, "x", {"x.rope.dimension_sections": "[3, 3, 2, 0]", "x.unheard_of": 7}, {})
    other = side(HUGGING_FACE, "y", {"config.json:rope_parameters.mrope_section": "[3, 3, 2]"}, {})
    made = key_rows((HUGGING_FACE, GGUF), (other.keys, file.keys), ({}, {}), [])
    found = {row.name: row for row in paired(made, other, file)}
    assert found.keys() == file.keys.keys()
    assert (found["x.rope.dimension_sections"].source, found["x.rope.dimension_sections"].why) == ("[3, 3, 2, 0]", "")
    assert found["x.unheard_of"].why == "no rule reads it"
    turned = {
        row.name: row
        for row in paired(key_rows((GGUF, HUGGING_FACE), (file.keys, other.keys), ({}, {}), []), file, other)
    }
    assert turned["x.rope.dimension_sections"].candidate == "[3, 3, 2, 0]"
    assert paired(made, file, replace(file)) == made
