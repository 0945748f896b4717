"""forward-parity: what its card does not show."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from weighbridge.core.canonical import build
from weighbridge.core.limits import LimitsError, fields, plain, read
from weighbridge.core.model import Measurement, Outcome, Rows, TrialResult, Verdict
from weighbridge.gates.families.local_errors import Limits, allowed, detectable
from weighbridge.gates.forward_parity import KIND, judge
from weighbridge.judging.judging import falsify
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.forward import ForwardError, LocalError

ROW = build(ForwardError, plain(QUANTITIES["forward_errors"].typical()))
LIMIT = 2.5 * 1e-7
NONE = LocalError(all=None, token=None, channel=None)
SILENT: dict[str, Any] = {"truth_norm": 0.0, "candidate": NONE, "trusted": NONE, "candidate_error": 0.0}
Changes = dict[str, Any]


def error(**figures: float | None) -> LocalError:
    return replace(ROW.candidate, **figures)


def run(**facts: Any) -> Any:
    return replace(ROW.run, **facts)


def table(*changes: Changes, points: int = 3) -> dict[str, Measurement]:
    """Return points in order, each a typical one but for its changes."""
    given = (*changes, *({} for _ in range(points - len(changes))))
    rows = tuple(replace(ROW, **{"point": f"L{n}.ffn.down", "order": n, **change}) for n, change in enumerate(given))
    value = Rows("point", rows)
    return {"points": Measurement(quantity="forward_errors", value=value, by="test", examined=1, total=1)}


def judged(*changes: Changes, **limits: Any) -> Verdict:
    return judge(table(*changes), Limits(**limits))


def codes(verdict: Verdict) -> list[tuple[str, str]]:
    return [(offence.place, offence.code) for offence in verdict.offences]


def test_the_first_point_in_order_is_named_whatever_the_order_of_the_rows() -> None:
    verdict = judged({"order": 2, "candidate": error(all=0.5)}, {"order": 1, "candidate": error(all=0.4)}, {"order": 0})
    assert (verdict.figures["first"], verdict.figures["last_in_order"]) == ("L1.ffn.down", "L2.ffn.down")
    assert (verdict.measured, verdict.limit, verdict.enough) == (0.4, LIMIT, LIMIT)
    assert (verdict.figures["over"], verdict.figures["points"], verdict.counted, verdict.of) == (2, 3, 1, 3)


def test_what_lies_after_the_first_point_and_is_wrong_end_to_end_only_is_reported_as_inherited() -> None:
    far = {"candidate_end_to_end": 0.1}
    verdict = judged(far, {"candidate": error(all=0.4), **far}, far)
    assert codes(verdict) == [("L1.ffn.down", "diverged")]
    assert verdict.figures["inherited"] == 1


def test_a_pass_tells_the_worst_point_its_share_and_what_could_be_seen() -> None:
    verdict = judged({}, {"candidate": error(all=2e-7)}, {"trusted": error(all=4e-7)})
    assert verdict.outcome is Outcome.PASS
    assert (verdict.figures["worst"], verdict.measured, verdict.limit) == ("L1.ffn.down", 2e-7, LIMIT)
    assert verdict.figures["budget_used"] == pytest.approx(0.8)
    assert verdict.figures["coarsest"] == "L2.ffn.down"
    assert verdict.figures["detectable"] == pytest.approx(math.sqrt(2.5**2 - 1) * 4e-7)


def test_the_detectable_effect_adds_to_rounding_as_squares_do() -> None:
    assert math.hypot(detectable(ROW, Limits()), 1e-7) == pytest.approx(allowed(ROW, Limits()).all)


def test_a_rough_run_widens_the_limit_and_one_that_is_no_number_does_not() -> None:
    wide = replace(ROW, rough=error(all=2e-7, token=1e-6, channel=2e-6))
    assert allowed(wide, Limits()) == error(all=1.5 * 2e-7, token=3e-6, channel=6e-6)
    for odd in (None, math.nan, math.inf, -1.0):
        assert allowed(replace(wide, rough=error(all=2e-7, token=1e-6, channel=odd)), Limits()) == allowed(
            ROW, Limits()
        )
    far = {"candidate": error(all=2.9e-7)}
    assert codes(judged(far)) == [("L0.ffn.down", "diverged")]
    assert judged({**far, "rough": wide.rough}).outcome is Outcome.PASS


def test_a_failure_tells_what_its_limit_was_made_of() -> None:
    figures = judged({"candidate": error(all=0.5), "rough": error(all=2e-7)}).offences[0].figures
    assert (figures["rough_ratio"], figures["rough_error"]) == (1.5, 2e-7)
    assert figures["limit"] == pytest.approx(3e-7)


def test_a_required_point_that_is_absent_counts_as_a_point_that_is_wrong() -> None:
    verdict = judged(required=("logits", "L0.ffn.down"))
    assert (codes(verdict), verdict.counted, verdict.of) == ([("logits", "missing-required")], 3, 4)


def test_the_device_that_is_reported_is_that_of_the_point() -> None:
    assert judged({}, {"run": run(device="cuda")}, device="cpu").figures["device"] == "cuda"


def test_a_contaminated_truth_blocks_what_would_have_failed() -> None:
    assert judged({"run": run(lower_ops=3), "candidate": error(all=0.5)}).code == "reference-not-float64"


def test_a_failure_elsewhere_is_not_hidden_by_a_missing_trusted_run() -> None:
    assert codes(judged({"trusted": NONE}, {"candidate": error(all=0.5)})) == [("L1.ffn.down", "diverged")]


def test_a_failure_elsewhere_is_not_hidden_by_a_capture_of_another_state() -> None:
    wrong = {"candidate": error(all=0.5)}
    made: Changes = {"made_from": ("L0.ffn.down",), "candidate_otherwise": error()}
    assert judged(wrong, {**wrong, **made}).code == "capture-mismatch"
    verdict = judged(wrong, {**wrong, **made}, wrong)
    assert codes(verdict) == [("L2.ffn.down", "diverged")]


def test_a_point_is_a_bug_unless_what_was_made_from_it_fits_what_should_have_been_there_much_better() -> None:
    wrong = {"candidate": error(all=0.5)}
    made: Changes = {"made_from": ("L0.ffn.down",)}
    both = [("L0.ffn.down", "diverged"), ("L1.ffn.down", "diverged")]
    assert codes(judged(wrong, {**wrong, **made})) == both
    assert codes(judged(wrong, {**wrong, **made, "candidate_otherwise": error(all=0.3)})) == both
    assert judged(wrong, {**wrong, **made, "candidate_otherwise": error(all=0.2)}).code == "capture-mismatch"


def test_one_of_several_that_were_made_from_a_point_is_enough_to_tell_a_capture_of_another_state() -> None:
    wrong = {"candidate": error(all=0.5)}
    made: Changes = {"made_from": ("L0.ffn.down",), "candidate_otherwise": error()}
    assert judged(wrong, made, {**wrong, **made}).code == "capture-mismatch"


def test_a_value_that_is_passed_on_without_rounding_tells_a_capture_of_another_state_too() -> None:
    exact = error(all=0.0, token=0.0, channel=0.0)
    made: Changes = {"made_from": ("L0.ffn.down",), "trusted": exact, "candidate_otherwise": exact}
    wrong = {"candidate": error(all=0.5)}
    assert judged(wrong, {**wrong, **made}).code == "capture-mismatch"


def test_nothing_is_another_basis_beside_a_point_that_is_missing() -> None:
    turned = {"candidate": error(all=1.4), "candidate_end_to_end": 1.4}
    made: Changes = {"made_from": ("L0.ffn.down",)}
    assert judged(turned, made).code == "other-basis"
    assert judged(turned, made, {"candidate_shape": None}).code == "diverged"


def test_values_that_spoil_each_other_in_a_circle_are_reported_all_the_same() -> None:
    nan: Changes = {"nonfinite_candidate": 1}
    verdict = judged({**nan, "made_from": ("L1.ffn.down",)}, {**nan, "made_from": ("L0.ffn.down",)})
    assert codes(verdict) == [("L0.ffn.down", "nonfinite")]


def test_no_points_and_points_of_zeros_alone_are_not_a_pass() -> None:
    nothing = judge(table(points=0), Limits())
    assert (nothing.outcome, nothing.code) == (Outcome.BLOCKED, "nothing-compared")
    assert judged(SILENT, SILENT, SILENT).code == "nothing-compared"
    assert judged(SILENT, SILENT).outcome is Outcome.PASS


FULL: Any = {
    "required": ("L2.ffn.down",),
    "dtype": "float32",
    "device": "cpu",
    "min_points": 3,
    "reach": ("window", "rope-limit", "expert", "cache", "padding"),
    "points": ("*L[01].*", "*L2.*"),
}
ALL_REQUIRED = {"required": ("L0.ffn.down", "L1.ffn.down", "L2.ffn.down")}


@pytest.mark.parametrize(("points", "limits"), [(1, {}), (3, {}), (3, FULL), (3, ALL_REQUIRED)])
def test_every_pass_is_shown_able_to_fail(points: int, limits: Any) -> None:
    evidence, asked = table(points=points), Limits(**limits)
    verdict = judge(evidence, asked)
    trials = list(falsify(KIND, evidence, asked, verdict))
    assert verdict.outcome is Outcome.PASS
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    if limits == FULL:  # a contract that leaves nothing open leaves no trial unused
        assert [trial.name for trial in trials if trial.result is not TrialResult.CAUGHT] == []
        # These two tell apart what has diverged; to them belong no trials but those of `diverged`.
        unbroken = {"capture-mismatch", "other-basis"}
        assert {trial.code for trial in trials if trial.code} == set(KIND.codes) - unbroken


@pytest.mark.parametrize(
    "limits",
    [
        *({"ratio": 1.0}, {"ratio": 10.5}, {"floor_u": 0.0}, {"min_tokens": 1}, {"min_sequences": 1}),
        *({"dtype": "fp32"}, {"max_limit": 0.6}, {"min_points": 0}, {"required": ["a b"]}, {"tolerance": 1e-3}),
        *({"tail_ratio": 1.0}, {"noise_ratio": 1.1}, {"points": []}),
    ],
)
def test_limits_that_would_promise_nothing_are_refused(limits: Any) -> None:
    with pytest.raises(LimitsError):
        read(Limits, limits)


def test_every_bound_that_tightens_is_tried_just_beyond_it() -> None:
    bounds = [item for item in fields(Limits) if item.doc.tight and not isinstance(item.default, tuple)]
    assert [item.name for item in bounds if not (item.doc.must and item.doc.moves)] == []
    assert len(bounds) == 11


def test_the_defaults_are_the_published_ones_and_can_be_written_down() -> None:
    given = read(Limits, {})
    assert read(Limits, plain(given)) == given
    assert (given.ratio, given.rough_ratio, given.floor_u) == (2.5, 1.5, 1.25)
    assert (given.tail_ratio, given.tail_floor_u) == (3.0, 8.0)
