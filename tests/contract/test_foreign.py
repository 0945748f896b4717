"""Command lines in a contract of another style: only those map that certainly choose these tests."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import each

from weighbridge.contract.foreign import drafted
from weighbridge.contract.strict_yaml import load


@each(
    "line, tests, subject",
    [
        ("cargo test", ["*"], "cargo-test"),
        ("cargo test falsify_", ["*falsify_*"], "cargo-test"),
        ("cargo test -p a-b --test cli -- one two", ["*one*", "*two*"], "cargo-test-p-a-b-test-cli"),
        ("pytest tests/test_a.py::test_b a.py::TestC::test_d", ["tests.test_a::test_b", "a.TestC::test_d"], "pytest"),
        ("cargo test -- --ignored", None, "--ignored"),
        ("cargo test --package", None, "--package"),
        ("pytest -k gpu", None, "only file.py::test is read"),
        ("pytest 'tests/test_a.py::test_b[cpu]'", None, "only file.py::test is read"),
        ("cargo test 'a b'", None, "a b"),
        ("cargo test && rm -r x", None, "needs a shell"),
        ("cargo test 'a", None, "not closed"),
        ("make test", None, "prose"),
    ],
)
def test_only_lines_that_certainly_choose_these_tests_map(line: str, tests: list[str] | None, subject: str) -> None:
    told: Any = {"gates": [{"id": "G-1", "test": line}]}
    draft = drafted(load(json.dumps(told), "other.yaml"), "other")
    found = [gate["with"]["tests"] for gate in draft.gates]
    assert found == ([] if tests is None else [tests])
    assert subject in (draft.lines[-1].what if tests is None else " ".join(draft.subjects))
