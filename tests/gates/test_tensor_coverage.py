"""tensor-coverage keeps its promise, name by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from weighbridge.gates.tensor_coverage import KIND, spelled
from weighbridge.limits import read
from weighbridge.model import Measurement, Outcome, Rows, Verdict


def tensor(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "BF16", "shape": [2, 2], "elements": 4, "all_zero": False, "repeats": None, **more}


def table(*rows: Mapping[str, Any]) -> dict[str, Measurement]:
    value = Rows("name", tuple(map(dict, rows)))
    return {"tensors": Measurement(quantity="tensor_health", value=value, by="test", examined=1, total=1)}


def judged(*rows: Mapping[str, Any], **limits: Any) -> Verdict:
    return KIND.judge(table(*rows), read(KIND.limits, limits))


TIED = {"expected": ["embed", "head", "norm"], "tied": {"head": "embed"}}


def test_ranges_are_written_out_both_ends_included() -> None:
    assert list(spelled(["a", "l.{9..11}.w", "{0..1}.{2..3}"])) == [
        "a", "l.9.w", "l.10.w", "l.11.w", "0.2", "0.3", "1.2", "1.3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "place", "code"),
    [
        ([tensor("embed"), tensor("head", repeats="embed")], "norm", "missing"),
        ([tensor("norm"), tensor("head")], "embed", "missing"),
        ([tensor("norm")], "head", "missing"),
        ([tensor("embed"), tensor("head"), tensor("norm")], "head", "untied"),
        ([tensor("embed"), tensor("norm", all_zero=True)], "norm", "empty"),
        ([tensor("embed"), tensor("norm", elements=0)], "norm", "empty"),
        ([tensor("embed"), tensor("norm"), tensor("x")], "x", "extra"),
    ],
)
def test_what_is_not_as_expected_fails_with_its_code(rows: list[dict[str, Any]], place: str, code: str) -> None:
    verdict = judged(*rows, **TIED)
    assert verdict.outcome is Outcome.FAIL
    assert {offence.place: offence.code for offence in verdict.offences}[place] == code


def test_nothing_there_is_no_pass_and_no_list_of_what_is_missing() -> None:
    assert judged(**TIED).code == "nothing-there"


def test_limits_that_cannot_be_held_are_told() -> None:
    def told(**given: Any) -> list[str]:
        return list(KIND.check(read(KIND.limits, given), None))

    assert told(expected=["a"], tied={"b": "a"}) == ["tied: 'b' is not expected"]
    assert told(expected=["x.{3..1}"]) == ["expected: 'x.{3..1}' stands for no name"]
    assert told(expected=["{0..999}.{0..999}.{0..9}"]) == ["expected stands for more than 1000000 names"]
