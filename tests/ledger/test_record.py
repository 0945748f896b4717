from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_ledger import typed
from tests.evidence import drafts
from tests.ledgers import BAD, CONTRACT, DIGEST, GOOD, NOW, PLACE, recorded, sealed, section

from weighbridge.contract.resolved import digests
from weighbridge.core.canonical import loads
from weighbridge.core.errors import LedgerError
from weighbridge.core.model import Origin, Status, Unmeasured
from weighbridge.evidence.bundle import seal
from weighbridge.evidence.statement import Tool, utc
from weighbridge.gates import KINDS
from weighbridge.judging.judging import judge_contract
from weighbridge.ledger.audit import check
from weighbridge.ledger.causes import bundle_evidence, least
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, DRAFT, PARTIAL, REGRESSED, RETIRED, LedgerStep, fold, lowest
from weighbridge.ledger.overview import discharged, overview
from weighbridge.ledger.record import discharge, reconcile, record, retire
from weighbridge.ledger.store import Ledger

REASON = "refuted by a second machine's measurement"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def status(ledger: Ledger) -> Status | None:
    return fold(ledger.read(PLACE)).status


def test_the_first_record_declares_then_moves(tmp_path: Path, ledger: Ledger) -> None:
    bundle = sealed(tmp_path)
    recorded(ledger, bundle)
    first, second = sorted(ledger.read(PLACE).values(), key=lambda entry: entry.seq)
    assert (first.step, first.after, first.cause, first.parents) == (LedgerStep.DECLARE, DRAFT, DIGEST, ())
    assert (second.before, second.after, second.cause) == (DRAFT, ACTIVE, bundle.id)
    assert ledger.problems() == ()


def test_recording_twice_adds_nothing(tmp_path: Path, ledger: Ledger) -> None:
    bundle = sealed(tmp_path)
    recorded(ledger, bundle)
    before = ledger.read(PLACE)
    (again,) = recorded(ledger, bundle, NOW + timedelta(hours=5))
    assert (again.code, again.entries) == ("already-recorded", ())
    assert ledger.read(PLACE) == before


def test_a_fixture_s_pass_is_partial_and_its_fail_moves_nothing(tmp_path: Path, ledger: Ledger) -> None:
    (failed,) = recorded(ledger, sealed(tmp_path, bad=True, origin=Origin.FIXTURE))
    assert (failed.code, status(ledger)) == ("not-live", DRAFT)
    (passed,) = recorded(ledger, sealed(tmp_path, origin=Origin.SYNTHETIC))
    assert (passed.moved, status(ledger)) == (True, PARTIAL)


def test_a_blocked_gate_is_declared_and_not_moved(tmp_path: Path, ledger: Ledger) -> None:
    blocked: Any = {drafts.PAIRS: Unmeasured(code="unbound", why="not bound", remedy="bind it")}
    bundle = seal(drafts.draft(blocked, CONTRACT, canaries={}), tmp_path, drafts.REDACTOR)
    (move,) = recorded(ledger, bundle)
    assert (move.code, move.says) == ("verdict-blocked", "BLOCKED is no evidence either way")
    assert status(ledger) is DRAFT


def test_overridden_params_move_nothing(tmp_path: Path, ledger: Ledger) -> None:
    given = dataclasses.replace(CONTRACT, overridden=("budget_ms",))
    (move,) = recorded(ledger, sealed(tmp_path, given=given))
    assert (move.code, status(ledger)) == ("overridden-params", DRAFT)
    (entry,) = ledger.read(PLACE).values()
    assert entry.cause == DIGEST


def test_a_dirty_tool_moves_nothing(tmp_path: Path, ledger: Ledger) -> None:
    (move,) = recorded(ledger, sealed(tmp_path, tool=Tool(version="0.1.0", dirty=True)))
    assert (move.code, status(ledger)) == ("dirty-tool", DRAFT)


def test_a_fail_regresses_and_only_a_later_pass_heals(tmp_path: Path, ledger: Ledger) -> None:
    recorded(ledger, sealed(tmp_path, hours=1))
    recorded(ledger, sealed(tmp_path, bad=True, hours=3))
    assert status(ledger) is REGRESSED
    (older,) = recorded(ledger, sealed(tmp_path, hours=2))
    assert (older.code, status(ledger)) == ("older-than-fail", REGRESSED)
    recorded(ledger, sealed(tmp_path, bad=True, hours=5))
    (between,) = recorded(ledger, sealed(tmp_path, hours=4))
    assert between.code == "older-than-fail"
    recorded(ledger, sealed(tmp_path, hours=6))
    assert status(ledger) is ACTIVE
    assert ledger.problems() == ()


def test_an_older_fail_that_is_recorded_later_does_not_bring_the_last_one_forward(
    tmp_path: Path, ledger: Ledger
) -> None:
    recorded(ledger, sealed(tmp_path, bad=True, hours=5))
    recorded(ledger, sealed(tmp_path, hours=6))
    recorded(ledger, sealed(tmp_path, bad=True, hours=3))
    assert (status(ledger), fold(ledger.read(PLACE)).failed_at) == (REGRESSED, drafts.NOON + timedelta(hours=5))
    (between,) = recorded(ledger, sealed(tmp_path, hours=4))
    assert (between.code, status(ledger)) == ("older-than-fail", REGRESSED)


def test_a_pass_on_one_instance_cannot_heal_a_fail_on_another(tmp_path: Path, ledger: Ledger) -> None:
    keys = {name: drafts.key(name) for name in ("falcon", "heron")}
    measured = {keys["falcon"]: BAD, keys["heron"]: GOOD}
    draft = drafts.draft(measured, CONTRACT)
    instances = {"GATE-IMPORT-001": ("falcon", "heron")}
    canaries = {key: drafts.seen()[drafts.PAIRS] for key in keys.values()}
    findings = judge_contract(CONTRACT, instances, draft.measured, canaries)
    subjects = (drafts.bound("source"), drafts.bound("import", "falcon"), drafts.bound("import", "heron"))
    draft = dataclasses.replace(draft, instances=instances, canaries=canaries, findings=findings, subjects=subjects)
    recorded(ledger, seal(draft, tmp_path / "bundles", drafts.REDACTOR))
    standing = {place.instance: fold(ledger.read(place)).status for place in ledger.places()}
    assert standing == {"falcon": REGRESSED, "heron": ACTIVE}
    assert lowest(s for s in standing.values() if s is not None) is REGRESSED


def test_a_gate_is_live_only_where_every_subject_is() -> None:
    assert least([Origin.LIVE, Origin.LIVE]) is Origin.LIVE
    assert least([Origin.LIVE, None]) is Origin.FIXTURE
    assert least([Origin.LIVE, Origin.FIXTURE]) is Origin.FIXTURE
    assert least([Origin.LIVE, Origin.REPORTED]) is Origin.REPORTED
    assert least([Origin.SYNTHETIC, Origin.REPORTED]) is Origin.SYNTHETIC
    assert least([]) is Origin.FIXTURE


def test_a_verdict_that_does_not_follow_from_its_measurements_is_not_believed(tmp_path: Path, ledger: Ledger) -> None:
    good = drafts.draft({drafts.PAIRS: GOOD}, CONTRACT)
    forged = drafts.draft({drafts.PAIRS: BAD}, CONTRACT, findings=good.findings)
    bundle = seal(forged, tmp_path, drafts.REDACTOR)
    with pytest.raises(LedgerError, match=r"not-rederivable the verdicts of bundle .* do not follow from it"):
        recorded(ledger, bundle)
    with pytest.raises(LedgerError, match="not-rederivable"):
        discharge(ledger, bundle, bundle.findings[0], amendment="a" * 64, reason=REASON, now=NOW)
    assert not ledger.root.exists()


def test_a_bundle_of_another_kind_version_moves_nothing(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = sealed(tmp_path)
    newer = {name: dataclasses.replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    monkeypatch.setattr("weighbridge.evidence.review.KINDS", newer)
    with pytest.raises(LedgerError, match=r"not-rederivable .* other versions of its gate kinds"):
        recorded(ledger, bundle)


def test_retiring_takes_a_reason_and_a_cause_and_is_final(tmp_path: Path, ledger: Ledger) -> None:
    recorded(ledger, sealed(tmp_path))
    for reason, cause, code in (("too slow", "x", "no-reason"), (REASON, "", "no-cause")):
        with pytest.raises(LedgerError) as caught:
            retire(ledger, PLACE, reason=reason, cause=cause, now=NOW)
        assert caught.value.code == code
    bad = sealed(tmp_path, bad=True)
    for cause, code in (("GATE-IMPORT-009", "no-cause"), (PLACE.gate, "no-cause"), ("b" * 64, "no-bundle")):
        with pytest.raises(LedgerError) as caught:
            retire(ledger, PLACE, reason=REASON, cause=cause, now=NOW)
        assert caught.value.code == code
    entry = retire(ledger, PLACE, reason=REASON, cause=bad.id, now=NOW)
    assert retire(ledger, PLACE, reason=REASON, cause=bad.id, now=NOW) == entry
    (move,) = recorded(ledger, sealed(tmp_path, hours=9))
    assert (move.code, status(ledger)) == ("retired", RETIRED)


def test_what_was_never_declared_cannot_be_retired(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="illegal-edge no retire from nothing"):
        retire(ledger, PLACE, reason=REASON, cause="GATE-IMPORT-009", now=NOW)
    assert ledger.read(PLACE) == {}


def test_a_pass_of_the_moment_of_the_last_fail_discharges_nothing(tmp_path: Path, ledger: Ledger) -> None:
    recorded(ledger, sealed(tmp_path, bad=True, hours=1))
    recorded(ledger, sealed(tmp_path, hours=2))
    same = sealed(tmp_path, hours=1)
    with pytest.raises(LedgerError, match="older-than-fail"):
        discharge(ledger, same, same.findings[0], amendment="a" * 64, reason=REASON, now=NOW)
    assert status(ledger) is ACTIVE


@pytest.mark.slow
def test_discharging_takes_an_active_gate_an_amendment_and_a_live_pass(tmp_path: Path, ledger: Ledger) -> None:
    bundle, fixture = sealed(tmp_path), sealed(tmp_path, origin=Origin.FIXTURE)
    bad = sealed(tmp_path, bad=True)

    def refused(which: Any, amendment: str = "a" * 64) -> str:
        with pytest.raises(LedgerError) as caught:
            discharge(ledger, which, which.findings[0], amendment=amendment, reason=REASON, now=NOW)
        return caught.value.code

    assert refused(bundle) == "illegal-edge"
    recorded(ledger, fixture)
    assert refused(bundle) == "illegal-edge"
    recorded(ledger, bundle)
    assert (refused(bundle, ""), refused(fixture), refused(bad)) == ("no-amendment", "not-live", "not-passed")
    assert refused(sealed(tmp_path, tool=Tool(version="0.1.0", dirty=True))) == "not-live"
    assert refused(sealed(tmp_path, given=dataclasses.replace(CONTRACT, overridden=("x",)))) == "not-live"
    discharge(ledger, bundle, bundle.findings[0], amendment="a" * 64, reason=REASON, now=NOW)
    assert status(ledger) is DISCHARGED
    recorded(ledger, sealed(tmp_path, bad=True, hours=2))
    assert status(ledger) is REGRESSED
    assert refused(bundle) == "older-than-fail"
    assert ledger.problems() == ()


@pytest.mark.parametrize(
    ("cites", "whole", "printed"),
    [
        ("the bundle", True, ""),
        ("a FAIL", False, "unearned the amendment has no evidence of "),
        ("nothing", False, "unearned the amendment has no evidence of "),
        ("a PASS before it", False, "unearned the amendment has no evidence of "),
        ("what is not there", False, "no-bundle bundle bbbbbbbbbbbb is not in bundles/"),
        ("a changed amendment", False, "no-amendment no amendment in spec/amendments has the digest "),
    ],
)
def test_a_discharge_stands_on_a_landed_amendment_that_cites_the_pass(
    tmp_path: Path, cites: str, whole: bool, printed: str
) -> None:
    ledger = Ledger(tmp_path / "evidence" / "ledger")
    bundle, bad = (sealed(tmp_path / "evidence", bad=bad, hours=not bad) for bad in (False, True))
    recorded(ledger, bad)
    recorded(ledger, bundle)
    older = sealed(tmp_path / "evidence", hours=-1)
    ids = {"a FAIL": (bad.id,), "nothing": (), "what is not there": ("b" * 64,), "a PASS before it": (older.id,)}
    digest = section(tmp_path, *ids.get(cites, (bundle.id,)))
    discharge(ledger, bundle, bundle.findings[0], amendment=digest, reason=REASON, now=NOW)
    if cites == "a changed amendment":
        (path,) = (tmp_path / "spec" / "amendments").iterdir()
        path.write_text("It held.\n")
    (gate,) = overview(ledger, {CONTRACT.id: CONTRACT}, NOW)
    assert (gate.status, gate.stale) == ("DISCHARGED" if whole else "UNVERIFIED", ())
    assert discharged([gate]) == (int(whole), 1)
    problems = check(ledger, NOW)
    assert [problem.code for problem in problems] == ([] if whole else [printed.split(maxsplit=1)[0]])
    assert gate.instances[0].unverified.startswith(printed)


def test_a_discharge_behind_a_typed_entry_is_unverified(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "evidence" / "ledger")
    recorded(ledger, sealed(tmp_path / "evidence", origin=Origin.FIXTURE))
    active = {"before": PARTIAL.value, "after": ACTIVE.value}  # on the bundle of a fixture
    typed(max(ledger.folder(PLACE).iterdir()), **active)
    live = sealed(tmp_path / "evidence", hours=1)
    discharge(ledger, live, live.findings[0], amendment=section(tmp_path, live.id), reason=REASON, now=NOW)
    assert status(ledger) is DISCHARGED
    (gate,) = overview(ledger, {CONTRACT.id: CONTRACT}, NOW)
    assert (gate.status, discharged([gate])) == ("UNVERIFIED", (0, 1))
    assert [problem.code for problem in check(ledger, NOW)] == ["not-live"]


@pytest.mark.parametrize(
    ("says", "printed"),
    [
        ({}, ""),
        ({"places": ()}, "unearned the amendment {} does not discharge checkpoint-import/GATE-IMPORT-001["),
        ({"places": (dataclasses.replace(PLACE, gate="GATE-2"),)}, "unearned the amendment {} does not discharge "),
        ({"places": (dataclasses.replace(PLACE, instance="b"),)}, "unearned the amendment {} does not discharge "),
        ({"places": (dataclasses.replace(PLACE, contract="b"),)}, "unearned the amendment {} does not discharge "),
        ({"gates": ()}, "unearned the amendment {} does not discharge "),
    ],
)
def test_a_section_discharges_what_it_says_that_it_discharges_and_nothing_beside(
    tmp_path: Path, says: dict[str, Any], printed: str
) -> None:
    ledger = Ledger(tmp_path / "evidence" / "ledger")
    bundle = sealed(tmp_path / "evidence")
    recorded(ledger, bundle)
    digest = section(tmp_path, bundle.id, **says)
    discharge(ledger, bundle, bundle.findings[0], amendment=digest, reason=REASON, now=NOW)
    (gate,) = overview(ledger, {CONTRACT.id: CONTRACT}, NOW)
    assert gate.status == ("UNVERIFIED" if printed else "DISCHARGED")
    assert gate.instances[0].unverified.startswith(printed.format(digest[:12]))
    assert [problem.code for problem in check(ledger, NOW)] == (["unearned"] if printed else [])


@pytest.mark.slow
def test_a_section_discharges_once_and_not_again_after_a_fail(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "evidence" / "ledger")
    bundle = sealed(tmp_path / "evidence", hours=2)
    recorded(ledger, bundle)
    digest = section(tmp_path, bundle.id)
    discharge(ledger, bundle, bundle.findings[0], amendment=digest, reason=REASON, now=NOW)
    (first,) = ledger.folder(PLACE).glob("000003-*")
    recorded(ledger, sealed(tmp_path / "evidence", bad=True, hours=1))  # a FAIL from before that PASS
    recorded(ledger, sealed(tmp_path / "evidence", hours=3))
    assert (status(ledger), check(ledger, NOW)) == (ACTIVE, ())
    (last,) = ledger.folder(PLACE).glob("000005-*")
    typed(last, **{**loads(first.read_bytes()), "parents": [last.stem.partition("-")[2]]})
    (gate,) = overview(ledger, {CONTRACT.id: CONTRACT}, NOW)
    assert gate.instances[0].unverified.startswith(f"unearned the amendment {digest[:12]} has discharged ")


def test_a_section_about_an_earlier_contract_discharges_nothing_under_the_next(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "evidence" / "ledger")
    bundle = sealed(tmp_path / "evidence")
    recorded(ledger, bundle)
    newer = dataclasses.replace(CONTRACT, version="2.0.0")
    renewed = sealed(tmp_path / "evidence", hours=1, given=newer)
    (move,) = record(renewed, ledger, now=NOW, contract_digest=digests(newer).whole)
    assert move.after is ACTIVE
    about: Any = {"reason": REASON, "now": NOW, "amendment": section(tmp_path, bundle.id)}
    with pytest.raises(LedgerError, match="contract-changed"):
        discharge(ledger, bundle, bundle.findings[0], **about)
    (entry,) = ledger.folder(PLACE).glob("000003-*")
    seen = {"outcome": "PASS", "evidence_at": utc(bundle_evidence(bundle, bundle.findings[0]).at), "kind_version": 0}
    on = {"step": "discharge", "before": ACTIVE.value, "after": DISCHARGED.value, "cause": about["amendment"]}
    typed(entry, **on, **seen, reason=REASON)
    assert [problem.code for problem in check(ledger, NOW)] == ["unearned"]


def test_there_is_nothing_to_reconcile_in_one_chain(tmp_path: Path, ledger: Ledger) -> None:
    recorded(ledger, sealed(tmp_path))
    with pytest.raises(LedgerError, match=r"not-diverged .* has 1 newest entries, nothing to join"):
        reconcile(ledger, PLACE, reason=REASON, now=NOW)


def of_run(began: int) -> dict[str, Any]:
    """Return the subjects of a bundle whose candidate is a run that began so many hours after noon."""
    start = utc(drafts.NOON + timedelta(hours=began))
    return {"subjects": (drafts.bound("source"), dataclasses.replace(drafts.bound("import"), started=start))}


def test_a_run_that_began_before_the_failing_one_heals_nothing(tmp_path: Path, ledger: Ledger) -> None:
    recorded(ledger, sealed(tmp_path, bad=True, hours=5, **of_run(3)))
    (older,) = recorded(ledger, sealed(tmp_path, hours=9, **of_run(2)))
    assert (older.code, status(ledger)) == ("older-than-fail", REGRESSED)
    (same,) = recorded(ledger, sealed(tmp_path, hours=10, **of_run(3)))
    assert (same.code, status(ledger)) == ("older-than-fail", REGRESSED)
    (newer,) = recorded(ledger, sealed(tmp_path, hours=11, **of_run(4)))
    assert (newer.code, status(ledger)) == ("", ACTIVE)
    assert ledger.problems() == ()
