"""Trials of a long column: a part of it is enough, and what is lacking is not asked for more."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

from tests.gates.runs import column

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, Series, TrialResult
from weighbridge.gates import KINDS
from weighbridge.gates.families.run_columns import COLUMNS, CUT, SAMPLES
from weighbridge.judging.judging import falsify

LONG = 100 * CUT
KIND, SERIES_BOUND = KINDS["wall-time-budget"], KINDS["series-bound"]


def evidence(values: array[float], steps: array[int] | None = None) -> dict[str, Measurement]:
    series = Series(array("q", range(len(values))) if steps is None else steps, values)
    more: dict[str, Any] = {"by": "test", "at": "wall_ms", "examined": 1, "total": 1}
    return {
        SAMPLES: Measurement(quantity="step_series", value=series, **more),
        COLUMNS: Measurement(quantity="step_columns", value=Rows("column", (column("wall_ms"),)), **more),
    }


def test_a_window_of_a_long_column_is_cut_to_one_that_passes_and_every_trial_of_it_is_caught() -> None:
    whole = evidence(array("d", (100.0 + step % 7 for step in range(LONG))))
    limits = read(KIND.limits, {"steps": [20, LONG - 1], "below_ms": 110})
    part, within = KIND.cut(whole, limits)
    assert len(part[SAMPLES].value.step) < 2 * CUT  # type: ignore[union-attr]
    assert within.steps == (20, 20 + CUT - 1)
    assert KIND.judge(part, within).outcome is Outcome.PASS
    trials = list(falsify(KIND, whole, limits, KIND.judge(whole, limits)))
    assert {trial.result for trial in trials} == {TrialResult.CAUGHT, TrialResult.UNTRIED}


def test_a_window_is_cut_around_its_own_steps() -> None:
    limits = read(KIND.limits, {"steps": [LONG - 50, LONG - 9], "below_ms": 1})
    part, within = KIND.cut(evidence(array("d", [1.0]) * LONG), limits)
    assert within.steps == (LONG - 50, LONG - 9)
    assert {LONG - 50, LONG - 9} <= set(part[SAMPLES].value.step)  # type: ignore[union-attr]


def test_what_is_lacking_is_said_before_what_needs_it() -> None:
    nothing = evidence(array("d"))
    limits = read(KIND.limits, {"steps": [0, 9], "below_ms": 1})
    assert KIND.judge(nothing, limits).code == "too-few-samples"


def test_a_long_baseline_is_cut_beside_the_column_that_is_compared_with_it() -> None:
    whole = evidence(array("d", (100.0 + step % 7 for step in range(LONG))))
    slower = Series(whole[SAMPLES].value.step, array("d", (101.0 + step % 7 for step in range(LONG))))  # type: ignore[union-attr]
    whole["baseline"] = replace(whole[SAMPLES], value=slower)
    limits = read(SERIES_BOUND.limits, {"at_most": 1.02, "relative_to": "baseline", "violations": CUT})
    part, within = SERIES_BOUND.cut(whole, limits)
    assert len(part["baseline"].value.step) == len(part[SAMPLES].value.step) < 4 * CUT  # type: ignore[union-attr]
    assert SERIES_BOUND.judge(part, within).outcome is Outcome.PASS
