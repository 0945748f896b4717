"""tensor-statistics keeps its promise, bound by bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.rows import typed

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, Verdict
from weighbridge.gates.tensor_statistics import KIND


def moments(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "dtype": "BF16", "shape": [64, 64], "elements": 4096, "finite": 4096, "mean": 0.0, "std": 0.02,
        "min": -0.1, "max": 0.1, "absmax": 0.1, "rms": 0.02, "zero_share": 0.0, **more,
    }  # fmt: skip


def table(*rows: Mapping[str, Any]) -> dict[str, Measurement]:
    value = Rows("name", tuple(typed("tensor_moments", row) for row in rows))
    return {"moments": Measurement(quantity="tensor_moments", value=value, by="test", examined=1, total=1)}


def judged(bounds: Sequence[Mapping[str, Any]], *rows: Mapping[str, Any]) -> Verdict:
    return KIND.judge(table(*rows), read(KIND.limits, {"bounds": list(bounds)}))


def test_a_tensor_seventy_times_too_large_is_found() -> None:
    verdict = judged(
        [{"tensors": "*", "statistic": "std", "at_least": 0.01, "at_most": 0.05}], moments("a"), moments("b", std=1.4)
    )
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, "above", 1, 2)
    assert verdict.offences[0].figures["value"] == 1.4


def test_a_collapsed_tensor_is_found() -> None:
    verdict = judged([{"tensors": "*", "statistic": "std", "at_least": 0.01}], moments("a", std=0.0))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "below")


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_statistic_that_is_no_number_blocks(value: float | None) -> None:
    bound = {"tensors": "*", "statistic": "std", "at_least": 0.01}
    verdict = judged([bound], moments("a"), moments("b", std=value))
    assert (verdict.outcome, verdict.code, verdict.figures["first"]) == (Outcome.BLOCKED, "not-measured", "b")


def test_a_glob_that_names_nothing_is_a_typo_and_never_a_pass() -> None:
    verdict = judged([{"tensors": "haed.*", "statistic": "std", "at_least": 0.0}], moments("head.w"))
    assert (verdict.code, verdict.figures) == ("names-nothing", {"globs": ["haed.*"], "names": 1})


def test_bounds_that_bound_nothing_or_cannot_be_met_are_named() -> None:
    loose = {"tensors": "*", "statistic": "std"}
    limits = read(KIND.limits, {"bounds": [loose, {**loose, "at_least": 2.0, "at_most": 1.0}]})
    assert KIND.check(limits, None) == [
        "bounds[0] has neither at_least nor at_most",
        "bounds[1]: at_least 2.0 is more than at_most 1.0",
    ]
