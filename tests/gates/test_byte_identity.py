"""byte-identity keeps its promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.gates.mutation import table

from weighbridge.gates.byte_identity import KIND
from weighbridge.limits import read
from weighbridge.model import Outcome, Verdict


def row(name: str, dtype: str = "F32", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "source_dtype": dtype, "candidate_dtype": dtype, "source_shape": [2, 3],
        "candidate_shape": [2, 3], "elements": 6, "source_bytes": 24, "candidate_bytes": 24, "differing_bytes": 0,
        "first_difference": None, **more,
    }  # fmt: skip


def judged(rows: Sequence[Any], *tensors: str) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, {"tensors": list(tensors or ("*",))}))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"differing_bytes": 1}, "bytes"),
        ({"differing_bytes": None}, "bytes"),
        ({"candidate_dtype": "I32"}, "dtype"),
        ({"candidate_shape": [3, 2]}, "shape"),
        ({"candidate_dtype": ""}, "missing"),
        ({"source_dtype": ""}, "extra"),
    ],
)
def test_any_one_difference_fails_with_its_code(change: dict[str, Any], code: str) -> None:
    verdict = judged([row("a"), row("b") | change])
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, code, 1, 2)
    assert [offence.place for offence in verdict.offences] == ["b"]


def test_a_glob_that_names_nothing_is_a_typo_and_never_a_pass() -> None:
    verdict = judged([row("head.w")], "head.*", "haed.*")
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "names-nothing")
    assert verdict.figures == {"globs": ["haed.*"], "names": 1}


def test_blocks_where_nothing_was_compared() -> None:
    assert judged([]).code == "nothing-compared"
    assert judged([row("a", elements=0)]).code == "nothing-compared"
    assert judged([row("a")], "b").code == "nothing-compared"
