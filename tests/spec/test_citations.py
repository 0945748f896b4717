from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.ledgers import sealed

from weighbridge.core.errors import BundleError
from weighbridge.spec.citations import Citation, agrees, citations, cite, computed, printed, resolve


@given(st.integers(-(10**12), 10**12) | st.floats() | st.booleans() | st.none() | st.text(alphabet="abc. -:"))
def test_whatever_is_printed_agrees_with_its_value(value: object) -> None:
    assert agrees(printed(value), value)


@each(
    "text, value, holds",
    [
        ("264.74", 264.7412, True),
        ("246.74", 264.7412, False),
        ("264.7", 264.7412, True),
        ("265", 264.7412, True),
        ("264", 264.7412, False),
        ("0.12", 0.125, True),
        ("0.13", 0.125, True),
        ("0.14", 0.125, False),
        ("48", 48, True),
        ("45", 48, False),
        ("1e-05", 1e-5, True),
        ("nan", float("nan"), True),
        ("0", float("nan"), False),
        ("true", True, True),
        ("1", True, False),
        ("PASS", "PASS", True),
        ("FAIL", "PASS", False),
        ("ten", 10, False),
    ],
)
def test_a_number_must_equal_the_evidence_to_the_printed_digits(text: str, value: object, holds: bool) -> None:
    assert agrees(text, value) is holds


def test_a_citation_is_found_and_resolved(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    kept, python = cite(bundle, "/findings/0/counted", 2), cite(bundle, "/python", "3", "environment.json")
    first, second, third = citations(f"It kept {kept} tensors on {python}, and 2 tensors {kept[4:]}.")
    assert first == third == Citation(text="2", id=bundle.id[:12], file="verdicts.json", pointer="/findings/0/counted")
    assert (resolve(bundle, first), resolve(bundle, second)) == (2, "3.11.9")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("at `35` capture points", "35"),
        ("3.2e-07 relative L2", "3.2e-07"),
        ("9 gates came to PASS", "PASS"),
        ("53 of `52` tensors", "52"),
        ("2 of them are not here", ""),
    ],
)
def test_a_value_stands_before_two_words_of_what_it_counts(text: str, value: str) -> None:
    (found,) = citations(f"{text} [ev:{'a' * 12}#/findings/0/measured].")
    assert found.text == value


@given(st.text(max_size=9))
def test_any_key_of_json_can_be_pointed_at(key: str) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    bundle: Any = SimpleNamespace(id="a" * 64)
    (found,) = citations(cite(bundle, pointer, 1))
    assert found.pointer == pointer


@pytest.mark.parametrize("pointer", ["/findings/7", "/findings/0/none", "/findings/x", "/schema/0", "/findings/-1"])
def test_a_pointer_to_nothing_is_refused(tmp_path: Path, pointer: str) -> None:
    with pytest.raises(BundleError, match="bad-pointer has nothing at /"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file="verdicts.json", pointer=pointer))


@pytest.mark.parametrize("file", ["../secret.json", "/etc/passwd", "a/../../x"])
def test_a_citation_never_leaves_its_bundle(tmp_path: Path, file: str) -> None:
    with pytest.raises(BundleError, match="is no name for a file of a bundle"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file=file, pointer=""))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("264.74 ms [=ln 2]", ("264.74", "ms")),
        ("`264.74` [=ln 2] ms", ("264.74", "ms")),
        ("5 of 12 files [=ln 2]", ("12", "files")),
        ('17.21 "nats" [=ln 2]', ("17.21", "nats")),
        ("49,152,000 tokens [=ln 2]", ("49,152,000", "")),
        ("GATE-X is PASS [=ln 2]", ("PASS", "")),
        ("fast [=ln 2]", ("", "")),
        ("3\n[=ln 2]", ("", "")),
    ],
)
def test_the_value_before_a_citation_is_read_with_its_unit(text: str, shown: tuple[str, str]) -> None:
    (one,) = citations(text)
    assert (one.text, one.unit) == shown


@pytest.mark.parametrize(
    ("formula", "value", "unit"),
    [("ln 151936", "11.9312", "nats"), ("log2(151,936)", "17.2131", "bits"), ("log10 1000", "3", "")],
)
def test_a_logarithm_has_a_value_and_the_unit_of_its_base(formula: str, value: str, unit: str) -> None:
    exact, named = computed(formula) or (0, "none")
    assert (agrees(value, exact), named) == (True, unit)


@pytest.mark.parametrize("formula", ["ln 0", "ln -1", "exp 3", "ln x", "", "ln 1; rm"])
def test_what_is_no_logarithm_of_a_number_is_not_computed(formula: str) -> None:
    assert computed(formula) is None


@pytest.mark.parametrize(
    ("before", "text", "unit"),
    [
        ("16 BYTES_EQUAL", "16 BYTES_EQUAL", ""),
        ("It is BYTES_EQUAL", "BYTES_EQUAL", ""),
        ("It has 0.23 MB", "0.23", "MB"),
        ("GATE-X-001 came to PASS", "PASS", ""),
    ],
)
def test_a_count_of_a_class_is_cited_whole_and_a_unit_is_no_value(before: str, text: str, unit: str) -> None:
    (one,) = citations(f"{before} [ev:{'a' * 12}#/findings/0/figures/classes/0]")
    assert (one.text, one.unit) == (text, unit)
