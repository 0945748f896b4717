"""Print what each gate of `builtin:pretraining` says of what passes it and of what does not, and of published evidence.

Usage: python -m benchmarks.pretraining [SUBJECT=PATH ...]   (of published evidence, such as run=report.json epochs=DIR)
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.contract.pretraining_runs import PARAMS, SHOWN, bind

import weighbridge
from weighbridge.core.model import Finding


def cell(found: Finding) -> str:
    """Return the outcome of a gate and its reason."""
    verdict = found.verdict
    reasons = dict.fromkeys(one.code for one in verdict.offences) or dict.fromkeys([verdict.code])
    return " ".join((verdict.outcome, *(code for code in reasons if code != "pass")))


def judged(subjects: Mapping[str, str], folder: Path, **more: Any) -> tuple[Finding, ...]:
    """Return the findings over these subjects."""
    params = PARAMS if "gates" in more else {"last_epoch": "4"}
    return weighbridge.verify("builtin:pretraining", subjects=subjects, params=params, evidence=folder, **more).findings


def main(*bound: str) -> None:
    """Print a table for each gate's two subjects, and one for what is bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| id | the one that passes | the one that does not |\n|---|---|---|")
        for gate, (good, bad, _) in SHOWN.items():
            cells = (
                cell(*judged(bind(folder / gate / str(turn), given), folder / "evidence", gates=(gate,)))
                for turn, given in enumerate((good, bad))
            )
            print(f"| {gate} | {' | '.join(cells)} |")
        if bound:
            print("\n| id | of what was bound |\n|---|---|")
            for found in judged(dict(one.split("=", 1) for one in bound), folder / "evidence"):
                print(f"| {found.gate} | {cell(found)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
