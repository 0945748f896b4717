"""byte-identity keeps its promise, beyond what its card shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gates.runs import table

from weighbridge.gates.byte_identity import KIND
from weighbridge.limits import read
from weighbridge.model import Outcome


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"differing_bytes": 1}, "bytes"),
        ({"differing_bytes": None}, "bytes"),
        ({"candidate_dtype": "I32"}, "dtype"),
        ({"candidate_shape": (3, 2)}, "shape"),
        ({"candidate_dtype": ""}, "missing"),
        ({"source_dtype": ""}, "extra"),
    ],
)
def test_any_one_difference_fails_with_its_code(change: dict[str, Any], code: str) -> None:
    verdict = KIND.judge(table([{"name": "a"}, {"name": "b", **change}]), read(KIND.limits, {}))
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, code, 1, 2)
    assert [offence.place for offence in verdict.offences] == ["b"]
