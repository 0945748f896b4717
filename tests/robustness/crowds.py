"""Many writers of one gate at once, with the lock and, as on a disk that knows none, without it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import filelock
from tests.evidence.drafts import NOON
from tests.ledgers import DIGEST, NOW, PLACE
from tests.robustness.apart import Tally, Told, apart, forked

from weighbridge.core.errors import BundleError
from weighbridge.core.model import Outcome
from weighbridge.evidence.statement import utc
from weighbridge.ledger.fold import DRAFT, REGRESSED, LedgerEntry, LedgerStep, fold
from weighbridge.ledger.record import reconcile
from weighbridge.ledger.store import Ledger

REASON = "many wrote at once, without a lock"


def following(entries: Mapping[str, LedgerEntry]) -> LedgerEntry:
    """Return an entry that may follow some: it is declared, and then fails again and again."""
    at = fold(entries)
    about: dict[str, Any] = {"place": PLACE, "contract_digest": DIGEST, "recorded_at": utc(NOW)}
    about |= {"seq": at.seq + 1, "parents": at.heads, "before": at.status}
    if at.status is None:
        return LedgerEntry(step=LedgerStep.DECLARE, after=DRAFT, cause=DIGEST, **about)
    step = LedgerStep.RENEW if at.status is REGRESSED else LedgerStep.MOVE
    later = utc(NOON + timedelta(seconds=at.seq))
    return LedgerEntry(step=step, after=REGRESSED, cause="b" * 64, evidence_at=later, outcome=Outcome.FAIL, **about)


def appended_at_once(folder: Path, writers: int, each: int) -> Tally:
    """Append from many processes; every entry must be there, in one chain."""
    ledger = Ledger(folder / "ledger")

    def write() -> None:
        for _ in range(each):
            ledger.append(PLACE, lambda entries: (following(entries),))

    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in [forked(write) for _ in range(writers)]]

    def look() -> Iterator[Told]:
        standing, entries = fold(ledger.read(PLACE)), len(ledger.read(PLACE))
        sound = not any(codes) and not standing.diverged and entries == writers * each == standing.seq
        yield from [Told.HELD if sound else Told.CORRUPTED] * entries

    return apart(look, folder)


def appended_without_lock(folder: Path, writers: int, each: int) -> Tally:
    """Append from many processes that do not lock: nothing that was written is lost, and every fork is seen."""
    ledger, done = Ledger(folder / "ledger"), folder / "done"
    done.mkdir()
    ledger.append(PLACE, lambda entries: (following(entries),))
    base = ledger.read(PLACE)

    def write() -> None:
        filelock.FileLock = contextlib.nullcontext  # type: ignore[assignment]
        for number in range(each):
            with contextlib.suppress(BundleError):  # another took this for what a dead writer left: told, not lost
                mine = LedgerEntry(**{**_fields(following(base)), "cause": f"{os.getpid():032x}{number:032x}"})
                for digest in ledger.append(PLACE, partial(_alone, mine)):
                    (done / digest).touch()

    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in [forked(write) for _ in range(writers)]]

    def look() -> Iterator[Told]:
        entries = ledger.read(PLACE)
        for one in done.iterdir():
            yield Told.HELD if one.name in entries else Told.CORRUPTED
        seen = fold(entries).diverged == (len(entries) > 2) and ledger.problems() == () and not any(codes)
        yield Told.HELD if seen else Told.UNDETECTED
        reconcile(ledger, PLACE, reason=REASON, now=NOW)
        yield Told.HELD if not fold(ledger.read(PLACE)).diverged else Told.CORRUPTED

    return apart(look, folder)


def _fields(entry: LedgerEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


def _alone(entry: LedgerEntry, _entries: Mapping[str, LedgerEntry]) -> tuple[LedgerEntry, ...]:
    return (entry,)
