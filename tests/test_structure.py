from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from weighbridge.errors import BundleError
from weighbridge.structure import Omitted, build, json_value, plain


class Colour(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: int
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    colour: Colour
    parts: tuple[Inner, ...]
    named: Mapping[str, Inner]
    maybe: Inner | None
    secret: str = "kept"


VALUE = Outer(colour=Colour.RED, parts=(Inner(size=1),), named={"a/b": Inner(size=2, share=0.5)}, maybe=None)
PLAIN: Any = {
    "colour": "red",
    "parts": [{"size": 1, "share": 0.0}],
    "named": {"a/b": {"size": 2, "share": 0.5}},
    "maybe": None,
    "secret": "kept",
}
OMITTED: Omitted = {Outer: frozenset({"secret"})}


def test_a_value_is_written_field_by_field_and_built_back() -> None:
    assert plain(VALUE) == PLAIN
    assert build(Outer, PLAIN) == VALUE


def test_an_omitted_field_is_neither_written_nor_read() -> None:
    without = {key: item for key, item in PLAIN.items() if key != "secret"}
    assert plain(VALUE, OMITTED) == without
    assert build(Outer, without, OMITTED) == VALUE
    with pytest.raises(BundleError, match="the root: unknown key 'secret'"):
        build(Outer, PLAIN, OMITTED)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": {}}, "/parts: a mapping is not a list"),
        ({"parts": [{"size": True, "share": 1.0}]}, "/parts/0/size: true is not a whole number"),
        ({"parts": [{"size": 1.0, "share": 1.0}]}, "/parts/0/size: 1.0 is not a whole number"),
        ({"parts": [{"size": 1}]}, "/parts/0: missing key 'share'"),
        ({"named": {"a/b": {"size": 1, "share": "x"}}}, "/named/a~1b/share: 'x' is not a number"),
        ({"named": []}, "/named: a list is not a mapping"),
        ({"maybe": 1}, "/maybe: 1 is not a mapping"),
        ({"colour": "blue"}, "/colour: 'blue' is not one of red"),
        ({"colour": None}, "/colour: null is not one of red"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_pointer(change: Any, message: str) -> None:
    with pytest.raises(BundleError) as caught:
        build(Outer, PLAIN | change)
    assert caught.value.what == message


def test_a_whole_number_stands_for_a_float_unchanged() -> None:
    built = build(Inner, {"size": 1, "share": 2})
    assert isinstance(built.share, int)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2}]}, "/a/1: a set is not plain JSON"),
        ({"a": {3: 1}}, "/a: the key 3 is not a text"),
        (b"x", "the root: a bytes is not plain JSON"),
        (1j, "the root: a complex is not plain JSON"),
    ],
)
def test_what_json_cannot_say_is_refused_by_its_pointer(value: Any, message: str) -> None:
    with pytest.raises(BundleError) as caught:
        json_value(value)
    assert caught.value.what == message
    assert json_value({"a": [1, None, True, "x", 0.5]})
