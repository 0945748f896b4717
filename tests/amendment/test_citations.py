from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledgers import sealed

from weighbridge.amendment.citations import Citation, agrees, citations, cite, printed, resolve
from weighbridge.errors import BundleError


@given(st.integers(-(10**12), 10**12) | st.floats() | st.booleans() | st.none() | st.text(alphabet="abc. -:"))
def test_whatever_is_printed_agrees_with_its_value(value: object) -> None:
    assert agrees(printed(value), value)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
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
    first, second = citations(f"It kept {kept} tensors on {python}.")
    assert first == Citation(text="2", id=bundle.id[:12], file="verdicts.json", pointer="/findings/0/counted")
    assert (resolve(bundle, first), resolve(bundle, second)) == (2, "3.11.9")


@pytest.mark.parametrize("pointer", ["/findings/7", "/findings/0/none", "/findings/x", "/schema/0", "/findings/-1"])
def test_a_pointer_to_nothing_is_refused(tmp_path: Path, pointer: str) -> None:
    with pytest.raises(BundleError, match="bad-pointer has nothing at /"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file="verdicts.json", pointer=pointer))


@pytest.mark.parametrize("file", ["../secret.json", "/etc/passwd", "a/../../x"])
def test_a_citation_never_leaves_its_bundle(tmp_path: Path, file: str) -> None:
    with pytest.raises(BundleError, match="is no name for a file of a bundle"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file=file, pointer=""))
