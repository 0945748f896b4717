"""byte-identity keeps its promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.gates.mutation import Passing, table

from weighbridge.gates.byte_identity import KIND
from weighbridge.judging import falsify
from weighbridge.limits import read
from weighbridge.model import Outcome, TrialResult, Verdict


def row(name: str, dtype: str = "F32", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "source_dtype": dtype, "candidate_dtype": dtype, "source_shape": [2, 3],
        "candidate_shape": [2, 3], "elements": 6, "source_bytes": 24, "candidate_bytes": 24, "differing_bytes": 0,
        "first_difference": None, **more,
    }  # fmt: skip


def judged(rows: Sequence[Any], *tensors: str) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, {"tensors": list(tensors or ("*",))}))


PASSING: dict[str, Passing] = {
    "all": ({}, table([row("A", elements=0), row("a"), row("b", "BF16"), row("c", "Q4_0"), row("e", elements=0)])),
    "some": (
        {"tensors": ["head.*", "norm.*"]},
        table([row("head.w"), row("head.b"), row("norm.w"), row("x", differing_bytes=3), row("y", candidate_dtype="")]),
    ),
    "one": ({"tensors": ["a"]}, table([row("a"), row("b", source_dtype="")])),
}


@pytest.mark.parametrize("name", PASSING)
def test_passes_and_every_trial_is_caught_or_does_not_apply(name: str) -> None:
    given, evidence = PASSING[name]
    limits = read(KIND.limits, given)
    verdict = KIND.judge(evidence, limits)
    assert verdict.outcome is Outcome.PASS
    trials = list(falsify(KIND, evidence, limits, verdict))
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    assert any(trial.result is TrialResult.CAUGHT for trial in trials)


def test_every_code_has_a_falsifier() -> None:
    assert {falsifier.code for falsifier in KIND.falsifiers} == set(KIND.codes)


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
