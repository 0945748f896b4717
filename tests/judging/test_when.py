"""For whom a gate is meant: what makes it NOT_APPLICABLE, and what must not be able to."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from tests.judging.test_judging import FACTS, GATE, GOOD, SEEN, judge, outcome, pairs, row

from weighbridge.core.model import (
    Basis,
    CanaryResult,
    Faulted,
    Finding,
    Measured,
    Measurement,
    Outcome,
    Rows,
    Scalar,
    TrialResult,
    Unmeasured,
)
from weighbridge.judging import requests
from weighbridge.quantities.facts import Fact

KEPT: Any = {"tensors": 3}


def fact(name: str, value: object, basis: Basis = Basis.MEASURED, *contradicted_by: str) -> Fact:
    return Fact(name=name, value=value, basis=basis, contradicted_by=contradicted_by)


def meant_for(
    *facts: Fact,
    when: Any = KEPT,
    measured: Measured | None = None,
    canary: CanaryResult | None = SEEN,
    total: int = 1,
) -> Finding:
    """Judge a gate that would pass, unless `measured` says otherwise, and is meant for subjects with these facts."""
    found = Measurement(quantity="facts", value=Rows("name", facts), by="t", examined=1, total=total)
    gate = dataclasses.replace(GATE, when=when)
    canaries = {FACTS: canary} if canary else {}
    return judge(measured or GOOD, gate=gate, others={FACTS: found}, other_canaries=canaries)


def test_a_gate_that_is_meant_for_the_subject_is_judged() -> None:
    for value in (3, 3.0):
        finding = meant_for(fact("tensors", value, Basis.REPORTED))
        assert (outcome(finding), finding.uncounted) == ((Outcome.PASS, "pass"), None)
        assert finding.facts == {"tensors": {"value": value, "basis": "reported", "contradicted_by": []}}


@pytest.mark.parametrize("basis", [Basis.MEASURED, Basis.DERIVED])
@pytest.mark.parametrize("measured", [None, pairs(row("x", differing_bytes=4)), Faulted(code="c", why="", remedy="")])
def test_a_false_fact_that_nobody_only_reported_makes_it_not_applicable(basis: Basis, measured: Any) -> None:
    finding = meant_for(fact("tensors", 4, basis), measured=measured)
    assert outcome(finding) == (Outcome.NOT_APPLICABLE, "when-false")
    assert finding.verdict.figures == {"fact": "tensors", "needed": 3, "found": 4, "basis": basis.value}
    assert finding.facts == {"tensors": {"value": 4, "basis": basis.value, "contradicted_by": []}}
    assert finding.uncounted is None  # what it would have come to was not even asked
    assert [(trial.kind, trial.name, trial.result) for trial in finding.trials] == [
        ("canary", FACTS, TrialResult.CAUGHT)
    ]


@pytest.mark.parametrize(
    ("facts", "needed", "code"),
    [
        ((), 3, "when-unknown"),
        ((fact("other", 3),), 3, "when-unknown"),
        ((fact("tensors", None),), 3, "when-unknown"),
        ((fact("tensors", 4, Basis.MEASURED, "the index says 3"),), 3, "when-contradicted"),
        ((fact("tensors", 3, Basis.MEASURED, "the index says 4"),), 3, "when-contradicted"),
        ((fact("tensors", 4, Basis.REPORTED),), 3, "when-reported"),
        ((fact("tensors", True),), 1, "when-incomparable"),
        ((fact("tensors", 1),), True, "when-incomparable"),
        ((fact("tensors", 0.0),), False, "when-incomparable"),
        ((fact("tensors", 3),), "3", "when-incomparable"),
        ((fact("tensors", "3"),), 3, "when-incomparable"),
        ((fact("tensors", math.nan),), 3, "when-incomparable"),
        ((fact("tensors", {"F32": 3}),), 3, "when-incomparable"),
        ((fact("tensors", [3]),), "[3]", "when-incomparable"),
    ],
)
def test_what_does_not_show_that_it_is_meant_for_others_blocks(facts: Any, needed: Any, code: str) -> None:
    finding = meant_for(*facts, when={"tensors": needed})
    assert outcome(finding) == (Outcome.BLOCKED, code)
    assert finding.uncounted is not None
    assert finding.uncounted.outcome is Outcome.PASS
    failed = meant_for(*facts, when={"tensors": needed}, measured=pairs(row("x", differing_bytes=4)))
    assert (outcome(failed), failed.uncounted and failed.uncounted.outcome) == ((Outcome.BLOCKED, code), Outcome.FAIL)


def test_a_condition_of_another_type_does_not_hold_under_where_either() -> None:
    gate = dataclasses.replace(GATE, where={"tensors": 1})
    for value, code in ((1, "pass"), (1.0, "pass"), (True, "where-false"), ("1", "where-false")):
        found = Measurement(
            quantity="facts", value=Rows("name", (fact("tensors", value),)), by="t", examined=1, total=1
        )
        assert judge(gate=gate, others={FACTS: found}, other_canaries={FACTS: SEEN}).verdict.code == code


def test_of_several_facts_one_that_is_surely_false_decides() -> None:
    when = {"bytes": 8, "format": "gguf", "tensors": 3}
    reported, sure = fact("bytes", 9, Basis.REPORTED), fact("tensors", 4)
    assert outcome(meant_for(reported, sure, when=when)) == (Outcome.NOT_APPLICABLE, "when-false")
    assert outcome(meant_for(reported, when=when)) == (Outcome.BLOCKED, "when-reported")
    assert outcome(meant_for(fact("bytes", 8), fact("tensors", 3), when=when)) == (Outcome.BLOCKED, "when-unknown")


@pytest.mark.parametrize(
    ("canary", "total", "came_to"),
    [
        (dataclasses.replace(SEEN, seen=False), 1, (Outcome.ERROR, "blind")),
        (dataclasses.replace(SEEN, applied=False, seen=False), 1, (Outcome.BLOCKED, "no-canary")),
        (None, 1, (Outcome.BLOCKED, "no-canary")),
        (SEEN, 2, (Outcome.BLOCKED, "partial-look")),
    ],
)
def test_an_instrument_that_was_not_shown_to_see_excuses_nothing(canary: Any, total: int, came_to: Any) -> None:
    assert outcome(meant_for(fact("tensors", 4), canary=canary, total=total)) == came_to


def test_a_gate_s_own_reason_not_to_look_is_reported_before_an_unknown_fact() -> None:
    unmeasured = Unmeasured(code="unbound", why="w", remedy="r")
    assert outcome(meant_for(measured=unmeasured)) == (Outcome.BLOCKED, "unbound")


def test_when_and_where_hold_one_after_the_other() -> None:
    gate = dataclasses.replace(GATE, when={"tensors": 3}, where={"bytes": 8})
    for found, came_to in (
        ((fact("tensors", 3), fact("bytes", 8)), (Outcome.PASS, "pass")),
        ((fact("tensors", 3), fact("bytes", 9)), (Outcome.BLOCKED, "where-false")),
        ((fact("tensors", 4), fact("bytes", 9)), (Outcome.NOT_APPLICABLE, "when-false")),
        ((fact("bytes", 9),), (Outcome.BLOCKED, "when-unknown")),
    ):
        facts = Measurement(quantity="facts", value=Rows("name", found), by="t", examined=1, total=1)
        assert outcome(judge(gate=gate, others={FACTS: facts}, other_canaries={FACTS: SEEN})) == came_to


def test_what_the_reader_noted_is_accepted_by_name() -> None:
    gate = dataclasses.replace(GATE, kind="step-metrics", subjects={"run": "a"}, limits={"required": ["loss"]})
    assert requests.is_of_run(gate)
    early, torn = {"ended": fact("ended", "early")}, {"torn_last_line": fact("torn_last_line", 61)}
    names: tuple[dict[str, Scalar], ...] = ({"ended": "early"}, {"ended": "early", "torn_last_line": 61})
    for facts, when in zip((early, early | torn), names, strict=True):
        accepted = dataclasses.replace(gate, when=when)
        assert requests.unfit_run(accepted, facts) is None
        assert requests.unfit_run(gate, facts) is not None
    unknown = {"ended": fact("ended", "unknown", Basis.REPORTED), "steps": fact("steps", 60)}
    assert requests.unfit_run(dataclasses.replace(gate, when={"steps": 60}), unknown) is None
    assert requests.unfit_run(gate, unknown) is not None
