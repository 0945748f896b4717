"""Every row of what the converter writes of its own and loses is found, by each architecture and field of it."""

from __future__ import annotations

from typing import Any

import pytest

from weighbridge.core.data import table
from weighbridge.model_config.model_defaults import Fact, incomparable, lost, written
from weighbridge.model_config.model_keys import GGUF, HUGGING_FACE, Model, Stated
from weighbridge.quantities.checkpoints import CONFIG_FIELDS

FACTS = {
    kind: [(one, name, Fact(**row)) for row in rows for one in row["of"] for name in row["fields"]]
    for kind, rows in table("model_config/conversion_facts").items()
}


def model(form: str, architecture: str, **fields: Any) -> Model:
    stated = {name: Stated(value=value, read="x") for name, value in fields.items()}
    return Model(form=form, architecture=architecture, fields=stated)


def test_a_fact_covers_fields_that_there_are_and_no_other_row_covers_them() -> None:
    assert FACTS.keys() == {"written", "lost"}
    for rows in FACTS.values():
        pairs = [(architecture, name) for architecture, name, _ in rows]
        assert len(pairs) == len(set(pairs)) > 15
        assert {name for _, name in pairs} <= CONFIG_FIELDS.keys()


@pytest.mark.parametrize(("architecture", "name", "fact"), FACTS["written"])
def test_what_the_converter_writes_of_its_own_is_not_compared(architecture: str, name: str, fact: Fact) -> None:
    silent, saying = model(HUGGING_FACE, "x"), model(HUGGING_FACE, "x", **{name: 1})
    widths = {key: 6 for key, _ in fact.makes if key}
    own = next((times * 6 if key else times for key, times in fact.makes), 2)
    file = model(GGUF, architecture, **widths, **{name: own})
    assert written(name, file, silent) == incomparable(name, silent, file) == fact.text
    assert incomparable(name, saying, file) == ("" if fact.unsaid else fact.text)


@pytest.mark.parametrize(("architecture", "name", "fact"), [one for one in FACTS["written"] if one[2].makes])
def test_another_value_than_the_one_that_the_converter_writes_is_compared(
    architecture: str, name: str, fact: Fact
) -> None:
    for value in (7, "rwkv", None):
        assert incomparable(name, model(HUGGING_FACE, "x"), model(GGUF, architecture, **{name: value})) == ""


@pytest.mark.parametrize(("architecture", "name", "fact"), FACTS["lost"])
def test_what_the_converter_loses_is_named_at_the_value_that_it_makes(architecture: str, name: str, fact: Fact) -> None:
    fields = {key for key, _ in fact.makes} - {"", "head_dim"}
    assert fields <= CONFIG_FIELDS.keys()
    source = model(HUGGING_FACE, fact.whose or "x", **{name: 1 if fact.said is None else fact.said})
    file = model(GGUF, architecture, **{**dict.fromkeys(fields, 6), "head_dim": 6})
    for key, times in fact.makes:
        assert lost(name, times * (6 if key else 1), source, file) == fact.text
    assert lost(name, 5, source, file) == ("" if fact.makes or not fact.whose else fact.text)
    assert fact.makes or lost(name, None, source, file) == fact.text
