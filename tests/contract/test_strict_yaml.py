from __future__ import annotations

import json
import math
import resource
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.contract.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES, load, read
from weighbridge.core.errors import ContractError


def refusal(text: str | bytes) -> str:
    with pytest.raises(ContractError) as caught:
        load(text, "c.yaml")
    return str(caught.value)


@each(
    "text, value",
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("1.10", 1.1),
        ("1.0.0", "1.0.0"),
        ("0", 0),
        ("+7", 7),
        ("-0", 0),
        ("0x1F", 31),
        ("0o17", 15),
        ("0x", "0x"),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2026-01-02", "2026-01-02"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("nan", "nan"),
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("Null", None),
        ("", None),
        ("''", ""),
        ('"017"', "017"),
        ("'<<'", "<<"),
        ("'null'", "null"),
        ("${params.x}", "${params.x}"),
        ("|\n  two\n  lines", "two\nlines"),
        (">-\n  one\n  line", "one line"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
    ],
)
def test_scalars_are_those_of_yaml_1_2_core(text: str, value: object) -> None:
    read_value = load(f"a: {text}", "c.yaml").data["a"]
    assert read_value == value
    assert type(read_value) is type(value)


def test_nan_is_read_for_the_limits_to_refuse() -> None:
    assert math.isnan(load("a: .NaN", "c.yaml").data["a"])


def test_on_is_a_key_like_any_other() -> None:
    assert load("on: 1\nno: 2", "c.yaml").data == {"on": 1, "no": 2}


def test_crlf_lines_count_as_lines() -> None:
    assert load("a: 1\r\nb: 2\r\n", "c.yaml").at(("b",)) == "c.yaml:2:4"


@each(
    "text, message",
    [
        ("", "c.yaml:1:1: yaml-empty nothing in it\n  write the document"),
        ("# only a comment\n", "c.yaml:1:1: yaml-empty nothing in it\n  write the document"),
        ("---\n", "c.yaml:1:1: yaml-empty nothing in it\n  write the document"),
        (
            "limits:\n  below: 500\n  below: 5000\n",
            "c.yaml:3:3: yaml-doubled-key the key 'below' is given twice, first in line 2\n  keep one of the two",
        ),
        ("a: !!int 3", "c.yaml:1:4: yaml-tag the tag tag:yaml.org,2002:int is not allowed\n  delete the tag"),
        (
            "a: !!python/object/apply:os.system [x]",
            "c.yaml:1:4: yaml-tag the tag tag:yaml.org,2002:python/object/apply:o… is not allowed\n  delete the tag",
        ),
        ("a: ! 1", "c.yaml:1:4: yaml-tag the tag ! is not allowed\n  delete the tag"),
        ("<<: {a: 1}", "c.yaml:1:1: yaml-merge-key the merge key << is not allowed\n  write the keys out"),
        ("a: &x 1", "c.yaml:1:4: yaml-alias the anchor &x is not allowed\n  delete the anchor"),
        ("a: *x", "c.yaml:1:4: yaml-alias the alias *x is not allowed\n  write the value out"),
        ("*x : 1", "c.yaml:1:1: yaml-alias the alias *x is not allowed\n  write the key out"),
        ("a: 1\n---\nb: 2", "c.yaml:2:1: yaml-documents a second document\n  keep one document in a file"),
        (
            "%YAML 1.1\n---\na: 1",
            "c.yaml:1:1: yaml-directive directives are not allowed\n  delete the line that starts with %",
        ),
        ("1: a", 'c.yaml:1:1: yaml-key the key 1 is not a text\n  write "1"'),
        ("true: a", 'c.yaml:1:1: yaml-key the key true is not a text\n  write "true"'),
        ("? [a]\n: b", "c.yaml:1:3: yaml-key a mapping or list as a key\n  use a text as the key"),
        (
            "a: 017",
            (
                "c.yaml:1:4: yaml-leading-zero the number 017 has a leading zero\n"
                "  delete the zero, or quote it if a text is meant"
            ),
        ),
        (
            "a: 1e999",
            "c.yaml:1:4: yaml-number 1e999 overflows a 64-bit float\n  quote it if a text is meant",
        ),
        (
            "a: " + "9" * 5000,
            "c.yaml:1:4: yaml-number a whole number of 5000 characters\n  write at most 64",
        ),
        (
            "a:\n\tb: 1",
            (
                "c.yaml:2:1: yaml-character a tab is not allowed\n"
                "  indent and align with spaces; in a quoted text write \\t"
            ),
        ),
        (
            "a: x\0y",
            "c.yaml:1:5: yaml-character a NUL byte is not allowed\n  this is not a text file, or a damaged one",
        ),
        (
            b"\xef\xbb\xbfa: 1",
            (
                "c.yaml:1:1: yaml-character a byte order mark is not allowed\n"
                "  save the file as UTF-8 without a byte order mark"
            ),
        ),
        (
            "a: 1\rb: 2",
            (
                "c.yaml:1:5: yaml-character a carriage return without a line feed is not allowed\n"
                "  end lines with LF or CRLF"
            ),
        ),
        (
            "a: x\x1b[31m",
            (
                "c.yaml:1:5: yaml-character the character U+001B is not allowed\n"
                "  delete it; in a quoted text write it as an escape"
            ),
        ),
        (
            'a: "\\ud800"',
            "c.yaml:1:4: yaml-character half a surrogate pair is not allowed\n  write \\U and the code point",
        ),
        (
            'a: "\\UFFFFFFFF"',
            "c.yaml:1:7: yaml-character an escape beyond U+10FFFF\n  write a code point that exists",
        ),
        (
            b"a: 1\nb: \xff\xfe",
            "c.yaml:2:4: yaml-encoding byte 0xff at offset 8 is not UTF-8\n  save the file as UTF-8 text",
        ),
        (
            "a: b: c",
            (
                "c.yaml:1:5: yaml-syntax mapping values are not allowed here\n"
                '  quote a text that contains ": ", and indent keys of one mapping alike'
            ),
        ),
        (
            "a: [1, 2",
            (
                "c.yaml:1:9: yaml-syntax while parsing a flow sequence, expected ',' or ']', but got '<stream end>'\n"
                "  check brackets, braces and commas up to here"
            ),
        ),
        (
            "a: 1\nbc\nd: 2",
            "c.yaml:2:1: yaml-syntax while scanning a simple key, could not find expected ':'\n"
            '  every key needs ": " and a value on its line',
        ),
        (
            "a: 'x",
            "c.yaml:1:6: yaml-syntax while scanning a quoted scalar, found unexpected end of stream\n"
            "  check indentation and quotes up to here",
        ),
        (
            "a: @x",
            (
                "c.yaml:1:4: yaml-syntax while scanning for the next token, found character '@' that cannot start any "
                "token\n  quote a text that starts with @, ` or %"
            ),
        ),
    ],
)
def test_what_is_refused_says_where_and_what_to_do(text: str | bytes, message: str) -> None:
    assert refusal(text) == message


def test_all_problems_are_reported_together_and_the_first_of_a_doubled_key_stands() -> None:
    document, problems = read("a: 1\na: 2\nb: 017\nc: !x y\n", "c.yaml")
    assert [(problem.code, problem.where) for problem in problems] == [
        ("yaml-doubled-key", "c.yaml:2:1"),
        ("yaml-leading-zero", "c.yaml:3:4"),
        ("yaml-tag", "c.yaml:4:4"),
    ]
    assert document is not None
    assert document.data["a"] == 1
    assert document.at(("a",)) == "c.yaml:1:4"


def test_the_value_of_a_doubled_key_leaves_no_trace() -> None:
    document, _ = read("a: {x: 1}\na: {y: 2}\nb: 3\n", "c.yaml")
    assert document is not None
    assert document.data == {"a": {"x": 1}, "b": 3}
    assert document.at(("a", "y")) == "c.yaml:1:4"


def test_problems_are_capped() -> None:
    _, problems = read("".join(f"k{n}: !t x\n" for n in range(1000)), "c.yaml")
    assert len(problems) == 20


def test_positions_are_those_of_keys_and_values() -> None:
    document = load("gates:\n  - id: A\n    with: {below_ms: 500, steps: [20, 49]}\n", "dir/c.yaml")
    assert document.at(("gates", 0, "with", "below_ms")) == "dir/c.yaml:3:22"
    assert document.at(("gates", 0, "with", "below_ms"), at_key=True) == "dir/c.yaml:3:12"
    assert document.at(("gates", 0, "with", "steps", 1)) == "dir/c.yaml:3:39"
    assert document.at(("gates", 0, "id"), at_key=True) == "dir/c.yaml:2:5"
    assert document.at(()) == "dir/c.yaml:1:1"


def test_the_position_of_what_is_absent_is_that_of_what_would_hold_it() -> None:
    document = load("gates:\n  - id: A\n", "c.yaml")
    assert document.at(("gates", 0, "kind"), at_key=True) == "c.yaml:2:5"
    assert document.at(("gates", 7)) == "c.yaml:2:3"


@pytest.mark.slow
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "[\n", "{a:\n"])
def test_a_hundred_thousand_levels_are_one_clear_error_found_early(opening: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = refusal(opening * 100_000)
    assert message.endswith(f": yaml-depth nested deeper than {MAX_DEPTH}\n  flatten it")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_depth_is_bounded_at_its_limit() -> None:
    assert load("[" * MAX_DEPTH + "]" * MAX_DEPTH, "c.yaml").data is not None
    assert "yaml-depth" in refusal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.slow
def test_size_is_bounded_before_anything_is_parsed() -> None:
    assert load("a: 1 #" + "x" * (MAX_BYTES - 6), "c.yaml").data == {"a": 1}
    assert (
        refusal(b"\xff" * (MAX_BYTES + 1)) == f"c.yaml: yaml-size {MAX_BYTES + 1} bytes, at most {MAX_BYTES} are read"
    )


@pytest.mark.slow
def test_the_number_of_values_is_bounded() -> None:
    message = refusal("a: [" + "1," * MAX_VALUES + "]")
    assert f"yaml-values more than {MAX_VALUES} values\n  split the file" in message


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    assert refusal(bomb).splitlines()[0] == "c.yaml:1:5: yaml-alias the anchor &a0 is not allowed"


# --- Properties -------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff"))
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(TEXT, PLAIN, min_size=1, max_size=4))
def test_what_json_writes_reads_back_the_same(value: Mapping[str, Any]) -> None:
    assert load(json.dumps(value, ensure_ascii=False), "c.yaml").data == value


@given(st.text(max_size=200) | st.binary(max_size=200) | st.text("[]{}:,-?&*!|>'\"%@#~<.0aex \n", max_size=60))
def test_any_text_is_read_or_refused_with_a_position(text: str | bytes) -> None:
    try:
        load(text, "c.yaml")
    except ContractError as problem:
        for part in problem.problems:
            assert part.code.startswith("yaml-")
            name, line, column = part.where.split(":")
            assert (name, int(line) > 0, int(column) > 0) == ("c.yaml", True, True)
