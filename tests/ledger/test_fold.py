from __future__ import annotations

import dataclasses
import itertools
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from tests.evidence.drafts import NOON

from weighbridge.core.errors import LedgerError
from weighbridge.core.model import Outcome, Status, Trial, TrialResult
from weighbridge.evidence.statement import moment, utc
from weighbridge.ledger.fold import (
    ACTIVE,
    DISCHARGED,
    DRAFT,
    EDGES,
    PARTIAL,
    REGRESSED,
    RETIRED,
    BundleEvidence,
    LedgerEntry,
    LedgerPlace,
    LedgerStep,
    Standing,
    advance,
    fold,
    lowest,
)

CAUGHT = Trial(kind="mutation", name="one byte differs", code="bytes", result=TrialResult.CAUGHT)
SURVIVED = dataclasses.replace(CAUGHT, result=TrialResult.SURVIVED)
CONTRACT = "c" * 64
PLACE = LedgerPlace(contract="import", gate="G-1", instance="default")
LATER = NOON + timedelta(hours=1)
PASSED = BundleEvidence(
    bundle="b" * 64, outcome=Outcome.PASS, live=True, trials=(CAUGHT,), at=LATER, contract_digest=CONTRACT
)
FAILED = dataclasses.replace(PASSED, outcome=Outcome.FAIL)


def moved(status: Status | None, evidence: BundleEvidence, **standing: Any) -> tuple[LedgerStep, Status]:
    at = Standing(status=status, heads=("h",), seq=1, contract_digest=CONTRACT, evidence_at=NOON, **standing)
    return advance(at, evidence, now=LATER, contract_digest=CONTRACT)


def refusal(status: Status | None, evidence: BundleEvidence, **standing: Any) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        moved(status, evidence, **standing)
    return caught.value


@pytest.mark.parametrize(
    ("status", "evidence", "step", "after"),
    [
        (None, dataclasses.replace(PASSED, live=False), LedgerStep.MOVE, PARTIAL),
        (DRAFT, dataclasses.replace(PASSED, live=False), LedgerStep.MOVE, PARTIAL),
        (DRAFT, PASSED, LedgerStep.MOVE, ACTIVE),
        (PARTIAL, PASSED, LedgerStep.MOVE, ACTIVE),
        (REGRESSED, PASSED, LedgerStep.MOVE, ACTIVE),
        (DRAFT, FAILED, LedgerStep.MOVE, REGRESSED),
        (PARTIAL, FAILED, LedgerStep.MOVE, REGRESSED),
        (ACTIVE, FAILED, LedgerStep.MOVE, REGRESSED),
        (DISCHARGED, FAILED, LedgerStep.MOVE, REGRESSED),
        (REGRESSED, FAILED, LedgerStep.RENEW, REGRESSED),
    ],
)
def test_the_table_moves(status: Status | None, evidence: BundleEvidence, step: LedgerStep, after: Status) -> None:
    assert moved(status, evidence) == (step, after)


@each(
    "status, evidence, code",
    [
        *((status, dataclasses.replace(PASSED, live=False), "not-live") for status in (PARTIAL, ACTIVE, REGRESSED)),
        *((status, dataclasses.replace(FAILED, live=False), "not-live") for status in (DRAFT, ACTIVE, DISCHARGED)),
        *(
            (DRAFT, dataclasses.replace(PASSED, outcome=o), f"verdict-{o.lower()}")
            for o in (Outcome.BLOCKED, Outcome.ERROR)
        ),
        *(
            (DRAFT, dataclasses.replace(evidence, overridden=("budget_ms",)), "overridden-params")
            for evidence in (PASSED, FAILED)
        ),
        (RETIRED, PASSED, "retired"),
        (RETIRED, FAILED, "retired"),
        (ACTIVE, PASSED, "already-there"),
        (DISCHARGED, PASSED, "already-there"),
        (DRAFT, dataclasses.replace(PASSED, dirty=True), "dirty-tool"),
        (DRAFT, dataclasses.replace(PASSED, contract_digest="d" * 64), "contract-changed"),
        (DRAFT, dataclasses.replace(PASSED, trials=(CAUGHT, SURVIVED)), "trials"),
        (DRAFT, dataclasses.replace(PASSED, trials=()), "trials"),
        (DRAFT, dataclasses.replace(PASSED, at=LATER + timedelta(seconds=301)), "future"),
    ],
)
def test_every_other_move_is_refused_by_what_is_missing(status: Status, evidence: BundleEvidence, code: str) -> None:
    assert refusal(status, evidence).code == code


def test_a_regressed_gate_needs_evidence_later_than_the_fail() -> None:
    assert refusal(REGRESSED, PASSED, failed_at=LATER).code == "older-than-fail"
    assert moved(REGRESSED, PASSED, failed_at=LATER - timedelta(milliseconds=1)) == (LedgerStep.MOVE, ACTIVE)


def test_a_second_fail_counts_only_where_it_is_later() -> None:
    assert refusal(REGRESSED, FAILED, failed_at=LATER).code == "already-there"
    assert moved(REGRESSED, FAILED, failed_at=NOON) == (LedgerStep.RENEW, REGRESSED)


def test_evidence_is_as_old_as_its_gate_allows_and_no_older() -> None:
    day = dataclasses.replace(PASSED, max_age_days=1.0, at=LATER - timedelta(days=1))
    assert moved(DRAFT, day) == (LedgerStep.MOVE, ACTIVE)
    older = dataclasses.replace(day, at=day.at - timedelta(milliseconds=1))
    assert refusal(DRAFT, older).what == "the evidence is older than 1 days"


def test_a_discharged_gate_is_renewed_where_it_would_go_stale_and_is_live_under_another_contract_or_kind() -> None:
    for when in ({"max_age_days": 9.0}, {"stale_on": ("commit",)}):
        assert moved(DISCHARGED, dataclasses.replace(PASSED, **when)) == (LedgerStep.RENEW, DISCHARGED)
    for other in ({"contract_digest": "d" * 64}, {"contract_digest": CONTRACT, "kind_version": 7}):
        before = Standing(status=DISCHARGED, evidence_at=NOON, **other)
        assert advance(before, PASSED, now=LATER, contract_digest=CONTRACT) == (LedgerStep.RENEW, ACTIVE)


def test_an_active_gate_is_renewed_where_it_would_go_stale() -> None:
    assert moved(ACTIVE, dataclasses.replace(PASSED, max_age_days=9.0)) == (LedgerStep.RENEW, ACTIVE)
    same = dataclasses.replace(PASSED, max_age_days=9.0, at=NOON)
    assert refusal(ACTIVE, same).code == "already-there"
    for other in ({"contract_digest": "d" * 64}, {"contract_digest": CONTRACT, "kind_version": 7}):
        before = Standing(status=ACTIVE, evidence_at=NOON, **other)
        assert advance(before, PASSED, now=LATER, contract_digest=CONTRACT) == (LedgerStep.RENEW, ACTIVE)


def test_clocks_may_differ_by_five_minutes_and_no_more() -> None:
    ahead = dataclasses.replace(PASSED, at=LATER + timedelta(seconds=300))
    assert moved(DRAFT, ahead) == (LedgerStep.MOVE, ACTIVE)


def test_the_same_bundle_moves_once() -> None:
    assert refusal(DRAFT, PASSED, causes=frozenset({"b" * 64})).code == "already-recorded"


def test_two_heads_refuse_every_move_until_reconciled() -> None:
    refused = refusal(DRAFT, PASSED, diverged=True)
    assert refused.code == "diverged"
    assert "weighbridge ledger reconcile" in str(refused)


@given(
    st.sampled_from([None, *Status]),
    st.builds(
        BundleEvidence,
        bundle=st.just("b" * 64),
        outcome=st.sampled_from(Outcome),
        live=st.booleans(),
        trials=st.lists(st.sampled_from([CAUGHT, SURVIVED]), max_size=2).map(tuple),
        at=st.sampled_from([NOON, LATER]),
        contract_digest=st.sampled_from([CONTRACT, "d" * 64]),
        dirty=st.booleans(),
        overridden=st.sampled_from([(), ("x",)]),
        max_age_days=st.sampled_from([None, 1.0]),
    ),
)
def test_whatever_is_shown_only_edges_of_the_table_come_out(status: Status | None, evidence: BundleEvidence) -> None:
    try:
        step, after = moved(status, evidence)
    except LedgerError as refused:
        assert refused.code
        return
    assert (status or DRAFT, after) in EDGES[step]
    assert evidence.outcome is (Outcome.FAIL if after is REGRESSED else Outcome.PASS)
    assert after is PARTIAL or evidence.live
    assert not evidence.overridden


def test_no_edge_lowers_a_status_but_a_fail_retiring_and_a_renewal_under_another_contract() -> None:
    order = list(Status)
    for step, edges in EDGES.items():
        for before, after in edges:
            if before is not None and order.index(after) < order.index(before):
                renewed = (step, before, after) == (LedgerStep.RENEW, DISCHARGED, ACTIVE)
                assert after in (REGRESSED, RETIRED) or renewed, (step, before, after)


# --- Folding ----------------------------------------------------------------------------------------------------------


def entry(after: Status, *parents: str, outcome: Outcome | None = None, at: str = "", **more: Any) -> LedgerEntry:
    values: dict[str, Any] = {"step": LedgerStep.MOVE, "place": PLACE, "seq": 1, "before": None, "cause": "x" * 64}
    values |= {"contract_digest": CONTRACT, "recorded_at": utc(NOON)} | more
    return LedgerEntry(after=after, parents=parents, outcome=outcome, evidence_at=at, **values)


def test_nothing_folds_to_no_status() -> None:
    assert fold({}) == Standing()


def test_a_chain_folds_to_its_newest_entry_in_any_order() -> None:
    chain = {
        "a": entry(DRAFT),
        "b": entry(REGRESSED, "a", outcome=Outcome.FAIL, at=utc(NOON), seq=2),
        "c": entry(ACTIVE, "b", outcome=Outcome.PASS, at=utc(LATER), seq=3),
    }
    for order in itertools.permutations(chain):
        standing = fold({key: chain[key] for key in order})
        assert (standing.status, standing.heads, standing.seq) == (ACTIVE, ("c",), 3)
        assert (standing.failed_at, standing.evidence_at) == (NOON, LATER)


def test_order_comes_from_parents_and_not_from_clocks() -> None:
    early = utc(NOON - timedelta(days=900))
    chain = {"z": entry(DRAFT), "a": entry(ACTIVE, "z", outcome=Outcome.PASS, at=early, seq=2, recorded_at=early)}
    assert (fold(chain).status, fold(chain).heads) == (ACTIVE, ("a",))


def test_joining_heads_keeps_the_age_of_the_evidence_and_the_last_fail() -> None:
    forked = {
        "a": entry(DRAFT),
        "b": entry(REGRESSED, "a", outcome=Outcome.FAIL, at=utc(LATER), seq=2),
        "c": entry(ACTIVE, "a", outcome=Outcome.PASS, at=utc(NOON), seq=2, cause="p" * 64),
        "d": entry(ACTIVE, "a", outcome=Outcome.PASS, at=utc(LATER), seq=2),
    }
    joined = entry(ACTIVE, "c", "d", step=LedgerStep.RECONCILE, seq=3, cause="c+d")
    kept = fold({key: one for key, one in forked.items() if key != "b"} | {"e": joined})
    assert (kept.evidence_at, kept.bundle, kept.failed_at) == (NOON, "p" * 64, None)
    worse = fold(forked | {"e": dataclasses.replace(joined, parents=("b", "c", "d"), after=REGRESSED)})
    assert (worse.status, worse.failed_at, worse.heads) == (REGRESSED, LATER, ("e",))


def test_the_last_fail_of_either_head_counts() -> None:
    first, last = NOON, LATER
    forked = {
        "a": entry(DRAFT),
        "b": entry(REGRESSED, "a", outcome=Outcome.FAIL, at=utc(first), seq=2),
        "c": entry(REGRESSED, "a", outcome=Outcome.FAIL, at=utc(last), seq=2),
        "d": entry(ACTIVE, "c", outcome=Outcome.PASS, at=utc(last + timedelta(seconds=1)), seq=3),
    }
    standing = fold(forked)
    assert (standing.status, standing.diverged, standing.failed_at) == (REGRESSED, True, last)
    joined = entry(REGRESSED, "b", "d", step=LedgerStep.RECONCILE, seq=4, cause="b+d")
    between = dataclasses.replace(PASSED, at=first + timedelta(minutes=30))
    with pytest.raises(LedgerError, match="older-than-fail"):
        advance(fold(forked | {"e": joined}), between, now=LATER, contract_digest=CONTRACT)


@pytest.mark.parametrize(
    "change", [{"dirty": True}, {"live": False}, {"overridden": ("b",)}, {"outcome": Outcome.FAIL}], ids=str
)
def test_evidence_is_sound_only_by_a_clean_tool_live_and_as_written(change: dict[str, Any]) -> None:
    assert PASSED.sound
    assert not dataclasses.replace(PASSED, **change).sound


def test_two_heads_count_as_the_lower() -> None:
    forked = {"a": entry(DRAFT), "b": entry(REGRESSED, "a", seq=2), "c": entry(ACTIVE, "a", seq=2)}
    standing = fold(forked)
    assert (standing.status, standing.diverged, standing.heads) == (REGRESSED, True, ("b", "c"))


def test_a_gate_shows_the_lowest_of_its_instances() -> None:
    assert lowest([ACTIVE, DRAFT, DISCHARGED]) is DRAFT


@pytest.mark.parametrize("text", ["2026-04-26", "2026-04-26T12:00:00.000000Z", "2026-04-26T12:00:00.000+02:00", "x"])
def test_a_moment_has_one_form(text: str) -> None:
    with pytest.raises(Exception, match="is no UTC time to the millisecond"):
        moment(text)
    assert moment(utc(NOON)) == NOON
