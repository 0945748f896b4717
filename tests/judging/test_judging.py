"""Judging: what may become a PASS, and what must not."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from tests.rows import typed

from weighbridge.clauses.kind import Evidence, Kind, passed, settings
from weighbridge.core import Doc
from weighbridge.core.model import (
    CanaryResult,
    Faulted,
    Finding,
    GateDecl,
    Measured,
    Measurement,
    Outcome,
    Record,
    Rows,
    Unmeasured,
    Verdict,
)
from weighbridge.gates import KINDS
from weighbridge.judging import judging, requests
from weighbridge.quantities.facts import Fact, Host
from weighbridge.quantities.tensors import TensorPair

KEY = "tensor_values.a.b.default"
SEEN = CanaryResult(name="one flipped bit", place="y", applied=True, seen=True)
GATE = GateDecl(id="G", kind="byte-identity", title="t", subjects={"source": "a", "candidate": "b"})


def row(name: str, **more: Any) -> TensorPair:
    same = {"source_dtype": "F32", "candidate_dtype": "F32", "source_shape": [4], "candidate_shape": [4], "elements": 4}
    size = {"source_bytes": 16, "candidate_bytes": 16, "differing_bytes": 0, "first_difference": None, "nonzero": True}
    row: TensorPair = typed("tensor_values", {"name": name, **same, **size, "reproduced": {"identical": 4}, **more})
    return row


def pairs(*rows: TensorPair, total: int | None = None) -> Measurement:
    count = len(rows)
    return Measurement(
        quantity="tensor_values",
        value=Rows("name", rows),
        by="t",
        examined=count,
        total=count if total is None else total,
    )


GOOD = pairs(row("x"), row("y"))


def judge(
    measured: Measured | None = GOOD,
    *,
    canary: CanaryResult | None = SEEN,
    gate: GateDecl = GATE,
    others: Mapping[str, Measured] | None = None,
    other_canaries: Mapping[str, CanaryResult] | None = None,
) -> Finding:
    everything = {KEY: measured} if measured else {}
    canaries = {KEY: canary} if canary else {}
    return judging.judge_gate(gate, "default", {**everything, **(others or {})}, {**canaries, **(other_canaries or {})})


def outcome(finding: Finding) -> tuple[Outcome, str]:
    return finding.verdict.outcome, finding.verdict.code


def test_a_pass_has_caught_every_trial() -> None:
    finding = judge()
    assert outcome(finding) == (Outcome.PASS, "pass")
    assert "survived" not in {trial.result for trial in finding.trials}
    kinds = [trial.kind for trial in finding.trials if trial.result == "caught"]
    assert kinds[-2:] == ["nothing-left", "canary"]
    assert kinds.count("mutation") >= len(KINDS["byte-identity"].codes)


def test_what_was_never_measured_is_blocked() -> None:
    assert outcome(judge(None)) == (Outcome.BLOCKED, "never-measured")


def test_what_could_not_be_measured_is_blocked_with_its_code() -> None:
    assert outcome(judge(Unmeasured(code="no-cuda", why="w", remedy="r"))) == (Outcome.BLOCKED, "no-cuda")


def test_what_broke_while_measuring_is_an_error_with_its_code() -> None:
    assert outcome(judge(Faulted(code="truncated", why="w", remedy="r"))) == (Outcome.ERROR, "truncated")


def test_an_instrument_that_stopped_early_is_blocked() -> None:
    assert outcome(judge(pairs(row("x"), total=2))) == (Outcome.BLOCKED, "partial-look")


def test_an_instrument_without_a_canary_gives_no_pass() -> None:
    assert outcome(judge(canary=None)) == (Outcome.BLOCKED, "no-canary")
    not_laid = CanaryResult(name="", place="", applied=False, seen=False, why="empty")
    assert outcome(judge(canary=not_laid)) == (Outcome.BLOCKED, "no-canary")


@pytest.mark.parametrize("measured", [GOOD, pairs(row("x", differing_bytes=1), row("y"))], ids=["pass", "fail"])
def test_a_blind_instrument_is_an_error_whatever_it_said(measured: Measurement) -> None:
    assert outcome(judge(measured, canary=dataclasses.replace(SEEN, seen=False))) == (Outcome.ERROR, "blind")


def kind_with(judge_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_kind(monkeypatch, judge=judge_)


def replace_kind(monkeypatch: pytest.MonkeyPatch, **other: Any) -> None:
    kind: Kind[Any] = dataclasses.replace(KINDS["byte-identity"], **other)
    for module in (judging, requests):
        monkeypatch.setattr(module, "KINDS", {"byte-identity": kind})


def test_a_judge_that_always_passes_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    kind_with(lambda _evidence, _limits: passed(looked=("x", "y")), monkeypatch)
    finding = judge()
    assert outcome(finding) == (Outcome.BLOCKED, "vacuous")
    assert finding.verdict.figures == {"survivor": "one byte differs", "clause": "bytes"}


def test_a_judge_that_looks_at_its_first_row_only_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    real = KINDS["byte-identity"].judge

    def first_only(evidence: Evidence, limits: Any) -> Verdict:
        value = evidence["pairs"].value
        assert isinstance(value, Rows)
        cut = dataclasses.replace(evidence["pairs"], value=Rows("name", value.rows[:1]))
        return dataclasses.replace(real({"pairs": cut}, limits), looked=value.places())

    kind_with(first_only, monkeypatch)
    assert outcome(judge()) == (Outcome.BLOCKED, "vacuous")


def test_a_judge_that_says_it_looked_nowhere_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    real = KINDS["byte-identity"].judge
    kind_with(lambda evidence, limits: dataclasses.replace(real(evidence, limits), looked=()), monkeypatch)
    assert outcome(judge()) == (Outcome.BLOCKED, "vacuous")


def test_a_judge_that_passes_an_empty_measurement_is_vacuous(monkeypatch: pytest.MonkeyPatch) -> None:
    real = KINDS["byte-identity"].judge

    def forgiving(evidence: Evidence, limits: Any) -> Verdict:
        verdict = real(evidence, limits)
        return passed(looked=("x",)) if verdict.code == "nothing-compared" else verdict

    kind_with(forgiving, monkeypatch)
    finding = judge()
    assert outcome(finding) == (Outcome.BLOCKED, "vacuous")
    survived = [trial.name for trial in finding.trials if trial.result == "survived"]
    assert "without pairs" in survived


@pytest.mark.parametrize("moves", [{}, {"moves": lambda _limit: iter(())}], ids=["none", "an empty one"])
def test_a_pass_within_a_bound_that_no_trial_moves_is_vacuous(
    monkeypatch: pytest.MonkeyPatch, moves: dict[str, Any]
) -> None:
    bound = Doc("what nobody moves", must="at most", **moves)
    replace_kind(monkeypatch, limits=settings(KINDS["byte-identity"].limits, at_most=(int, bound, 5)))
    finding = judge()
    assert outcome(finding) == (Outcome.BLOCKED, "vacuous")
    assert finding.verdict.figures["survivor"] == "at_most: nothing moves it"


def test_a_judge_that_raises_is_an_error_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_evidence: Evidence, _limits: Any) -> Verdict:
        raise ZeroDivisionError("a secret")

    kind_with(broken, monkeypatch)
    assert judge().verdict == Verdict(outcome=Outcome.ERROR, code="judge-raised")


# --- Conditions -------------------------------------------------------------------------------------------------------

WHERE = dataclasses.replace(GATE, where={"tokens_per_step": 2048})
FACTS = "facts.a.default"


def facts(**fact: Any) -> dict[str, Measured]:
    value = Rows("name", (Fact(name="tokens_per_step", **fact),) if fact else ())
    return {FACTS: Measurement(quantity="facts", value=value, by="t", examined=1, total=1)}


def under(**fact: Any) -> Finding:
    return judge(gate=WHERE, others=facts(**fact), other_canaries={FACTS: SEEN})


def test_a_condition_that_holds_lets_the_verdict_count() -> None:
    finding = under(value=2048, basis="measured", contradicted_by=[])
    assert (finding.verdict.outcome, finding.uncounted) == (Outcome.PASS, None)


@pytest.mark.parametrize(
    ("fact", "code"),
    [
        ({"value": 8192, "basis": "derived", "contradicted_by": []}, "where-false"),
        ({"value": 2048, "basis": "reported", "contradicted_by": ["tokens"]}, "where-contradicted"),
        ({"value": None, "basis": "reported", "contradicted_by": []}, "where-unknown"),
        ({}, "where-unknown"),
    ],
)
def test_a_condition_that_does_not_hold_blocks_and_shows_what_it_held_back(fact: Any, code: str) -> None:
    finding = under(**fact)
    assert outcome(finding) == (Outcome.BLOCKED, code)
    assert finding.uncounted is not None
    assert finding.uncounted.outcome is Outcome.PASS


def test_facts_from_a_blind_instrument_are_an_error() -> None:
    blind = dataclasses.replace(SEEN, seen=False)
    fact = {"value": 2048, "basis": "measured", "contradicted_by": []}
    finding = judge(gate=WHERE, others=facts(**fact), other_canaries={FACTS: blind})
    assert outcome(finding) == (Outcome.ERROR, "blind")


NEEDS_CUDA = dataclasses.replace(GATE, requires={"cuda": True})
HOST = "host.default"


def host(*, cuda: bool) -> dict[str, Measured]:
    return {
        HOST: Measurement(
            quantity="host",
            value=Record(Host(cuda=cuda, devices=int(cuda), why="" if cuda else "no", hidden=False)),
            by="t",
            examined=1,
            total=1,
        )
    }


def test_a_missing_requirement_blocks() -> None:
    not_here = Unmeasured(code=requests.NOT_HERE, why="w", remedy="r")
    finding = judge(not_here, gate=NEEDS_CUDA, others=host(cuda=False), other_canaries={HOST: SEEN})
    assert outcome(finding) == (Outcome.BLOCKED, "requires")
    assert finding.uncounted is None


@pytest.mark.parametrize("others", [host(cuda=True), {}], ids=["the host lacks its name", "no host was looked at"])
def test_a_requirement_that_nobody_looked_for_is_not_met(others: dict[str, Measured]) -> None:
    strange = dataclasses.replace(GATE, requires={"nonsense": True})
    finding = judge(gate=strange, others=others, other_canaries={HOST: SEEN})
    assert outcome(finding) == (Outcome.BLOCKED, "requires")
    assert finding.verdict.figures == {"requirement": "nonsense", "needed": True, "found": None}


def test_a_subject_that_is_not_bound_says_more_than_a_missing_requirement() -> None:
    unbound = Unmeasured(code="unbound", why="w", remedy="r")
    finding = judge(unbound, gate=NEEDS_CUDA, others=host(cuda=False), other_canaries={HOST: SEEN})
    assert outcome(finding) == (Outcome.BLOCKED, "unbound")
