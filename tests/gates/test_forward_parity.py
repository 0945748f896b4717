"""forward-parity judges: every clause at the edge of its limit, the first point in order, nothing silent."""

from __future__ import annotations

import math
from typing import Any

import pytest

from weighbridge.gates.forward_parity import KIND, Limits, allowed, detectable, judge
from weighbridge.judging import falsify
from weighbridge.limits import LimitsError, read
from weighbridge.model import Fields, Measurement, Outcome, Rows, TrialResult, Verdict

U = 2.0**-24
ROW: Fields = {
    "order": 0,
    "sequences": 4,
    "tokens": 24,
    "distinct_tokens": 20,
    "inputs_digest": "ab",
    "dtype": "float32",
    "u": U,
    "audited_ops": 533,
    "lower_ops": 0,
    "first_lower_op": "",
    "rounded_constants": 0,
    "first_rounded_constant": "",
    "weights": {},
    "reference_shape": [4, 24, 64],
    "candidate_shape": [4, 24, 64],
    "device": "cpu",
    "held_as": "float32",
    "elements": 6144,
    "truth_norm": 80.0,
    "candidate_error": 1e-5,
    "rl2_candidate": 1.5e-7,
    "rl2_reference": 1e-7,
    "nonfinite_candidate": 0,
    "nonfinite_reference": 0,
}
LIMIT = 3 * 1e-7


def table(*changes: Fields) -> dict[str, Measurement]:
    """Three points in order, each with its own changes laid over a sound row."""
    given = (*changes, {}, {}, {})[: max(3, len(changes))]
    rows = tuple({**ROW, "point": f"L{n}.ffn.down", "order": n, **change} for n, change in enumerate(given))
    value = Rows("point", rows)
    return {
        "points": Measurement(quantity="forward_errors", value=value, by="test", examined=len(rows), total=len(rows))
    }


def judged(*changes: Fields, **limits: Any) -> Verdict:
    return judge(table(*changes), Limits(**limits))


def codes(verdict: Verdict) -> list[tuple[str, str]]:
    return [(offence.place, offence.code) for offence in verdict.offences]


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_the_limit_is_inclusive_and_the_next_number_is_over() -> None:
    assert judged({"rl2_candidate": LIMIT}).outcome is Outcome.PASS
    verdict = judged({"rl2_candidate": math.nextafter(LIMIT, 1)})
    assert (verdict.outcome, verdict.code, codes(verdict)) == (Outcome.FAIL, "diverged", [("L0.ffn.down", "diverged")])


def test_below_the_floor_the_trusted_run_does_not_matter() -> None:
    floor = 1.25 * U
    assert judged({"rl2_reference": 0.0, "rl2_candidate": floor}).outcome is Outcome.PASS
    assert judged({"rl2_reference": 0.0, "rl2_candidate": math.nextafter(floor, 1)}).code == "diverged"


def test_the_first_point_in_order_is_named_whatever_the_order_of_the_rows() -> None:
    verdict = judged({"order": 2, "rl2_candidate": 0.5}, {"order": 1, "rl2_candidate": 0.4}, {"order": 0})
    assert verdict.figures["first"] == "L1.ffn.down"
    assert (verdict.measured, verdict.limit, verdict.enough) == (0.4, LIMIT, LIMIT)
    assert (verdict.figures["over"], verdict.figures["points"], verdict.counted, verdict.of) == (2, 3, 1, 3)


def test_a_pass_tells_the_worst_point_its_share_and_what_could_be_seen() -> None:
    verdict = judged({}, {"rl2_candidate": 2.4e-7}, {"rl2_reference": 4e-7})
    assert verdict.outcome is Outcome.PASS
    assert (verdict.figures["worst"], verdict.measured, verdict.limit) == ("L1.ffn.down", 2.4e-7, LIMIT)
    assert verdict.figures["budget_used"] == pytest.approx(0.8)
    assert verdict.figures["coarsest"] == "L2.ffn.down"
    assert verdict.figures["detectable"] == pytest.approx(math.sqrt(8) * 4e-7)


def test_the_detectable_effect_adds_to_rounding_as_squares_do() -> None:
    row = {**ROW, "point": "logits"}
    seen = detectable(row, Limits())
    assert math.hypot(seen, 1e-7) == pytest.approx(allowed(row, Limits()))


@pytest.mark.parametrize("value", [math.nan, math.inf, None, -1e-9, "0.1"])
def test_an_error_that_is_no_number_never_passes(value: Any) -> None:
    assert codes(judged({}, {}, {"rl2_candidate": value})) == [("L2.ffn.down", "nonfinite")]


def test_one_value_not_finite_where_the_truth_is_fails() -> None:
    assert codes(judged({}, {"nonfinite_candidate": 1})) == [("L1.ffn.down", "nonfinite")]


def test_a_truth_of_zeros_wants_exact_zeros() -> None:
    silent = {"truth_norm": 0.0, "rl2_candidate": None, "rl2_reference": None, "candidate_error": 0.0}
    assert judged(silent).outcome is Outcome.PASS
    assert codes(judged({**silent, "candidate_error": 5e-324})) == [("L0.ffn.down", "zero-truth")]
    assert codes(judged({**silent, "candidate_error": math.nan})) == [("L0.ffn.down", "zero-truth")]


# --- Places -----------------------------------------------------------------------------------------------------------


def test_a_point_on_one_side_alone_fails_in_both_directions() -> None:
    verdict = judged({"candidate_shape": None}, {"reference_shape": None})
    assert codes(verdict) == [("L0.ffn.down", "missing-candidate"), ("L1.ffn.down", "missing-reference")]


def test_another_shape_fails() -> None:
    assert codes(judged({"candidate_shape": [4, 24, 63]})) == [("L0.ffn.down", "shape")]


def test_a_required_point_in_neither_fails() -> None:
    verdict = judged(required=("logits", "L0.ffn.down"))
    assert codes(verdict) == [("logits", "missing-required")]
    assert (verdict.counted, verdict.of) == (3, 4)


# --- Nothing to stand on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "limits", "code"),
    [
        ({"tokens": 1}, {}, "one-token"),
        ({"tokens": 31}, {"min_tokens": 32}, "one-token"),
        ({"sequences": 1}, {}, "one-token"),
        ({"sequences": 7}, {"min_sequences": 8}, "one-token"),
        ({"distinct_tokens": 1}, {}, "one-token"),
        ({"lower_ops": 1}, {}, "reference-not-float64"),
        ({"audited_ops": 0}, {}, "reference-not-float64"),
        ({"rounded_constants": 1}, {}, "reference-not-float64"),
        ({"dtype": "bfloat16"}, {"dtype": "float32"}, "other-dtype"),
        ({"device": "cuda"}, {"device": "cpu"}, "other-device"),
        ({"rl2_reference": None}, {}, "no-trusted-run"),
        ({"rl2_reference": math.nan}, {}, "no-trusted-run"),
        ({"rl2_reference": math.inf}, {}, "no-trusted-run"),
        ({"nonfinite_reference": 1}, {}, "reference-nonfinite"),
        ({"elements": 0}, {}, "too-few-elements"),
        ({"elements": 6143}, {"min_elements": 6144}, "too-few-elements"),
        ({"rl2_reference": 0.2}, {}, "too-coarse"),
    ],
)
def test_what_cannot_show_anything_is_blocked_at_the_last_point_too(change: Fields, limits: Any, code: str) -> None:
    tried: tuple[tuple[Fields, ...], ...] = ((change,), ({}, {}, change))
    for places in tried:
        verdict = judged(*places, **limits)
        assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, code)


def test_a_limit_exactly_at_the_coarsest_is_still_judged() -> None:
    assert judged({"rl2_reference": 0.25}, ratio=2.0).outcome is Outcome.PASS
    assert judged({"rl2_reference": math.nextafter(0.25, 1)}, ratio=2.0).code == "too-coarse"


def test_a_contaminated_truth_blocks_what_would_have_failed() -> None:
    assert judged({"lower_ops": 3, "rl2_candidate": 0.5}).code == "reference-not-float64"


def test_a_failure_elsewhere_is_not_hidden_by_a_missing_trusted_run() -> None:
    assert codes(judged({"rl2_reference": None}, {"rl2_candidate": 0.5})) == [("L1.ffn.down", "diverged")]


def test_no_points_are_not_a_pass() -> None:
    empty = {"points": Measurement(quantity="x", value=Rows("point", ()), by="t", examined=0, total=0)}
    assert (judge(empty, Limits()).outcome, judge(empty, Limits()).code) == (Outcome.BLOCKED, "nothing-compared")


def test_points_of_zeros_alone_compare_nothing() -> None:
    silent = {"truth_norm": 0.0, "rl2_candidate": None, "rl2_reference": None, "candidate_error": 0.0}
    verdict = judged(silent, silent, silent)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "nothing-compared")
    assert judged(silent, silent).outcome is Outcome.PASS
    assert judged(silent, silent, min_points=2).figures == {"compared": 1, "points": 3, "min_points": 2}


# --- Trials and limits ------------------------------------------------------------------------------------------------


FULL: Any = {"required": ("L2.ffn.down",), "dtype": "float32", "device": "cpu", "min_points": 3}


@pytest.mark.parametrize("limits", [{}, FULL, {"required": ("L0.ffn.down", "L1.ffn.down", "L2.ffn.down")}])
@pytest.mark.parametrize("points", [1, 3])
def test_every_pass_is_shown_able_to_fail(limits: Any, points: int) -> None:
    evidence = table()
    if points == 1:
        rows = evidence["points"].value
        assert isinstance(rows, Rows)
        limits = {key: value for key, value in limits.items() if key not in ("required", "min_points")}
        value = Rows("point", rows.rows[:1])
        evidence = {"points": Measurement(quantity="x", value=value, by="t", examined=1, total=1)}
    held = Limits(**limits)
    verdict = judge(evidence, held)
    trials = list(falsify(KIND, evidence, held, verdict))
    assert verdict.outcome is Outcome.PASS
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    assert {trial.code for trial in trials if trial.result is TrialResult.CAUGHT} >= {"diverged", "one-token"}


def test_a_fully_stated_contract_leaves_no_falsifier_unused() -> None:
    trials = list(falsify(KIND, table(), Limits(**FULL), judge(table(), Limits(**FULL))))
    assert [trial.name for trial in trials if trial.result is not TrialResult.CAUGHT] == []


def test_every_code_has_a_falsifier() -> None:
    assert {falsifier.code for falsifier in KIND.falsifiers} == set(KIND.codes)
    assert {f.code: f.outcome for f in KIND.falsifiers} == dict(KIND.codes)


@pytest.mark.parametrize(
    "limits",
    [{"ratio": 1.0}, {"ratio": 10.5}, {"floor_u": 0.0}, {"min_tokens": 1}, {"min_sequences": 1}, {"dtype": "fp32"},
     {"max_limit": 0.6}, {"min_points": 0}, {"required": ["a b"]}, {"tolerance": 1e-3}],
)  # fmt: skip
def test_limits_that_would_promise_nothing_are_refused(limits: Any) -> None:
    with pytest.raises(LimitsError):
        read(Limits, limits)


def test_the_defaults_are_the_published_ones() -> None:
    assert (read(Limits, {}).ratio, read(Limits, {}).floor_u) == (3.0, 1.25)
