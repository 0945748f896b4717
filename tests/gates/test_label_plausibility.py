"""label-plausibility keeps its promise, where its card cannot show it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rows import typed

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, TrialResult, Verdict
from weighbridge.gates.label_plausibility import KIND
from weighbridge.judging.judging import falsify


def words(name: str = "w", dtype: str = "BF16", label: float = 0.01, other: float = 3.0, **more: Any) -> dict[str, Any]:
    reading, rival = ("F16", "BF16") if dtype == "F16" else ("BF16", "F16")
    swapped = {"negative": 128, "symbols": 64, "excess": {reading: more.pop("swapped", 9.0), rival: 9.0}}
    stored = {"negative": 128, "symbols": 64, "excess": {reading: label, rival: other}, **more.pop("stored", {})}
    return {"name": name, "dtype": dtype, "as_stored": stored, "byte_swapped": swapped, **more}


def evidence(*rows: dict[str, Any]) -> dict[str, Measurement]:
    value = Rows("name", tuple(typed("tensor_bits", row) for row in rows))
    return {"bits": Measurement(quantity="tensor_bits", value=value, by="test", examined=1, total=1)}


def judged(*rows: dict[str, Any], **limits: Any) -> Verdict:
    return KIND.judge(evidence(*rows), read(KIND.limits, limits))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (words(dtype="F16", label=1.3, other=0.01), "mislabelled"),
        (words(dtype="BF16", label=12.5, other=0.01), "mislabelled"),
        (words(dtype="F16", label=9.0, other=9.0, swapped=0.01), "byte-swapped"),
        (words(dtype="F32", label=9.0, other=4.0, swapped=0.01), "byte-swapped"),
        (words(dtype="F16", label=0.3, other=6.0, half_divergence=0.001), "pairs"),
    ],
)
def test_what_most_elements_say_comes_first_and_undecided_tensors_do_not_vote(row: dict[str, Any], code: str) -> None:
    implausible = words("x", label=9.0, other=9.0, elements=200)
    norm = words("norm", stored={"negative": 0}, elements=10**6)
    verdict = judged(norm, implausible, row, implausible_at_most_share=0.0)
    assert [(one.place, one.code) for one in verdict.offences] == [("w", code), ("x", "implausible")]
    assert (verdict.outcome, verdict.counted, verdict.of, verdict.figures["vote"]) == (Outcome.FAIL, 1, 3, code)


def test_a_named_tensor_that_was_undecided_is_tried_and_one_that_no_glob_names_is_not() -> None:
    found = evidence(words("w.1"), words("w.2", stored={"negative": 0}), words("x", label=9.0, other=0.0))
    limits = read(KIND.limits, {"tensors": ["w.*"]})
    trials = {trial.name: trial.result for trial in falsify(KIND, found, limits, KIND.judge(found, limits))}
    assert TrialResult.SURVIVED not in trials.values()
    assert trials["wrong_at_most_share: the other order of bytes fits"] is TrialResult.CAUGHT


@pytest.mark.parametrize("limits", [{"fits_not_above_bits": 1.5}, {"fits_below_bits": 1.5, "fits_not_above_bits": 1.5}])
def test_limits_that_only_just_do_not_contradict_each_other_can_be_falsified(limits: dict[str, float]) -> None:
    asked, found = read(KIND.limits, limits), evidence(words(), words("x", "F16"), words("f", "F32"))
    trials = list(falsify(KIND, found, asked, KIND.judge(found, asked)))
    assert (KIND.check(asked, None), [one.name for one in trials if one.result is TrialResult.SURVIVED]) == ([], [])


def test_an_instrument_that_did_not_look_at_the_halves_passes_nothing() -> None:
    with pytest.raises(ValueError, match="halves"):
        judged(words(half_divergence=None))


def test_limits_that_contradict_each_other_are_named() -> None:
    limits = read(KIND.limits, {"fits_below_bits": 2.0})
    expected = ["fits_below_bits, fits_not_above_bits and implausible_above_bits must rise in this order"]
    assert KIND.check(limits, None) == expected
    assert KIND.check(read(KIND.limits, {}), None) == []
