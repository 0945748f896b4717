"""A run directory that was typed by hand is reported wherever it is shown, witnesses of its device included."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from tests.books import CONTRACT, kept, typed, watched
from tests.cli.conftest import Cli
from tests.ledgers import git

from weighbridge.evidence import bundle as bundles
from weighbridge.evidence.statement import BEFORE, Tool

WHY = "no book of a witness: start it with `weighbridge watch runs/a -- CMD`"
SEALED = "reported: no book of a witness stands for it"
VERIFY = ("verify", "contracts/c.yaml", "--subject", "run=runs/a", "--record")


@pytest.fixture
def run(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project with a contract for a run on CUDA, and type such a run."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "c.yaml").write_text(CONTRACT)
    return typed(workplace / "runs" / "a")


def sealed(workplace: Path) -> Path:
    return max((workplace / "evidence" / "bundles").iterdir(), key=lambda one: one.stat().st_mtime_ns)


def test_a_typed_run_makes_no_gate_live(cli: Cli, run: Path) -> None:
    assert run.is_dir()
    ended = cli(*VERIFY)
    assert ended.code == 0
    assert ended.lines[:2] == ["on-cuda 1.0.0   run=runs/a (reported)", f"    reported: {WHY}"]
    assert "moved: none -> reported: GATE-CUDA, GATE-STEPS, GATE-LEARNED" in ended.lines
    assert {line.split()[-1] for line in cli("status").lines[:3]} == {"reported"}
    assert "gates: 3, of which 3 reported; discharged: 0 of 3" in cli("status").lines
    assert cli("ledger", "check").code == 0


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ({"dirty": True}, "the tree had changes when it began"),
        ({"dirty": None}, "run.json has no dirty"),
        ({"commit": "", "dirty": None}, "run.json has no commit"),
        ({"pid": 0}, "run.json has no pid"),
    ],
)
def test_a_recorded_run_that_is_a_fixture_says_what_it_lacks(
    cli: Cli, workplace: Path, run: Path, head: dict[str, object], why: str
) -> None:
    watched(typed(workplace / "runs" / "b", **head))
    ended = cli(*(word.replace("runs/a", "runs/b") for word in VERIFY))
    assert ended.lines[:2] == ["on-cuda 1.0.0   run=runs/b (fixture)", f"    fixture: {why}"]
    assert run.is_dir()


def test_the_same_run_that_a_witness_saw_makes_them_live(cli: Cli, run: Path) -> None:
    watched(run)
    ended = cli(*VERIFY)
    assert ended.lines[0] == "on-cuda 1.0.0   run=runs/a (live)"
    assert "moved: none -> live: GATE-CUDA, GATE-STEPS, GATE-LEARNED" in ended.lines


def test_what_was_reported_and_is_live_now_was_called_reported_by_each_line(cli: Cli, run: Path) -> None:
    cli(*VERIFY)
    watched(run)
    cli(*VERIFY)
    moves = [line[5:].split("  (")[0].strip() for line in cli("status", "why", "GATE-CUDA").lines if "->" in line]
    assert moves == ["none -> DRAFT", "DRAFT -> reported", "reported -> live"]


@pytest.mark.parametrize("form", ["json", "jsonl", "junit", "sarif", "markdown", "github", "tap"])
def test_every_report_says_so_with_the_reason(cli: Cli, run: Path, form: str) -> None:
    rows = (run / "steps.jsonl").read_text().splitlines(keepends=True)
    (run / "steps.jsonl").write_text("".join(rows[:50]))  # one gate fails: some forms tell of no other
    printed = cli(*VERIFY, "--report", f"{form}:-").out
    plain = re.sub(r"\\([^\w\s])", r"\1", printed)
    assert f"run=runs/a (reported: {WHY})" in plain


@pytest.mark.slow
def test_a_bundle_says_so_whoever_reads_it(cli: Cli, run: Path, workplace: Path) -> None:
    cli(*VERIFY)
    before = sealed(workplace)
    assert f"run=runs/a ({SEALED})" in cli("evidence", "show", before).lines[0]
    assert f"  run=runs/a is {SEALED}" in cli("evidence", "verify", before).lines
    said = json.loads(cli("evidence", "verify", before, "--json").out)
    assert said["reported"] == {"run@default": "no book of a witness stands for it"}
    assert f"({SEALED})" in cli("evidence", "export", before, "--as", "model-card").out
    assert '"origin":"reported"' in cli("evidence", "export", before, "--as", "svr").out.replace(" ", "")
    cli("report", before, "-o", "page.html")
    assert f"run=runs/a ({SEALED})" in (workplace / "page.html").read_text()
    watched(run)
    cli(*VERIFY)
    printed = cli("evidence", "diff", before, sealed(workplace)).out
    assert "run@default/origin: 'reported' -> 'live'" in printed
    assert "run@default/book: '' -> '" in printed
    assert json.loads(cli("evidence", "verify", sealed(workplace), "--json").out)["reported"] == {}


@pytest.mark.slow
def test_an_old_bundle_of_a_run_is_said_to_be_from_before_witnesses(
    cli: Cli, run: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched(run)
    seal = bundles.seal

    def as_before(draft: bundles.BundleDraft, *more: object) -> bundles.Bundle:
        subjects = tuple(dataclasses.replace(one, book=None) for one in draft.subjects)
        return seal(dataclasses.replace(draft, subjects=subjects), *more)  # type: ignore[arg-type]

    monkeypatch.setattr("weighbridge.evaluation.verification.seal", as_before)
    assert "moved: none -> reported: GATE-CUDA" in cli(*VERIFY).out
    assert f"run=runs/a (reported: {BEFORE})" in cli("evidence", "show", sealed(workplace)).lines[0]
    assert "earns a move" not in cli("ledger", "check").out


@pytest.mark.slow
def test_a_section_about_a_reported_run_says_that_it_is_no_live_evidence_and_discharges_nothing(
    cli: Cli, run: Path, workplace: Path
) -> None:
    git(workplace, "init", "-q")
    assert run.is_dir()
    cli(*VERIFY)
    draft = ("amend", "draft", "--bundle", sealed(workplace), "--gate", "GATE-STEPS", "--title", "Steps")
    assert cli(*draft, "--author", "me", "--out", "draft.md").code == 0
    text = (workplace / "draft.md").read_text()
    assert "- Live evidence: run[default] is a reported subject (no book of a witness stands for it)." in text
    assert "| GATE-STEPS[default] | required | PARTIAL_ALGORITHM_LEVEL | PARTIAL_ALGORITHM_LEVEL |" in text
    wrong = [line for line in cli("amend", "check", "draft.md").out.splitlines() if "witness" in line or "live" in line]
    assert wrong == []


def test_what_changed_after_the_end_is_said_by_name(cli: Cli, run: Path) -> None:
    watched(run)
    with (run / "steps.jsonl").open("a") as file:
        file.write('{"step": 60, "loss": 1.0}\n')
    assert "    reported: steps.jsonl is no longer as what the witness saw at the end" in cli(*VERIFY).lines


def test_the_book_of_another_run_stands_for_none(cli: Cli, run: Path, workplace: Path) -> None:
    kept(watched(typed(workplace / "runs" / "b", pid=4712))).rename(kept(run))
    assert "    reported: run.json is no longer as what the witness saw at the end" in cli(*VERIFY).lines
