from __future__ import annotations

import array
import contextlib
import enum
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.core.canonical import build, dumps, json_value, loads, npy, read_npy, sha256
from weighbridge.core.errors import BundleError, WeighbridgeError
from weighbridge.core.limits import Omitted, plain
from weighbridge.core.model import Json


def refusal(data: bytes | str) -> str:
    with pytest.raises(WeighbridgeError) as caught:
        loads(data, where="m.json")
    return str(caught.value)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_a_value_has_one_form() -> None:
    assert dumps({"b": [1, 2.50, True, None], "a": "é\n"}) == b'{"a":"\\u00e9\\n","b":[1,2.5,true,null]}\n'


def test_what_json_cannot_say_is_spelled_out() -> None:
    written = dumps([math.nan, math.inf, -math.inf])
    assert written == b'[{"$num":"nan"},{"$num":"inf"},{"$num":"-inf"}]\n'
    read = loads(written)
    assert math.isnan(read[0])
    assert read[1:] == [math.inf, -math.inf]


def test_a_tuple_is_written_as_a_list() -> None:
    assert dumps({"a": (1, (2,))}) == b'{"a":[1,[2]]}\n'


def test_a_digest_is_known() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@each(
    "data, message",
    [
        ('{"verdict": "FAIL", "verdict": "PASS"}', "the key 'verdict' is given twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[Infinity]", "Infinity is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "1e999 overflows a double"),
        ("[-1e999]", "-1e999 overflows a double"),
        ("[" + "9" * 65 + "]", "an integer of 65 digits"),
        ("[" * 100_000, "nested too deep"),
        ('{"$num": "one"}', "$num must be one of nan, inf, -inf"),
        ('{"$num": ["nan"]}', "$num must be one of nan, inf, -inf"),
        ("[1] 2", "Extra data: line 1 column 5 (char 4)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
        (b"\xff\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_what_a_lenient_parser_lets_through_is_refused(data: bytes | str, message: str) -> None:
    assert refusal(data) == f"m.json: json not strict JSON: {message}"


def test_an_integer_of_64_digits_is_read() -> None:
    assert loads("9" * 64) == int("9" * 64)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text().filter(lambda key: key != "$num"), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(JSON)
def test_any_value_round_trips_to_the_same_bytes(value: Any) -> None:
    written = dumps(value)
    assert loads(written) == value
    assert dumps(loads(written)) == written


@given(st.floats())
def test_a_float_keeps_its_bits(value: float) -> None:
    read = loads(dumps([value]))[0]
    assert math.isnan(read) if math.isnan(value) else bits(read) == bits(value)


@given(st.dictionaries(st.text(), st.integers(), max_size=5).filter(lambda value: set(value) != {"$num"}))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert dumps(dict(reversed(list(value.items())))) == dumps(value)


@given(st.binary(max_size=60) | st.text('[]{}:,"0123456789.eE+-ntf$um ', max_size=40))
def test_any_text_is_read_or_refused_and_nothing_else(data: bytes | str) -> None:
    with contextlib.suppress(WeighbridgeError):
        loads(data, where="m.json")


# --- Arrays -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(), max_size=20))
def test_float_arrays_round_trip_bit_for_bit(values: list[float]) -> None:
    written = array.array("d", values)
    assert read_npy(npy(written)).tobytes() == written.tobytes()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integer_arrays_round_trip(values: list[int]) -> None:
    assert read_npy(npy(array.array("q", values))) == array.array("q", values)


def test_the_header_is_padded_to_64_bytes() -> None:
    assert (len(npy(array.array("d", [1.0]))) - 8) % 64 == 0


def test_numpy_reads_what_is_written_and_its_files_are_read() -> None:
    numpy = pytest.importorskip("numpy")
    import io

    written = npy(array.array("d", [1.5, math.nan, -0.0]))
    loaded = numpy.load(io.BytesIO(written), allow_pickle=False)
    assert loaded.dtype == numpy.dtype("<f8")
    assert loaded.tobytes() == array.array("d", [1.5, math.nan, -0.0]).tobytes()
    theirs = io.BytesIO()
    numpy.save(theirs, numpy.arange(5, dtype="<i8"))
    assert list(read_npy(theirs.getvalue())) == [0, 1, 2, 3, 4]


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an .npy file of version 1.0"),
        (b"\x93NUMPY\x02\x00" + bytes(10), "not an .npy file of version 1.0"),
        (header(GOOD), "0 bytes of data for 1 elements"),
        (header(GOOD) + bytes(16), "16 bytes of data for 1 elements"),
        (header(GOOD.replace("1,", "999999999999,")), "0 bytes of data for 999999999999 elements"),
        (header(GOOD.replace("(1,)", "(1, 1)")), "not a one-dimensional <f8 or <i8 array"),
        (header(GOOD.replace("<f8", "|O")), "not a one-dimensional <f8 or <i8 array"),
        (header(GOOD.replace("<f8", "<f4")), "not a one-dimensional <f8 or <i8 array"),
        (header(GOOD.replace("False", "True")), "not a one-dimensional <f8 or <i8 array"),
        (header(GOOD)[:30], "not a one-dimensional <f8 or <i8 array"),
    ],
)
def test_any_other_array_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WeighbridgeError) as caught:
        read_npy(data, where="a.npy")
    assert str(caught.value) == f"a.npy: npy {message}"


def test_our_json_is_what_every_json_reader_reads() -> None:
    value: dict[str, Json] = {"a": [1, 0.1, "x"], "b": {"c": None}}
    assert json.loads(dumps(value)) == value


# --- Values ---------------------------------------------------------------------------------------------------------


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
