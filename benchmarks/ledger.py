"""Fold and check long ledgers: 10,000 entries of one place, and many bundles judged again, as seconds of CPU time.

python benchmarks/ledger.py [--entries 10000] [--bundles 200]

The peer of folding is parsing the same entries as JSON. `benchmarks/evidence.py` judges bundles of a real import again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.evidence.drafts import NOON
from tests.ledgers import CONTRACT, DIGEST, NOW, PLACE, recorded, sealed

from weighbridge.core.canonical import dumps
from weighbridge.core.limits import plain
from weighbridge.core.model import Outcome
from weighbridge.evidence.statement import utc
from weighbridge.ledger.audit import check
from weighbridge.ledger.fold import DRAFT, REGRESSED, LedgerEntry, LedgerStep, fold
from weighbridge.ledger.overview import overview
from weighbridge.ledger.store import Ledger, digest_of

SECONDS = 1.0


def timed(name: str, work: Callable[[], object]) -> float:
    """Print how long something takes, and return it."""
    before = time.process_time()
    work()
    took = time.process_time() - before
    print(f"{name}: {took:.3f} s of CPU time", flush=True)
    return took


def chain(length: int) -> dict[str, LedgerEntry]:
    """Return a chain that was declared and then failed again and again."""
    about: dict[str, Any] = {"place": PLACE, "contract_digest": DIGEST, "recorded_at": utc(NOW)}
    last = LedgerEntry(step=LedgerStep.DECLARE, seq=1, parents=(), before=None, after=DRAFT, cause=DIGEST, **about)
    entries = {digest_of(last): last}
    while len(entries) < length:
        after: dict[str, Any] = {
            "parents": (digest_of(last),),
            "before": last.after,
            "after": REGRESSED,
            "cause": "b" * 64,
        }
        step = LedgerStep.RENEW if last.after is REGRESSED else LedgerStep.MOVE
        at = utc(NOON + timedelta(seconds=len(entries)))
        last = LedgerEntry(step=step, seq=len(entries) + 1, evidence_at=at, outcome=Outcome.FAIL, **after, **about)
        entries[digest_of(last)] = last
    return entries


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--bundles", type=int, default=200)
    asked = parser.parse_args()
    entries = chain(asked.entries)
    written = [dumps(plain(entry)) for entry in entries.values()]
    peer = timed(f"parsing {len(entries)} entries as JSON", lambda: [json.loads(data) for data in written])
    took = timed(f"fold of {len(entries)} entries", lambda: fold(entries))
    print(f"folding / parsing: {took / peer:.1f} (folding at most {SECONDS:.0f} s)")
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger")
        for hours in range(asked.bundles):
            recorded(ledger, sealed(Path(folder), bad=True, hours=hours), NOW + timedelta(hours=asked.bundles))
        timed(f"reading and folding {asked.bundles + 1} entries", lambda: fold(ledger.read(PLACE)))
        now = NOW + timedelta(hours=asked.bundles)
        timed("status, from the newest bundle", lambda: overview(ledger, {CONTRACT.id: CONTRACT}, now))
        timed(f"check, {asked.bundles} bundles judged again", lambda: check(ledger, now))


if __name__ == "__main__":
    main()
