"""What is written as YAML is read back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from weighbridge.contract import strict_yaml
from weighbridge.contract.strict_yaml import block, flow

TEXTS = some.text(some.characters(min_codepoint=32, max_codepoint=126), max_size=12)
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-99, 99) | some.floats(-1e3, 1e3, allow_nan=False) | TEXTS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXTS.filter(bool), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(some.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=3))
def test_any_plain_data_is_read_back(data: dict[str, Any]) -> None:
    for remark in ("", "a remark: with [signs]"):
        text = "\n".join(block(data, lambda _path, said=remark: said))  # type: ignore[misc]
        assert strict_yaml.load(text.encode(), where="c.yaml").data == data


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("rounded:F16", "rounded:F16"), ("1.0.0", "1.0.0"), ("a: b", '"a: b"'), ("True", '"True"'), ("1e5", '"1e5"'),
        (["a", 1], "[a, 1]"), ({"a": None}, "{a: null}"),
    ],
)  # fmt: skip
def test_only_what_needs_quotes_has_them(value: object, written: str) -> None:
    assert flow(value) == written
