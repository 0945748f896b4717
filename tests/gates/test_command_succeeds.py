"""command-succeeds: what its card does not show."""

from __future__ import annotations

from typing import Any

import pytest

from weighbridge.core.limits import LimitsError, read
from weighbridge.gates.command_succeeds import KIND, Case, Limits, Measure, Said, check


@pytest.mark.parametrize(
    "case",
    [
        *({"exit": 256}, {"exit": -1}, {"exit": "zero"}, {"json": {"cuda": True}}, {"json": {"/a": {"is": 1}}}),
        *({"says": [{"text": "a"}]}, {"says": [{"text": "a", "times": 0}]}, {"args": "--json"}),
    ],
)
def test_cases_that_mean_nothing_are_lint_errors(case: dict[str, Any]) -> None:
    with pytest.raises(LimitsError):
        read(Limits, {"cases": [case]})
    with pytest.raises(LimitsError):
        read(Limits, {"cases": []})


def test_limits_that_no_command_could_meet_or_any_would_are_named() -> None:
    cases = (Case(args=("a", "b")), Case(args=("a", "b"), says=("*", Said(text="two\nlines", times=1))))
    assert check(Limits(within_s=600.0, cases=cases), Measure()) == [
        "cases: a b is there twice",
        "says, never_says: a text needs a letter, and stands in one line",
        "timeout_s: 600 s would stop the command before the 600 s are over",
    ]
    assert check(Limits(), Measure()) == []


def test_the_arguments_of_the_cases_are_what_is_measured_and_no_other_limit_is() -> None:
    limits: dict[str, Any] = {"within_s": 2, "cases": [{"args": ["a"], "exit": 3}, {"args": []}]}
    assert KIND.needs["runs"].of_limits(limits) == {"cases": [["a"], []]}
