"""The binary that trained, as a witness saw it, and the binary that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.books import CONTRACT, typed, watched

from weighbridge.api import verify
from weighbridge.core import Outcome
from weighbridge.quantities.book_lines import Image

INSTALLED = "ab" * 32


def judged(run: Path, installed: str = INSTALLED) -> tuple[str, str]:
    where = f'    where: {{executable_sha256: "{installed}"}}\n'
    contract = run.with_name("trained.yaml")
    contract.write_text(CONTRACT.replace("    kind: steps-asked\n", f"    kind: steps-asked\n{where}"))
    found = verify(contract, subjects={"run": run}, gates=["GATE-STEPS"], evidence=run.with_name("kept"))
    (finding,) = found.findings
    return str(finding.verdict.outcome), finding.verdict.code


def ran(*digests: str) -> list[dict[str, Any]]:
    return [{"executable": Image(name="trainer", sha256=one)} for one in digests]


@pytest.mark.parametrize(
    ("digests", "head", "outcome"),
    [
        ((INSTALLED,), {}, Outcome.PASS),
        (("cd" * 32,), {}, Outcome.BLOCKED),
        (("",), {}, Outcome.BLOCKED),  # which could not be read
        ((INSTALLED, INSTALLED), {}, Outcome.PASS),
        (("cd" * 32, INSTALLED), {}, Outcome.BLOCKED),
        ((INSTALLED,), {"executable_sha256": INSTALLED}, Outcome.PASS),
        ((INSTALLED,), {"executable_sha256": "cd" * 32}, Outcome.BLOCKED),
        (("cd" * 32,), {"executable_sha256": INSTALLED}, Outcome.BLOCKED),
    ],
)
def test_a_gate_stands_where_the_program_that_ran_is_the_one_that_is_named(
    digests: tuple[str, ...], head: dict[str, Any], outcome: Outcome, tmp_path: Path
) -> None:
    assert judged(watched(typed(tmp_path / "a", **head), *ran(*digests)))[0] == outcome


def test_without_a_witness_nothing_is_known_of_the_program(tmp_path: Path) -> None:
    assert judged(typed(tmp_path / "a"))[0] == "BLOCKED"
