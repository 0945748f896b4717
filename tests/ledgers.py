"""Sealed bundles that move statuses, for the tests of the ledger."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.evidence import drafts

from weighbridge.contract.resolved import digests
from weighbridge.core.canonical import sha256
from weighbridge.core.model import Origin
from weighbridge.evidence.bundle import Bundle, seal
from weighbridge.evidence.statement import utc
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.ledger.record import Move, record
from weighbridge.ledger.sections import Amendment, Landing
from weighbridge.ledger.store import Ledger
from weighbridge.spec.amendments import written

CONTRACT = drafts.contract(drafts.gate())
DIGEST = digests(CONTRACT).whole
FILES = "${RUN}/import.safetensors+${RUN}/source.safetensors"
PLACE = LedgerPlace(contract="checkpoint-import", gate="GATE-IMPORT-001", instance=FILES)
GOOD = drafts.pairs(drafts.pair("a"), drafts.pair("b"))
BAD = drafts.pairs(drafts.pair("a"), drafts.pair("b", candidate_dtype="F16"))
NOW = drafts.NOON + timedelta(days=1)


def sealed(into: Path, *, bad: bool = False, hours: int = 0, origin: Origin = Origin.LIVE, **more: Any) -> Bundle:
    measured = {drafts.PAIRS: BAD if bad else GOOD}
    finished = drafts.NOON + timedelta(hours=hours)
    draft = drafts.draft(measured, more.pop("given", CONTRACT), origin=origin, finished=finished, **more)
    return seal(draft, into / "bundles", drafts.REDACTOR)


def recorded(ledger: Ledger, bundle: Bundle, now: datetime = NOW) -> tuple[Move, ...]:
    return record(bundle, ledger, now=now, contract_digest=DIGEST)


def section(root: Path, *evidence: str, gates: tuple[str, ...] = (PLACE.gate,), places: Any = (PLACE,)) -> str:
    """Write a section as if it had landed, which discharges places by bundles, and return its digest."""
    discharges = tuple(map(str, places))
    landing = Landing(at=utc(NOW), raises="minor", previous="", heads={}, discharges=discharges)
    named: Any = {"id": "A-20261129-it-holds", "title": "It holds", "author": "Ada", "kind": "record"}
    data = written(Amendment(**named, gates=gates, evidence=evidence, landed=landing), "It holds.\n").encode()
    folder = root / "spec" / "amendments"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"0001-it-holds-{sha256(data)[:12]}.md").write_bytes(data)
    return sha256(data)


def git(folder: Path, *argv: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *argv], capture_output=True, check=True, text=True)
    return done.stdout
