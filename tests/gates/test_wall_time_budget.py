"""wall-time-budget: statistics by their definitions, and limits by their strictness."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.core.limits import read
from weighbridge.figures.whole import STATISTICS
from weighbridge.gates import KINDS

NUMBERS = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=40)

KIND = KINDS["wall-time-budget"]


@given(NUMBERS)
def test_a_median_is_the_mean_of_the_two_middle_values(values: list[float]) -> None:
    assert STATISTICS["median"](values) == pytest.approx(statistics.median(values))


def test_a_window_shorter_than_its_samples_is_a_lint_problem() -> None:
    limits = read(KIND.limits, {"steps": [20, 29], "below_ms": 500, "min_samples": 30})
    assert KIND.check(limits, KIND.measure()) == ["min_samples: 30 samples cannot come from a window of 10 steps"]


def test_a_window_that_ends_before_it_begins_and_two_budgets_are_lint_problems() -> None:
    limits = read(KIND.limits, {"steps": [20, 49]})
    assert KIND.check(limits, KIND.measure()) == ["one bound a gate: below_ms or at_most_ms"]
    limits = read(KIND.limits, {"steps": [49, 20], "below_ms": 500, "at_most_ms": 500})
    assert KIND.check(limits, KIND.measure()) == [
        "one bound a gate: below_ms or at_most_ms, not both; write two gates",
        "steps: the window ends at 20, before it begins at 49",
    ]
