"""Every row of the table of defaults is taken where nothing is said, and names a field that there is."""

from __future__ import annotations

from typing import Any

import pytest

from weighbridge.core.data import table
from weighbridge.model_config.model_defaults import default, family, optional
from weighbridge.model_config.model_keys import GGUF, HUGGING_FACE, Model, field_keys
from weighbridge.quantities.checkpoints import CONFIG_FIELDS

READ = table("model_config/model_defaults")
FORMS = {"of_model_type": HUGGING_FACE, "of_architecture": GGUF, "of_tokenizer": HUGGING_FACE}
ROWS = [(by, key, *one) for by in FORMS for key, row in READ[by].items() for one in row.items()]


def taken(name: str, form: str = HUGGING_FACE, architecture: str = "", tokenizer: str = "") -> Any:
    found = default(name, Model(form=form, architecture=architecture, fields={}, tokenizer=tokenizer))
    return None if found is None else (found.value, found.read)


@pytest.mark.parametrize(("by", "key", "name", "value"), ROWS)
def test_every_default_of_a_family_is_taken(by: str, key: str, name: str, value: Any) -> None:
    assert name in CONFIG_FIELDS
    side = {"tokenizer": key} if by == "of_tokenizer" else {"architecture": key}
    assert taken(name, FORMS[by], **side) == (value, f"nothing said; the default of {key}")


def test_every_plain_default_is_taken() -> None:
    plain = {name: keys.default for name, keys in field_keys().items() if keys.default is not None}
    assert len(plain) == 8
    assert {name: taken(name) for name in plain} == {
        name: (value, "nothing said; the default") for name, value in plain.items()
    }


def test_every_activation_that_a_loader_computes_is_known_and_named_once() -> None:
    named = [name for names in READ["computed"].values() for name in names]
    assert len(named) == len(set(named)) > 80
    for kind, names in READ["computed"].items():
        assert {taken("activation", GGUF, one)[0] for one in names} == {kind}
    assert {family(name) for name in READ["same_family"]} == {"silu", "gelu"}
    assert READ.keys() == {*FORMS, "of_file", "computed", "converted", "same_family"}


def test_a_field_that_a_loader_may_know_is_a_field() -> None:
    found = [name for name in CONFIG_FIELDS if optional(name)]
    assert len(found) == sum(keys.optional for keys in field_keys().values()) == 36
    assert not optional("tokens")
