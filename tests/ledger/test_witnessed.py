"""What a bundle's statement says of a witness decides what its runs and traces count as, then and now."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each
from tests.evidence import drafts
from tests.ledgers import BAD, CONTRACT, GOOD, NOW, recorded, section

from weighbridge.core.canonical import dumps, loads, sha256
from weighbridge.core.errors import LedgerError
from weighbridge.core.model import Origin, SubjectKind
from weighbridge.evidence.bundle import Bundle, seal
from weighbridge.evidence.review import Against, State, verify
from weighbridge.evidence.statement import BEFORE, BoundSubject, from_bytes
from weighbridge.ledger.audit import check
from weighbridge.ledger.causes import bundle_evidence, place_of
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, PARTIAL, REGRESSED, fold
from weighbridge.ledger.overview import overview
from weighbridge.ledger.record import discharge
from weighbridge.ledger.store import Ledger

BOOK = "b" * 64
RUN, TRACE, MODEL, CHECKPOINT = SubjectKind.RUN, SubjectKind.TRACE, SubjectKind.MODEL, SubjectKind.CHECKPOINT


def subject(name: str, **more: Any) -> BoundSubject:
    return dataclasses.replace(drafts.bound(name), **{"kind": RUN, **more})


def of_runs(into: Path, book: str | None, *, bad: bool = False, hours: int = 0) -> Bundle:
    subjects = tuple(subject(name, book=book) for name in ("source", "import"))
    finished = drafts.NOON + timedelta(hours=hours)
    measured = {drafts.PAIRS: BAD if bad else GOOD}
    return seal(
        drafts.draft(measured, CONTRACT, finished=finished, subjects=subjects), into / "bundles", drafts.REDACTOR
    )


def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every subject count as it states, as before there were witnesses."""
    monkeypatch.setattr(BoundSubject, "counts_as", property(lambda one: one.origin))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "evidence" / "ledger")


@each(
    "given, counts, why",
    [
        ({"book": BOOK}, Origin.LIVE, ""),
        ({"book": ""}, Origin.REPORTED, "no book of a witness stands for it"),
        ({"book": None}, Origin.REPORTED, BEFORE),
        ({"book": "", "origin": Origin.REPORTED}, Origin.REPORTED, "no book of a witness stands for it"),
        ({"book": "", "origin": Origin.FIXTURE}, Origin.FIXTURE, ""),
        ({"kind": TRACE, "book": None}, Origin.REPORTED, BEFORE),
        ({"kind": TRACE, "book": ""}, Origin.REPORTED, "no book of a witness stands for it"),
        ({"kind": MODEL, "book": None, "path": "models.py:reference"}, Origin.LIVE, ""),
        ({"kind": MODEL, "book": None, "path": "gpu.trace"}, Origin.REPORTED, BEFORE),
        ({"kind": MODEL, "book": "", "path": "a:b.trace"}, Origin.REPORTED, "no book of a witness stands for it"),
        ({"kind": CHECKPOINT, "book": None}, Origin.LIVE, ""),
        ({"kind": SubjectKind.COMMAND, "book": None}, Origin.LIVE, ""),
    ],
)
def test_a_run_or_a_trace_is_live_only_where_its_bundle_names_a_book(
    given: dict[str, Any], counts: Origin, why: str
) -> None:
    one = subject("source", **given)
    assert (one.counts_as, one.unwitnessed) == (counts, why)


def test_a_statement_without_the_field_reads_back_to_its_own_bytes(tmp_path: Path) -> None:
    data = (of_runs(tmp_path, None).path / "statement.json").read_bytes()
    assert b'"book"' not in data
    assert from_bytes(data).subjects[0].book is None
    assert b'"book":""' in (of_runs(tmp_path, "").path / "statement.json").read_bytes()


def test_a_statement_that_was_edited_to_name_a_book_is_not_as_it_was_sealed(tmp_path: Path) -> None:
    bundle = of_runs(tmp_path, "")
    stated = loads((bundle.path / "statement.json").read_bytes())
    for one in stated["predicate"]["subjects"]:
        one["book"] = BOOK
    (bundle.path / "statement.json").write_bytes(dumps(stated))
    assert verify(bundle.path, Against(now=NOW)).integrity.state is State.BROKEN
    forged = bundle.path.rename(bundle.path.with_name(f"{bundle.path.name[:-12]}{sha256(dumps(stated))[:12]}"))
    assert "NOT ANCHORED" in verify(forged, Against(now=NOW, recorded=[bundle.id])).integrity.says


def test_an_old_bundle_counts_as_reported_when_it_is_recorded_now(tmp_path: Path, ledger: Ledger) -> None:
    (move,) = recorded(ledger, of_runs(tmp_path / "evidence", None))
    assert (move.after, move.reported) == (PARTIAL, True)
    assert check(ledger, NOW) == ()
    (one,) = overview(ledger, {}, NOW)
    assert one.reported


def test_what_an_old_bundle_earned_stays_and_is_said_to_be_from_before_witnesses(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        as_before(then)
        (move,) = recorded(ledger, of_runs(tmp_path / "evidence", None))
        assert move.after is ACTIVE
    assert check(ledger, NOW) == ()
    (gate,) = overview(ledger, {}, NOW)
    assert (gate.status, gate.reported) == (ACTIVE, True)
    (failed,) = recorded(ledger, of_runs(tmp_path / "evidence", None, bad=True, hours=1))
    assert failed.after is REGRESSED
    (healed,) = recorded(ledger, of_runs(tmp_path / "evidence", None, hours=2))
    assert (healed.code, healed.after) == ("not-live", REGRESSED)
    (healed,) = recorded(ledger, of_runs(tmp_path / "evidence", BOOK, hours=3))
    assert healed.after is ACTIVE
    assert check(ledger, NOW) == ()


@pytest.mark.parametrize("then", [None, ""])
def test_a_discharge_by_an_old_bundle_stays_and_none_is_added(
    then: str | None, tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = of_runs(tmp_path / "evidence", then)
    place, gates = place_of(bundle, bundle.findings[0]), (bundle.findings[0].gate,)
    digest = section(tmp_path, bundle.id, gates=gates, places=(place,))
    about = {"amendment": digest, "reason": "section 1 cites this evidence", "now": NOW}
    with monkeypatch.context() as patched:
        as_before(patched)
        (move,) = recorded(ledger, bundle)
        discharge(ledger, bundle, bundle.findings[0], **about)  # type: ignore[arg-type]
    assert fold(ledger.read(move.place)).status is DISCHARGED
    found = check(ledger, NOW)
    assert (found == ()) is (then is None)  # of a reported run's bundle neither entry follows
    other = Ledger(tmp_path / "other" / "ledger")
    recorded(other, bundle)
    with pytest.raises(LedgerError, match="not-live"):
        discharge(other, bundle, bundle.findings[0], **about)  # type: ignore[arg-type]


def test_evidence_of_runs_and_checkpoints_together_is_what_the_least_of_them_is(tmp_path: Path) -> None:
    draft = drafts.draft({drafts.PAIRS: GOOD}, CONTRACT)
    subjects = (drafts.bound("source"), subject("import", book=""))
    bundle = seal(dataclasses.replace(draft, subjects=subjects), tmp_path / "bundles", drafts.REDACTOR)
    seen = bundle_evidence(bundle, bundle.findings[0])
    assert (seen.live, seen.reported, seen.live_then) == (False, True, False)
