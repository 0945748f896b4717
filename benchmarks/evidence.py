"""Seal beside measuring, and judge bundles of a real import again beside reading them: ratios, in CPU time.

    python benchmarks/evidence.py [--mib 256] [--bundles 200] [--rounded]

Sealing is redacting, digesting the checkpoints and writing; the peer of judging again is reading, digesting and parsing
the same files. Nothing here imports torch.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from weighbridge.evaluation import verification
from weighbridge.evaluation.runner import EvaluationSession
from weighbridge.evidence.bundle import Bundle, BundleDraft, seal, unseal
from weighbridge.evidence.redact import Redactor
from weighbridge.evidence.review import Against, verify
from weighbridge.ledger.audit import check
from weighbridge.ledger.store import Ledger

BUDGET, SECONDS = 0.10, 30.0
spent: dict[str, float] = {}


def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """Return something that adds the CPU time that it takes to `spent`."""

    def run(*arguments: Any, **named: Any) -> Any:
        before = time.process_time()
        try:
            return work(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - before

    return run


def measured(mib: int, *, same: bool) -> Bundle:
    """Verify the import of a checkpoint of this size, and print what sealing costs of measuring.

    Where the import holds the same bytes, comparing them is quicker than any digest of them.
    """
    rng = np.random.default_rng(3)
    tensors = {f"blocks.{at}.w": rng.standard_normal(mib << 12, np.float32) for at in range(64)}
    save_file(tensors, "a.safetensors")
    rounded = {name: (one.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for name, one in tensors.items()}
    save_file(tensors if same else rounded, "b.safetensors")
    for owner, name in ((EvaluationSession, "measure_all"), (EvaluationSession, "digests"), (verification, "keep")):
        setattr(owner, name, timed(name, getattr(owner, name)))
    asked = verification.VerifyRequest(
        contracts=("builtin:checkpoint-import",),
        subjects=("source=a.safetensors", "import=b.safetensors"),
        evidence=Path("evidence"),
        ledger=Path("evidence/ledger"),
    )
    (result,) = verification.verify(asked, lambda _: None)
    for says, took in (("digesting the subjects", spent["digests"]), ("writing the bundle", spent["keep"])):
        print(f"{says} {took:.3f} s / measuring {spent['measure_all']:.3f} s of 2 x {mib} MiB = "
              f"{took / spent['measure_all']:.2f} (at most {BUDGET})")  # fmt: skip
    assert result.bundle is not None  # it was asked for
    return result.bundle


def copied(bundle: Bundle, at: int) -> None:
    """Seal another bundle of the same measurements, under another command and an hour later each."""
    stated = bundle.statement
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=at)
    draft = BundleDraft(
        contract=bundle.contract, contract_yaml=bundle.contract_yaml, subjects=stated.subjects,
        instances=stated.instances, measured=bundle.measured, canaries=bundle.canaries, findings=bundle.findings,
        tool=stated.tool, host=stated.host, started=moment, finished=moment, command=("weighbridge", str(at)),
        environment=bundle.environment,
    )  # fmt: skip
    seal(draft, Path("evidence/bundles"), Redactor(key=bytes(32)))


def read_all(paths: list[Path]) -> None:
    """Read, digest and parse every file of some bundles."""
    for path in (file for folder in paths for file in folder.rglob("*") if file.is_file()):
        data = path.read_bytes()
        hashlib.sha256(data).hexdigest()
        if path.suffix == ".json":
            json.loads(data)


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--bundles", type=int, default=200)
    parser.add_argument(
        "--rounded", action="store_true", help="an import of other values, which takes longer to measure"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["HOME"] = folder
        bundle = unseal(measured(asked.mib, same=not asked.rounded).path)
        for at in range(asked.bundles):
            timed("seal one", copied)(bundle, at)
        paths = sorted(Path("evidence/bundles").iterdir())
        ledger, now = Ledger(Path("evidence/ledger")), datetime.now(UTC)
        timed("peer", read_all)(paths)
        found = timed("check", check)(ledger, now)
        timed("verify", lambda: [verify(path, Against(now=now)) for path in paths])()
    assert {one.code for one in found} <= {"empty-ledger", "unrecorded-fail"}, found
    assert "torch" not in sys.modules
    for name, says in (("check", "ledger check, all judged again"), ("verify", "evidence verify, one after the other")):
        each = spent[name] / len(paths)
        print(f"{says}: {each * 1000:.1f} s for 1,000 bundles (at most {SECONDS:.0f}), "
              f"{spent[name] / spent['peer']:.1f} times as long as reading them")  # fmt: skip


if __name__ == "__main__":
    main()
