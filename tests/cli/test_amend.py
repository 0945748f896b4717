"""`weighbridge amend` as it is typed: drafts of real bundles, landed, merged by git, and every false claim refused."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file
from tests.cases import each
from tests.cli.conftest import Cli, Ended
from tests.cli.test_ledger import as_before, typed
from tests.disks import failing
from tests.ledgers import git

from weighbridge.cli import main
from weighbridge.core.canonical import loads
from weighbridge.core.data import data_path
from weighbridge.core.errors import AmendmentError, BundleError
from weighbridge.evidence import review
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.review import Answer
from weighbridge.evidence.statement import Tool
from weighbridge.gates import KINDS
from weighbridge.ledger.sections import section_of
from weighbridge.ledger.store import Ledger
from weighbridge.spec.landing import Here, land

IMPORT = (data_path("contracts") / "checkpoint-import.yaml").read_text().replace("id: checkpoint-import", "id: mine")
TIME = """weighbridge: contract/v0
id: step-time
version: 1.0.0
title: Steps are fast
owner: trainers
subjects:
  run: {kind: run}
gates:
  - id: GATE-GPUTRAIN-004
    title: Median step wall time is under the budget
    kind: wall-time-budget
    subjects: {run: run}
    with: {statistic: median, steps: [0, 38], below_ms: 500, min_samples: 30}
    severity: required
"""
BOUND = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
DRAFTS = Path("spec/amendments/drafts")
SPEC = Path("spec/SPEC.md")


@dataclass(frozen=True)
class Kept:
    """A folder with a live import and a fixture's step times on record."""

    cli: Cli
    folder: Path
    imported: str
    timed: str

    def draft(self, name: str = "a", *more: object, gate: str = "GATE-IMPORT-001", bundle: str = "") -> Path:
        """Draft a section, and fill in what is left to its author."""
        out = DRAFTS / f"{name}.md"
        named = ("--bundle", bundle or self.imported, "--gate", gate, "--title", f"Section {name}", "--author", "Ada")
        assert self.cli("amend", "draft", *named, "--out", out, *more).code == 0
        out.write_text(re.sub("<!-- author:.*?-->\n", "", out.read_text()))
        return out

    def land(self, draft: Path, *more: object) -> Ended:
        return self.cli("amend", "land", draft, *more)

    def check(self, text: str) -> Ended:
        """Check a Markdown file of somebody's."""
        Path("notes.md").write_text(text)
        return self.cli("amend", "check", "notes.md")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(*, dirty: bool = False) -> None:
        monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0", dirty=dirty))

    return use


def measured() -> dict[str, bytes]:
    """Return what is verified: two contracts, two checkpoints, and a log of step times."""
    tensors = save({"w": np.arange(6, dtype=np.float32)})
    rng = random.Random(4)
    away = [round(rng.gauss(0, 3), 3) for _ in range(19)]
    walls = [264.74, *(round(264.74 + sign * by, 3) for by in away for sign in (1, -1))]
    rng.shuffle(walls)
    rows = [{"step": step, "wall_ms": wall, "loss": 9 - step / 9 + rng.random()} for step, wall in enumerate(walls)]
    log = "".join(f"{json.dumps(row)}\n" for row in rows)
    contracts = {"contracts/mine.yaml": IMPORT.encode(), "contracts/time.yaml": TIME.encode()}
    return contracts | {"a.safetensors": tensors, "b.safetensors": tensors, "log.jsonl": log.encode()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Verify and record once, in a folder that every test gets a copy of."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "contracts").mkdir()
    for name, data in measured().items():
        (folder / name).write_bytes(data)
    argv = ["weighbridge", "verify", *BOUND, "--subject", "run=log.jsonl", "--record"]
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", argv)
        patch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0", dirty=False))
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return folder


@pytest.fixture
def kept(cli: Cli, workplace: Path, tool: Callable[..., None], recorded: Path) -> Kept:
    tool()
    shutil.copytree(recorded, workplace, dirs_exist_ok=True)
    ids = {path.name[11:-13]: path.name[-12:] for path in Path("evidence/bundles").iterdir()}
    return Kept(cli, workplace, ids["mine"], ids["step-time"])


def codes(ended: Ended) -> list[str]:
    """Return the code of every problem that was printed."""
    return re.findall(r"^\S+?:\d+:1: (?:warning: )?([a-z-]+) ", ended.out, re.MULTILINE)


# --- The way of one section -------------------------------------------------------------------------------------------


def test_older_entries_of_default_are_discharged_and_checked_as_such(kept: Kept) -> None:
    as_before(kept.folder)
    ended = kept.land(kept.draft())
    assert (ended.code, ended.lines[-1]) == (0, "discharged: mine/GATE-IMPORT-001[default]")
    assert [kept.cli("amend", "check").code, kept.cli("ledger", "check").code] == [0, 0]
    assert kept.cli("verify", "contracts/mine.yaml", *BOUND, "--record").code == 0  # of the files themselves
    assert [kept.cli("amend", "check").code, kept.cli("ledger", "check").code] == [0, 0]


def test_a_pass_from_before_the_last_fail_lands_and_discharges_nothing(kept: Kept) -> None:
    whole = Path("b.safetensors").read_bytes()
    for data, code in ((save({"w": np.ones(6, dtype=np.float16)}), 1), (whole, 0)):
        Path("b.safetensors").write_bytes(data)
        assert kept.cli("verify", "contracts/mine.yaml", *BOUND, "--record").code == code
    ended = kept.land(kept.draft("a"))
    assert ended.code == 0, ended.out
    assert json.loads(kept.cli("status", "--json").out)["discharged"]["gates"] == 0


def test_nothing_is_discharged_beside_a_fail_that_is_not_recorded_or_cannot_be_read(kept: Kept) -> None:
    draft = kept.draft()
    save_file({"w": np.arange(6, dtype=np.float16)}, "b.safetensors")
    before = set(Path("evidence/bundles").iterdir())
    assert kept.cli("verify", "contracts/mine.yaml", *BOUND, "--evidence", "evidence").code == 1
    (failed,) = set(Path("evidence/bundles").iterdir()) - before
    ended = kept.land(draft)
    assert (ended.code, codes(ended)[-1:]) == (1, ["unrecorded-fail"]), ended.out
    (failed / "verdicts.json").write_text("{}")
    assert "verdicts.json has" in kept.land(draft).out
    hidden = failed.rename(failed.with_name("old"))
    ended = kept.land(draft)
    assert (ended.code, codes(ended)[-1:]) == (1, ["not-a-bundle"]), ended.out
    shutil.rmtree(hidden)
    assert kept.land(draft).code == 0


def test_a_section_is_drafted_landed_checked_and_rendered(kept: Kept) -> None:
    draft = kept.draft()
    ended = kept.land(draft)
    (section,) = Path("spec/amendments").glob("0001-section-a-*.md")
    assert ended.lines == [
        "landed: §1 Section a, version 0.1.0",
        str(section),
        f"{draft} was taken into it, and is gone",
        "discharged: mine/GATE-IMPORT-001[b.safetensors+a.safetensors]",
    ]
    assert not draft.exists()
    assert "DISCHARGED" in kept.cli("status").lines[0]
    checked = kept.cli("amend", "check")
    assert (checked.code, codes(checked)) == (0, [])
    assert re.fullmatch(r"looked at: 1 section, \d+ citations, 1 status, 1 tally; wrong: 0, .*", checked.lines[-1])
    page = SPEC.read_text()
    assert section.read_text().partition("\n---\n")[2] in page
    assert "Version 0.1.0, 1 section." in page
    assert page.index("Where the gates stood when §1 landed:") < page.index("| DISCHARGED | 1 of 2 |")
    assert page.count("Discharged: 1 of 2 gates that are not RETIRED (50%).") == 2  # at the top, and in its section
    assert kept.cli("ledger", "check").code == 0


@pytest.mark.slow
def test_a_section_over_several_bundles_and_gates_tells_where_each_stood_and_stands(kept: Kept) -> None:
    text = kept.draft("both", "--bundle", kept.timed, "--gate", "GATE-GPUTRAIN-004").read_text()
    rows = [line.split(" | ")[-2:] for line in text.splitlines() if line.startswith("| GATE-")]
    assert rows == [
        ["ACTIVE_WITH_LIVE_EVIDENCE", "DISCHARGED |"],
        ["PARTIAL_ALGORITHM_LEVEL", "PARTIAL_ALGORITHM_LEVEL |"],
    ]
    assert f" | `264.74` [ev:{kept.timed}#/findings/0/measured] ms | " in text
    assert "- Live evidence: run[default] is a fixture subject." in text
    assert [text.count(printed) for printed in ("- host: ", "- python: ", "\nweighbridge verify ")] == [1, 1, 1]
    assert kept.land(DRAFTS / "both.md").code == 0


def test_each_bundle_is_judged_again_once_by_whatever_digits_it_is_named(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.land(kept.draft())
    judged, judge_again = list[str](), review.rederivation

    def rederivation(bundle: Bundle) -> Answer:
        judged.append(bundle.id[:12])
        return judge_again(bundle)

    monkeypatch.setattr(review, "rederivation", rederivation)
    assert kept.cli("ledger", "check").code == 0
    assert sorted(judged) == sorted([kept.imported, kept.timed])


def test_a_draft_lands_though_only_the_kind_knows_its_unit(kept: Kept) -> None:
    """The wraps of a corpus and the relative L2 of a forward pass were drafted in units that landing did not know."""
    run = data_path("verifiers") / "specimens/runs/wrapped"
    gate = ("--gate", "GATE-RUN-002", "--subject", f"run={run}", "--evidence", "evidence")
    assert kept.cli("verify", "builtin:training-run", *gate).code == 0
    Path("contracts/run.yaml").write_text((data_path("contracts") / "training-run.yaml").read_text())
    (wrapped,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*training-run*"))
    draft = kept.draft(gate="GATE-RUN-002", bundle=wrapped)
    assert re.search(r" \| `\d+` \[ev:[^|]*/measured\] wraps \| ", draft.read_text())
    assert "number-mismatch" not in codes(kept.land(draft))
    assert codes(kept.check(f"It made 1 tensors [ev:{wrapped}#/findings/0/measured].")) == ["unit-mismatch"]


def test_a_draft_of_a_failure_says_where_it_failed(kept: Kept) -> None:
    save_file({"w": np.arange(6, dtype=np.float16)}, "b.safetensors")
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *bound, "--record").code == 1
    (failed,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*mine*") if kept.imported not in path.name)
    draft = kept.draft(bundle=failed)
    at = f"[ev:{failed}#/findings/0/offences/0"
    assert f": `w` {at}/place], `dtype` {at}/code]\n" in draft.read_text()
    assert kept.land(draft).code == 0


@pytest.mark.slow
def test_landing_again_does_what_a_crash_left_undone(kept: Kept) -> None:
    draft = kept.draft()
    text = draft.read_text()
    assert kept.land(draft).code == 0
    (entry,) = (path for path in Path("evidence/ledger").rglob("*.json") if '"discharge"' in path.read_text())
    entry.unlink()
    SPEC.unlink()
    assert codes(kept.cli("amend", "check")) == ["not-rendered", "not-discharged"]
    (section,) = Path("spec/amendments").glob("0001-*.md")
    assert kept.land(section).code == 0
    assert kept.cli("amend", "check").code == 0
    draft.write_text(text)
    ended = kept.land(draft)
    assert (ended.code, "already-landed" in codes(ended)) == (1, True)
    draft.unlink()
    assert kept.land(kept.draft()).code == 0  # drafted anew, of the same title on the same day
    assert [path.name[:4] for path in sorted(Path("spec/amendments").glob("*.md"))] == ["0001", "0002"]


def test_a_section_under_the_title_of_the_one_that_it_refutes_lands_on_the_same_day(kept: Kept) -> None:
    kept.land(kept.draft())
    (first,) = Path("spec/amendments").glob("0001-*.md")
    id_ = section_of(first).about.id
    assert kept.land(kept.draft("b", "--refutes", id_, "--title", "Section a")).code == 0
    (second,) = Path("spec/amendments").glob("0002-*.md")
    assert section_of(second).about.id == f"{id_}-2"


def test_a_landed_section_is_never_edited(kept: Kept) -> None:
    kept.land(kept.draft())
    (section,) = Path("spec/amendments").glob("0001-*.md")
    section.write_text(section.read_text().replace("Section a", "Section b"))
    ended = kept.cli("amend", "check")
    assert ended.code == 1
    assert "altered has sha256" in ended.err


@pytest.mark.slow
def test_the_page_says_which_section_a_later_one_refuted_and_none_may_build_on_it(kept: Kept) -> None:
    kept.land(kept.draft())
    (first,) = Path("spec/amendments").glob("0001-*.md")
    before = first.read_bytes()
    (id_,) = re.findall(r'^id: "(.*)"', before.decode(), re.MULTILINE)
    ended = kept.land(kept.draft("b", "--refutes", id_))
    assert ended.lines[0] == "landed: §2 Section b, version 1.0.0"
    page = SPEC.read_text()
    assert f"# §1\n\n> **REFUTED by §2** ({id_.replace('-a', '-b')}): Section b\n" in page
    assert first.read_bytes() == before
    third = kept.draft("c", "--depends-on", id_)
    third.write_text(third.read_text() + "\nAs §1 has shown, all is well.\n")
    refused = kept.land(third)
    assert (refused.code, codes(refused)) == (1, ["refuted", "refuted"])
    assert f"depends on {id_}, refuted by §2" in refused.out
    assert "builds on §1, which was refuted by §2" in refused.out
    assert "rests-on-refuted" in codes(kept.cli("amend", "check"))
    assert codes(kept.check(f"All is well, see {id_}.")) == ["refuted"]
    assert kept.land(kept.draft("d")).code == 0  # a later section cites the gate's PASS again
    assert kept.cli("amend", "check").code == 0


def test_a_byte_of_evidence_that_changed_is_named_with_its_file_and_its_bundle(kept: Kept) -> None:
    assert kept.land(kept.draft()).code == 0
    (path,) = Path("evidence/bundles").glob(f"*-{kept.imported}/verdicts.json")
    path.write_bytes(path.read_bytes().replace(b'"PASS"', b'"PASs"', 1))
    before, ended = SPEC.read_bytes(), kept.cli("amend", "check")
    assert (ended.code, codes(ended)) == (1, ["no-bundle", "altered"])  # the entry that names it, and the section
    assert f" altered bundle {kept.imported}: verdicts.json has sha256 " in ended.out
    rendered = kept.cli("amend", "render")
    assert (rendered.code, rendered.lines) == (1, ["rendered: spec/SPEC.md"])
    assert rendered.err == "it does not hold: 2 problems, see: weighbridge amend check\n"
    assert SPEC.read_bytes() == before  # the page follows from the sections alone


def test_a_page_that_was_edited_is_told_by_its_first_line_that_differs(kept: Kept) -> None:
    SPEC.parent.mkdir()
    SPEC.write_text("# Somebody's own page\n")
    assert kept.cli("amend", "check").code == 5
    kept.land(kept.draft())
    rendered = SPEC.read_text()
    line = 1 + rendered.split("\n").index("### Claim")
    for has in ("### Claim, as it is", "### Klaim"):
        SPEC.write_text(rendered.replace("### Claim", has))
        ended = kept.cli("amend", "check")
        printed = f"spec/SPEC.md:{line}:1: not-rendered has '{has}' where the sections give '### Claim'\n"
        assert (ended.code, printed in ended.out) == (1, True), ended.out
    SPEC.write_bytes(rendered.replace("\n", "\r\n").encode())
    assert r"SPEC.md:1:1: not-rendered has '…tead of editing. -->\r' where" in kept.cli("amend", "check").out
    SPEC.write_text(rendered.rstrip("\n") + "\nmore")
    assert "has 'more' where the sections give" in kept.cli("amend", "check").out


def test_a_page_without_its_sections_is_told(kept: Kept) -> None:
    kept.land(kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed))
    shutil.rmtree("spec/amendments")
    ended = kept.cli("amend", "check")
    assert (ended.code, codes(ended)) == (1, ["not-rendered"])
    assert "is there without the sections that gave it\n  restore spec/amendments, or delete the page\n" in ended.out


@pytest.mark.slow
def test_two_branches_that_land_the_same_number_are_distinguished_by_renaming_one(kept: Kept) -> None:
    git(kept.folder, "init", "-q", "-b", "main")
    git(kept.folder, "add", "-A")
    git(kept.folder, "commit", "-qm", "evidence")
    for name in ("b", "a"):
        git(kept.folder, "checkout", "-q", "-b", name, "main")
        draft = kept.draft(name, gate="GATE-GPUTRAIN-004", bundle=kept.timed)
        row = f"| H1 | it is {name} | REFUTED | {MEDIAN.format(kept.timed)} |"  # each branch has an H1 of its own
        draft.write_text(draft.read_text().replace(HYPOTHESES.rstrip(), HYPOTHESES + row))
        assert kept.land(draft).code == 0
        git(kept.folder, "add", "spec/amendments/*.md")
        git(kept.folder, "commit", "-qm", name)
        SPEC.unlink()
    git(kept.folder, "merge", "-q", "--no-edit", "b")
    ended = kept.cli("amend", "check")
    assert codes(ended) == ["not-rendered", "section-taken"]
    command = re.findall(r"^  (git mv .*?), then: weighbridge amend render$", ended.out, re.MULTILINE)[0]
    git(kept.folder, *command.split()[1:])
    assert kept.cli("amend", "render").code == 0
    assert kept.cli("amend", "check").code == 0
    assert "Version 0.2.0, 2 sections." in SPEC.read_text()
    assert [path.name[:4] for path in sorted(Path("spec/amendments").glob("0*.md"))] == ["0001", "0002"]
    kept.land(kept.draft("c"))
    next(Path("spec/amendments").glob("0002-*.md")).unlink()
    assert "section-gap" in codes(kept.cli("amend", "check"))


@pytest.mark.slow
def test_two_clones_that_both_appended_and_landed_are_merged_by_git(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    git(kept.folder, "init", "-q", "-b", "main")
    Path(".gitattributes").write_text("evidence/** -text\nspec/amendments/** -text\n")
    Path(".gitignore").write_text(".weighbridge/\n.lock\n")
    git(kept.folder, "add", "-A")
    git(kept.folder, "commit", "-qm", "evidence")
    other = tmp_path_factory.mktemp("clone") / "other"
    git(kept.folder, "clone", "-q", str(kept.folder), str(other))
    save_file({"w": np.arange(6, dtype=np.float16)}, "b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *BOUND, "--record").code == 1
    (failed,) = (
        path.name[-12:] for path in Path("evidence/bundles").glob("*-mine-*") if kept.imported not in path.name
    )
    assert kept.land(kept.draft("lost", bundle=failed)).code == 0
    git(kept.folder, "add", "-A")
    git(kept.folder, "commit", "-qm", "Record a FAIL, and land it")
    monkeypatch.chdir(other)
    assert "discharged: mine/GATE-IMPORT-001[b.safetensors+a.safetensors]" in kept.land(kept.draft("kept")).lines
    git(other, "add", "-A")
    git(other, "commit", "-qm", "Discharge it")
    git(other, "fetch", "-q", "origin")
    with pytest.raises(subprocess.CalledProcessError):
        git(other, "merge", "-q", "origin/main")
    assert git(other, "diff", "--name-only", "--diff-filter=U").split() == [str(SPEC)]
    assert re.search(r"GATE-IMPORT-001 +REGRESSED +DIVERGED", kept.cli("status").out)
    assert codes(kept.cli("amend", "check")) == ["not-rendered", "section-taken"]
    reason = "one clone recorded a FAIL while the other discharged it"
    assert kept.cli("ledger", "reconcile", "mine/GATE-IMPORT-001", "--reason", reason).code == 0
    for printed in re.findall(r"^  (git mv .*?), then:", kept.cli("amend", "check").out, re.MULTILINE):
        git(other, *printed.split()[1:])
    assert kept.cli("amend", "render").code == 0
    git(other, "add", "-A")
    git(other, "commit", "-qm", "Merge both clones")
    for check in (
        ("amend", "check"),
        ("ledger", "check", "--base", "origin/main"),
        ("ledger", "check", "--base", "HEAD^1"),
    ):
        assert (kept.cli(*check).code, check) == (0, check)
    assert re.search(r"GATE-IMPORT-001 +REGRESSED$", kept.cli("status").out, re.MULTILINE)
    assert SPEC.read_text().count("\n# §") == 2
    first = next(Path("spec/amendments").glob("0001-*.md"))
    first.with_name(f"0003{first.name[4:]}").write_bytes(first.read_bytes() + b" ")
    first.unlink()
    assert "not-added" in kept.cli("ledger", "check", "--base", "HEAD").out


@pytest.mark.slow
def test_a_loosened_contract_raises_the_major_version_and_prose_alone_the_patch(kept: Kept) -> None:
    kept.land(kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed))
    words = DRAFTS / "words.md"
    words.write_text("---\nid: A-20260101-words\ntitle: Words\nauthor: Ada\nkind: editorial\n---\n## Words\n\nMore.\n")
    assert kept.land(words).lines[0] == "landed: §2 Words, version 0.1.1"
    Path("contracts/time.yaml").write_text(TIME.replace("500", "900").replace("1.0.0", "2.0.0"))
    kept.cli("verify", "contracts/time.yaml", "--subject", "run=log.jsonl", "--record")
    (newer,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*step-time*") if kept.timed not in path.name)
    landed = kept.land(kept.draft("b", gate="GATE-GPUTRAIN-004", bundle=newer))
    assert landed.lines[0] == "landed: §3 Section b, version 1.0.0"


# --- What the source documents got wrong, refused ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("33 PARTIAL + 12 DISCHARGED = 45 gates.\n\nNow 15 + 33, unchanged.", "does-not-add",
         "is called unchanged; it was 33 + 12 = 45 and is 15 + 33 = 48"),
        ("The tally is 33 + 15 = 45.", "does-not-add", "'33 + 15 = 45': that is 48"),
        ("GPUTRAIN 7/7 discharged.", "tally-mismatch",
         "says 'GPUTRAIN 7/7 discharged'; the ledger has 0 of 1 DISCHARGED"),
        ("GPUTRAIN 1/1 DISCHARGED.", "tally-mismatch", "the ledger has 0 of 1 DISCHARGED"),
        ("GATE-GPUTRAIN-004 is DISCHARGED.", "status-mismatch",
         "GATE-GPUTRAIN-004 is PARTIAL_ALGORITHM_LEVEL, not DISCHARGED"),
        ("The median is 246.74 ms [ev:TIMED#/findings/0/measured].", "number-mismatch",
         "says 246.74, the evidence 264.74 [ev:TIMED#/findings/0/measured]"),
        ("The median is 264.74 s [ev:TIMED#/findings/0/measured].", "unit-mismatch",
         "264.74 has the unit s; it was measured in ms"),
        ("The median is 264.74 [ev:TIMED#/findings/0/measured].", "unit-mismatch", "264.74 has no unit"),
        ('A fresh start is at 17.21 "nats" for ln 151936.', "number-mismatch",
         "says 17.21, ln 151936 is 11.93 nats; 17.21 is the log2"),
        ("So ln(151936) = 17.21.", "number-mismatch", "ln 151936 is 11.93 nats"),
        ("So log2(151936) = 17.21 nats.", "unit-mismatch", "log2 151936 is in bits, not in nats"),
        ("A start at 17.21 nats [=ln 151936].", "number-mismatch", "17.21 is the log2"),
        ("It is 5 of 12 files [files:runs/*/metadata.json].", "count-mismatch",
         "says 12, runs/*/metadata.json matches 10 files"),
    ],
)  # fmt: skip
def test_a_claim_that_the_evidence_does_not_hold_is_named(kept: Kept, text: str, code: str, printed: str) -> None:
    for number in range(10):
        folder = Path("runs") / str(number)
        folder.mkdir(parents=True)
        (folder / "metadata.json").write_text("{}")
    draft = kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed)
    claim = text.replace("TIMED", kept.timed)
    draft.write_text(draft.read_text().replace("### Claim\n", f"### Claim\n\n{claim}\n"))
    for ended in (kept.check(claim), kept.land(draft)):
        assert ended.code == 1
        assert code in codes(ended)
        assert printed.replace("TIMED", kept.timed) in ended.out
    assert not list(Path("spec/amendments").glob("0*.md"))


@each(
    "text",
    [
        "The median is 264.74 ms [ev:TIMED#/findings/0/measured], GATE-GPUTRAIN-004 came to PASS [ev:TIMED].",
        "GATE-GPUTRAIN-004 moved from DRAFT to PARTIAL_ALGORITHM_LEVEL, and GATE-IMPORT-001 is not DISCHARGED.",
        "GPUTRAIN 0/1 discharged. The tally is 1 PARTIAL + 1 ACTIVE = 2, and 1 of 2 gates are PARTIAL.",
        "ln(151936) = 11.93 nats, 17.21 bits [=log2 151936], and 1.5 + 2.5 is no sum of gates.",
        "Three × 2 + 1 = 7, and 0.5 + 1 = 1.5.\n\nIt came to PASS [ev:TIMED#/findings/0/outcome].",
        "```\nGATE-GPUTRAIN-004 is DISCHARGED\n```\n\nIt is 1 + 1 = 2.",
        "<!-- weighbridge:quote -->\n> GATE-GPUTRAIN-004 is DISCHARGED, they said.\n\nIt is 1 + 1 = 2.",
    ],
)
def test_a_claim_that_holds_is_no_problem(kept: Kept, text: str) -> None:
    ended = kept.check(text.replace("TIMED", kept.timed))
    assert (codes(ended), ended.code) == ([], 0), ended.out


@each(
    "text, code",
    [
        ("`264.74` ms [ev:TIMED/#/findings/0].", "citation-form"),
        ("Fast [ev:TIMED#/findings/0/measured].", "citation-form"),
        ("`1` [ev:000000000000#/findings/0/counted].", "unknown-bundle"),
        ("`1` [ev:TIMED#/findings/9/counted].", "bad-pointer"),
        ("GATE-IMPORT-001 passed [ev:TIMED].", "evidence-irrelevant"),
        ("GATE-GPUTRAIN-004 came to FAIL [ev:TIMED].", "evidence-contradicts"),
        ("GATE-NOWHERE-001 is DISCHARGED.", "status-mismatch"),
        ("GATE-GPUTRAIN-004 was REGRESSED, is PARTIAL_ALGORITHM_LEVEL.", "status-mismatch"),
        ("| GATE-IMPORT-001 | DISCHARGED |", "status-mismatch"),
        ("11.93 nats [=ln zero].", "citation-form"),
        ("2 files [files:/etc/*].", "count-mismatch"),
        ("These are all of them [files:*.safetensors].", "count-mismatch"),
        ("<!-- weighbridge:tally begin heads=0 -->\n| DISCHARGED | 2 of 2 |\n<!-- weighbridge:tally end -->",
         "tally-mismatch"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_checked_is_no_claim_that_holds(kept: Kept, text: str, code: str) -> None:
    ended = kept.check(text.replace("TIMED", kept.timed))
    assert (codes(ended), ended.code) == ([code], 1), ended.out


@pytest.mark.slow
def test_a_criterion_stands_where_the_lowest_gate_that_binds_it_stands(kept: Kept) -> None:
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors", "--subject", "run=log.jsonl")
    for name, text, binds in (("mine", IMPORT, "[AC-1, AC-2, GATE-GPUTRAIN-004]"), ("time", TIME, "[AC-2]")):
        bound_text = text.replace("1.0.0", "1.1.0").replace("    severity:", f"    binds: {binds}\n    severity:")
        Path(f"contracts/{name}.yaml").write_text(bound_text)
    assert kept.cli("verify", *bound, "--record").code == 0
    assert codes(kept.check("AC-1 is ACTIVE_WITH_LIVE_EVIDENCE, AC-2 is PARTIAL_ALGORITHM_LEVEL.")) == []
    ended = kept.check("AC-2 is ACTIVE_WITH_LIVE_EVIDENCE. Now AC-1 counts as DISCHARGED.")
    assert codes(ended) == ["status-mismatch", "status-mismatch"]
    assert "AC-2 is PARTIAL_ALGORITHM_LEVEL, not ACTIVE_WITH_LIVE_EVIDENCE" in ended.out
    assert codes(kept.check("AC-3 is DISCHARGED.")) == ["status-mismatch"]
    assert codes(kept.check("AC-1 and GATE-GPUTRAIN-004 are ACTIVE_WITH_LIVE_EVIDENCE.")) == ["status-mismatch"]
    (newer,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*mine*") if kept.imported not in path.name)
    draft = kept.draft(bundle=newer)
    draft.write_text(draft.read_text().replace("### Claim\n", "### Claim\n\nWith this AC-1 is DISCHARGED.\n"))
    assert kept.land(draft).code == 0
    assert kept.cli("amend", "check").code == 0


def test_a_criterion_that_a_gate_outside_the_ledger_binds_stands_nowhere(kept: Kept) -> None:
    more = IMPORT.partition("gates:\n")[2].replace("GATE-IMPORT-001", "GATE-IMPORT-002")
    text = f"{IMPORT.rstrip()}\n{more}".replace("1.0.0", "1.1.0").replace(
        "    severity:", "    binds: [AC-1]\n    severity:"
    )
    Path("contracts/mine.yaml").write_text(text)
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *bound, "--gate", "GATE-IMPORT-001", "--record").code == 0
    assert codes(kept.check("AC-1 is ACTIVE_WITH_LIVE_EVIDENCE.")) == ["status-mismatch"]
    assert kept.cli("verify", "contracts/mine.yaml", *bound, "--record").code == 0
    assert codes(kept.check("AC-1 is ACTIVE_WITH_LIVE_EVIDENCE.")) == []


def test_a_text_without_a_claim_has_not_been_shown_to_hold(kept: Kept) -> None:
    ended = kept.check("# Notes\n\nAll is well.\n")
    assert (ended.code, ended.lines) == (5, ["looked at: nothing; wrong: 0, warnings: 0"])


def test_a_false_claim_in_a_draft_refuses_its_landing_and_writes_nothing(kept: Kept) -> None:
    draft = kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed)
    draft.write_text(draft.read_text().replace("`264.74`", "`246.74`") + "\nAll GPUTRAIN 7/7 discharged.\n")
    files = sorted(Path().rglob("*"))
    ended = kept.land(draft)
    assert (ended.code, codes(ended)) == (1, ["number-mismatch", "tally-mismatch"])
    assert ended.err == "refused: 2 problems, nothing was written\n"
    assert [path for path in sorted(Path().rglob("*")) if path not in files] == [Path("spec/amendments/.lock")]


def test_evidence_of_a_dirty_tool_is_not_landed(kept: Kept, tool: Callable[..., None]) -> None:
    tool(dirty=True)
    kept.cli("verify", "contracts/time.yaml", "--subject", "run=log.jsonl", "--evidence", "evidence")
    (dirty,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*step-time*") if kept.timed not in path.name)
    ended = kept.land(kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=dirty))
    assert (ended.code, set(codes(ended))) == (1, {"dirty-tool"})
    assert codes(kept.check(f"GATE-GPUTRAIN-004 came to PASS [ev:{dirty}].")) == ["dirty-tool"]


def test_evidence_that_git_ignores_is_not_landed(kept: Kept) -> None:
    Path(".weighbridge").mkdir(exist_ok=True)
    Path("evidence/bundles").rename(".weighbridge/bundles")
    ended = kept.land(kept.draft())
    assert (ended.code, codes(ended)) == (1, ["no-bundle", "no-bundle", "evidence-not-kept"])


def test_a_logarithm_of_a_word_cannot_be_checked_and_says_so(kept: Kept) -> None:
    ended = kept.check("So ln(vocab) = 17.21, with a vocabulary of 151,936.")
    assert (ended.code, codes(ended)) == (5, ["uncited"])
    assert "ln(vocab) = 17.21 names no number, so it cannot be checked\n  write ln(151936) = 11.93" in ended.out


def test_a_number_with_a_unit_in_a_hypothesis_is_a_warning(kept: Kept) -> None:
    rows = "| H1 | it takes 12 min | OPEN | |", "| H1 | median | < 100 ms | > 250 ms |"
    ended = asked(kept, "a", *rows)
    assert (ended.code, codes(ended)) == (0, ["uncited"])
    assert ": warning: uncited '12' neither cited nor a figure" in ended.out


def test_a_place_that_is_left_to_the_author_is_filled_before_landing(kept: Kept) -> None:
    draft = kept.draft()
    draft.write_text(draft.read_text().replace("### Claim\n", "### Claim\n\n<!-- author: why -->\n"))
    draft.write_text(draft.read_text() + "\n<!-- author: and what next -->\n")
    ended, lines = kept.land(draft), draft.read_text().splitlines()
    at = [index for index, line in enumerate(lines, 1) if line.startswith("<!-- author")]
    printed = [line.split(":")[1] for line in ended.lines if ": unfilled " in line]
    assert (len(at), printed) == (2, [*map(str, at)])


# --- What was drafted, and was changed since --------------------------------------------------------------------------


def replaced(before: str, after: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, times = re.subn(before, after, text, count=1, flags=re.MULTILINE | re.DOTALL)
        assert times == 1, before
        return changed

    return change


ROW = r"(^\| `GATE-IMPORT-001` \|.*?$)"
FORGED: dict[str, Callable[[str], str]] = {  # each a line that no citation holds, or one that stands elsewhere
    "how many trials were caught": replaced(r"\d+ of \d+ caught", "99 of 99 caught"),
    "of another gate's trials": replaced(r"(\d+ of \d+ caught)(.*?)(\d+ of \d+ caught)", r"\3\2\1"),
    "in other digits": replaced(r"(\d) caught", r"１\1 caught"),
    "a name in look-alikes": replaced(r"\| `GATE-IMPORT-001` \|", "| `GATE-IMP\u041eRT-001` |"),
    "the digest of a subject": replaced(r"(sha256 `)\w{4}", r"\g<1>0000"),
    "of the other subject": replaced(r"(  - `a.safe[^\n]*)(.*?)(  - `log[^\n]*)", r"\3\2\1"),
    "the host": replaced(r"^- host: `", "- host: `other-"),
    "when it finished": replaced(r"finished \d{4}", "finished 2020"),
    "the tool": replaced(r"by weighbridge 0", "by weighbridge 1"),
    "the command": replaced(r"^(weighbridge verify.*?)$", r"\1 --strict"),
    "the contract's version": replaced(r"^Of contract `mine` [\d.]+", "Of contract `mine` 9.9.9"),
    "the contract's digest": replaced(r"(contract digest `)\w{4}", r"\g<1>0000"),
    "why a gate is there": replaced(r"^- `GATE-IMPORT-001`\. [^\n]*", "- `GATE-IMPORT-001`. It is good."),
    "a severity": replaced(r"\| required \|", "| advisory |"),
    "how many had nothing to break": replaced(r"Tried against \d+", "Tried against 1"),
    "that a subject is no live one": replaced(r"^- Live evidence: [^\n]*\n", ""),
    "a line of one's own": replaced(r"^### Evidence\n", "### Evidence\n\n- measured on ten hosts\n"),
    "one below all": lambda text: f"{text}\nMeasured on ten hosts.\n",
    "one below the heading": replaced(r"^### Device\n", "### Device\nof ten hosts\n"),
    "one that is quoted": replaced(r"^### Device\n", "### Device\n\n<!-- weighbridge:quote -->\n> of ten hosts\n"),
    "a row twice": replaced(ROW, r"\1\n\1"),
    "a row in a comment": replaced(ROW, r"<!--\n\1\n-->"),
    "a row in a fence": replaced(ROW, r"```\n\1\n```"),
    "a row elsewhere": replaced(rf"(### Why.*?){ROW}", r"### Notes\n\n\2\n\n\1"),
    "a part in a comment": replaced(r"(^### Device\n.*?)(^### Impact)", r"<!--\n\1\n-->\n\2"),
    "parts in a comment from prose to prose": replaced(r"(^### Why.*?)(^### Hypo)", r"<!--\n\1\n-->\n\2"),
    "a part that is gone": replaced(r"^### Device\n.*?(?=^### Impact)", ""),
    "a heading that is gone": replaced(r"^### Device\n", ""),
    "a part elsewhere": replaced(r"(^### Device\n.*?)(^### Impact.*?)(?=^### Hypo)", r"\2\1"),
    "a part twice": replaced(r"^### Device\n", "#### Figures\n\n- measured on ten hosts\n\n### Device\n"),
    "a part in the tally": replaced(
        r"(^### Device\n.*?)(^### Impact)", r"<!-- weighbridge:tally begin\n\1<!-- weighbridge:tally end -->\n\2"
    ),
}
LEFT: dict[str, Callable[[str], str]] = {
    "nothing": str,
    "spaces at the ends": replaced(ROW, r"\1  "),
    "blank lines": lambda text: text.replace("\n- ", "\n\n- "),
    "a comment": replaced(r"^### Device\n", "### Device\n\n<!-- `seen` -->\n"),
    "a part of the author's": replaced(r"^### Device\n", "### Notes\n\nIt was worth it.\n\n### Device\n"),
}


def test_every_line_that_follows_from_the_bundles_is_drafted_again_and_held(kept: Kept) -> None:
    path = kept.draft("both", "--bundle", kept.timed, "--gate", "GATE-GPUTRAIN-004")
    text = path.read_text()
    found: dict[str, list[str]] = {}
    for name, change in (FORGED | LEFT).items():
        path.write_text(change(text))
        found[name] = codes(kept.cli("amend", "check", path))
    assert {name for name in FORGED if "draft-mismatch" not in found[name]} == set()
    assert {name: found[name] for name in LEFT if found[name]} == {}
    body = text.partition("\n---\n")
    path.write_bytes("".join((*body[:2], body[2].replace("\n", "\r\n"))).encode())
    assert codes(kept.cli("amend", "check", path)) == []


def test_a_forged_line_is_named_with_what_the_bundles_give_and_refuses_its_landing(kept: Kept) -> None:
    path = kept.draft()
    text = path.read_text()
    (caught,) = re.findall(r"\d+ of \d+ caught", text)
    path.write_text(text.replace(caught, "99 of 99 caught").replace("- Proof of honest", "- All proof of honest"))
    line, last = (1 + text[: text.index(at)].count("\n") for at in (caught, "- Proof of honest"))
    said = f"{path}:{line}:1: draft-mismatch says '99 of 99 caught |', the bundles give '{caught} |'"
    ended = kept.land(path)
    assert (ended.code, codes(ended)) == (1, ["draft-mismatch"] * 2)
    assert ended.lines[:2] == [said, "  draft again, or write it under Claim"]
    assert ended.lines[2].startswith(f"{path}:{last}:1: draft-mismatch says 'All proof of honest measuring.', ")
    assert not list(Path("spec/amendments").glob("0*.md"))


def landed_by_hand(section: Path, change: Callable[[str], str]) -> None:
    """Change a landed section, and give it the name of what it holds now."""
    text = change(section.read_text())
    section.unlink()
    section.with_name(f"0001-section-a-{sha256(text.encode()).hexdigest()[:12]}.md").write_text(text)


def test_a_landed_section_holds_what_was_drafted_whatever_is_recorded_later(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = Path(kept.land(kept.draft()).lines[1])
    save_file({"w": np.arange(6, dtype=np.float16)}, "b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *BOUND, "--record").code == 1
    newer = {name: replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    for module in ("evidence.review", "ledger.overview", "judging.requests", "judging.judging"):
        monkeypatch.setattr(f"weighbridge.{module}.KINDS", newer)
    checked = kept.cli("amend", "check")
    assert (checked.code, set(codes(checked))) == (0, {"not-rederivable"})
    landed_by_hand(section, replaced(r"\| ACTIVE_WITH_LIVE_EVIDENCE \| DISCHARGED", "| DRAFT | DISCHARGED"))
    checked = kept.cli("amend", "check")
    assert (checked.code, "draft-mismatch" in codes(checked)) == (1, True)
    assert "says 'DRAFT | DISCHARGED |', the bundles give 'ACTIVE_WITH_LIVE_EVIDENCE | DISCHARGED |'" in checked.out


def test_figures_without_the_evidence_that_they_came_from_are_the_authors_own(kept: Kept) -> None:
    path = kept.draft(gate="GATE-GPUTRAIN-004", bundle=kept.timed)
    text = re.sub(
        r"^premises:.*?^supersedes", "premises: []\nsupersedes", path.read_text(), flags=re.MULTILINE | re.DOTALL
    )
    bare = re.sub(r"^(gates|evidence): .*", r"\1: []", text, flags=re.MULTILINE)
    path.write_text(bare)
    ended = kept.land(path)
    assert (ended.code, "front-matter is of the kind record" in ended.out) == (1, True)
    path.write_text(bare.replace('"record"', '"editorial"'))
    ended = kept.land(path)
    assert (ended.code, set(codes(ended))) == (1, {"uncited"})


# --- What may go wrong on the way -------------------------------------------------------------------------------------


WRAPS = """weighbridge: contract/v0
id: wraps
version: 1.0.0
title: Wraps are meant
owner: trainers
subjects:
  run: {kind: run}
gates:
  - id: GATE-WRAP
    title: Every wrap is logged once
    kind: corpus-wrap-around
    subjects: {run: run}
"""


@pytest.mark.slow
def test_a_figure_in_a_unit_of_its_kind_is_drafted_as_it_is_stored(kept: Kept) -> None:
    Path("wraps.yaml").write_text(WRAPS)
    run = data_path("verifiers") / "specimens" / "runs" / "wrapped"
    assert kept.cli("verify", "wraps.yaml", "--subject", f"run={run}", "--record").code == 0
    (bundle,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*-wraps-*"))
    draft = kept.draft("wraps", gate="GATE-WRAP", bundle=bundle)
    assert re.search(rf" \| `\d+` \[ev:{bundle}#/findings/0/measured\] wraps \| ", draft.read_text())
    assert codes(kept.cli("amend", "check", draft)) == ["premise-stale"]  # the contract is not in contracts/
    for unit in ("", "laps", "wrapsody", "ms"):
        ended = kept.check(f"It wraps `2` [ev:{bundle}#/findings/0/measured] {unit}.")
        assert "unit-mismatch" in codes(ended), unit


@pytest.mark.slow
def test_what_was_discharged_under_another_contract_is_live_again_and_needs_a_new_section(kept: Kept) -> None:
    kept.land(kept.draft())
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    kept.cli("verify", "contracts/mine.yaml", *bound, "--record")
    assert "DISCHARGED" in kept.cli("status", "--contract", "mine").lines[0]
    Path("contracts/mine.yaml").write_text(IMPORT.replace("lossless", "same").replace("1.0.0", "1.1.0"))
    assert "DISCHARGED    STALE: judge part changed: with" in kept.cli("status", "--contract", "mine").lines[0]
    ended = kept.cli("verify", "contracts/mine.yaml", *bound, "--record")
    assert "moved: DISCHARGED -> live: GATE-IMPORT-001" in ended.lines
    (newer,) = {path.name[-12:] for path in Path("evidence/bundles").glob("*-mine-*") if '"same"' in
                (path / "contract.json").read_text()}  # fmt: skip
    assert (
        kept.land(kept.draft("b", bundle=newer)).lines[-1]
        == "discharged: mine/GATE-IMPORT-001[b.safetensors+a.safetensors]"
    )
    assert kept.cli("status", "--contract", "mine").lines[0].endswith("DISCHARGED")
    assert (kept.cli("amend", "check").code, kept.cli("ledger", "check").code) == (0, 0)


@pytest.mark.slow
def test_a_discharged_gate_of_a_greatest_age_is_renewed_and_still_rests_on_its_section(kept: Kept) -> None:
    Path("contracts/mine.yaml").write_text(f"{IMPORT}    max_age: 30d\n".replace("1.0.0", "1.1.0"))
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    kept.cli("verify", "contracts/mine.yaml", *bound, "--record")
    (bundle,) = {path.name[-12:] for path in Path("evidence/bundles").glob("*-mine-*")} - {kept.imported}
    landed = kept.land(kept.draft(bundle=bundle))
    assert landed.lines[-1] == "discharged: mine/GATE-IMPORT-001[b.safetensors+a.safetensors]"
    kept.cli("verify", "contracts/mine.yaml", *bound, "--record")
    assert "DISCHARGED -> DISCHARGED  (renew)" in kept.cli("status", "why", "GATE-IMPORT-001").out
    assert (kept.cli("amend", "check").code, kept.cli("ledger", "check").code) == (0, 0)
    refuted = kept.draft("b", "--refutes", section_of(Path(landed.lines[1])).about.id, bundle=bundle)
    assert kept.land(refuted).code == 0
    assert codes(kept.cli("amend", "check")) == ["rests-on-refuted"]
    Path(landed.lines[1]).unlink()
    assert "UNVERIFIED    (no-amendment" in kept.cli("status", "--contract", "mine").lines[0]


@pytest.mark.slow
def test_a_new_version_of_a_kind_breaks_no_landed_section_and_lands_no_new_one(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = kept.land(kept.draft())
    draft = kept.draft("b")
    newer = {name: replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    for module in ("evidence.review", "ledger.overview", "judging.requests", "judging.judging"):
        monkeypatch.setattr(f"weighbridge.{module}.KINDS", newer)
    checked = kept.cli("amend", "check")
    assert (checked.code, set(codes(checked))) == (0, {"not-rederivable"})
    assert "STALE: kind changed" in kept.cli("status", "--contract", "mine").lines[0]
    assert "not-rederivable" in codes(kept.land(draft))
    section = Path(landed.lines[1])
    landed_by_hand(section, replaced(r"`1`( \[ev:\w+#/findings/0/counted\])", r"`2`\1"))
    assert "number-mismatch" in codes(kept.cli("amend", "check"))  # figures are held all the same


def test_a_landed_section_is_checked_as_of_its_landing_whatever_was_recorded_since(kept: Kept) -> None:
    kept.land(kept.draft())
    save_file({"w": np.arange(6, dtype=np.float16)}, "b.safetensors")
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *bound, "--record").code == 1
    assert "REGRESSED" in kept.cli("status").out
    assert kept.cli("amend", "check").code == 0
    assert codes(kept.check("GATE-IMPORT-001 is DISCHARGED.")) == ["status-mismatch"]
    assert codes(kept.check("GATE-IMPORT-001 was DISCHARGED, is REGRESSED.")) == []


def test_a_section_written_by_hand_discharges_nothing_that_it_did_not_earn(kept: Kept) -> None:
    kept.land(kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed))
    (path,) = Path("spec/amendments").glob("0001-*.md")
    text = path.read_text().replace('"discharges": []', '"discharges": ["step-time/GATE-GPUTRAIN-004[default]"]')
    path.unlink()
    forged = path.with_name(f"0001-section-a-{sha256(text.encode()).hexdigest()[:12]}.md")
    forged.write_text(text)
    checked = (kept.cli("amend", "check"), kept.land(forged), kept.cli("amend", "check", forged))
    for ended in (*checked, kept.cli("ledger", "check")):  # a discharge goes by what a section says of itself
        assert ended.code == 1
        assert "unearned says that it discharged step-time/GATE-GPUTRAIN-004[default]" in ended.out
    elsewhere = Path(forged.name)
    forged.rename(elsewhere)
    assert codes(kept.land(elsewhere)) == ["not-landed"]
    assert "DISCHARGED" not in kept.cli("status").out


def test_no_text_holds_and_nothing_lands_beside_a_discharge_that_no_section_says(kept: Kept) -> None:
    section = section_of(Path(kept.land(kept.draft("a", gate="GATE-GPUTRAIN-004", bundle=kept.timed)).lines[1]))
    draft = kept.draft("b")
    (live,) = Path("evidence/ledger/mine").rglob("000002-*.json")
    body = loads(live.read_bytes())
    said = {"step": "discharge", "before": body["after"], "after": "DISCHARGED", "cause": section.digest}
    forged = typed(live, **said, kind_version=0, reason="section 1")
    assert "UNVERIFIED    (unearned the amendment" in kept.cli("status", "--contract", "mine").lines[0]
    checked = (kept.cli("amend", "check"), kept.check("GATE-IMPORT-001 is DISCHARGED."), kept.land(draft))
    for ended in (kept.cli("ledger", "check"), *checked):
        assert (ended.code, f"the amendment {section.digest[:12]} does not discharge mine/" in ended.out) == (1, True)
    assert draft.exists()
    forged.unlink()
    assert kept.check("It passed `PASS` [ev:" + kept.imported + "#/findings/0/outcome].").code == 0
    assert kept.land(draft).code == 0


def test_a_draft_is_checked_as_it_would_land(kept: Kept) -> None:
    draft = kept.draft()
    ended = kept.cli("amend", "check", draft)
    assert (ended.code, draft.exists(), codes(ended)) == (0, True, [])
    draft.write_text(draft.read_text().replace("| DISCHARGED |", "| REGRESSED |"))
    assert codes(kept.cli("amend", "check", draft)) == ["status-mismatch"]
    report = json.loads(kept.cli("amend", "check", draft, "--json").out)
    assert [problem["code"] for problem in report["problems"]] == ["status-mismatch"]


def test_a_stray_file_among_the_landed_sections_is_named(kept: Kept) -> None:
    kept.land(kept.draft())
    Path("spec/amendments/0002-mine.md").write_text("## Mine\n")
    ended = kept.cli("amend", "check")
    assert (ended.code, "0002-mine.md: front-matter" in ended.err) == (1, True)


def test_every_byte_of_a_landed_section_counts(kept: Kept) -> None:
    kept.land(kept.draft())
    (path,) = Path("spec/amendments").glob("0001-*.md")
    data = path.read_bytes()
    for at in range(0, len(data), 23):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(AmendmentError, match="altered"):
            section_of(path)


@pytest.mark.slow
def test_two_who_land_at_once_get_two_numbers(kept: Kept) -> None:
    drafts = [kept.draft(name, gate="GATE-GPUTRAIN-004", bundle=kept.timed) for name in "abc"]
    ledger, now = Ledger(Path("evidence/ledger")), datetime.now(UTC)
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda draft: land(Here(spec=Path("spec"), ledger=ledger, now=now), draft), drafts))
    assert sorted(section.number for section, _ in ended if section) == [1, 2, 3]
    assert kept.cli("amend", "check").code == 0


@pytest.mark.slow
def test_a_disk_that_refuses_leaves_a_landing_undone_or_one_that_can_be_finished(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, here = kept.draft(), Here(spec=Path("spec"), ledger=Ledger(Path("evidence/ledger")), now=datetime.now(UTC))
    for name in ("spec", "evidence"):
        shutil.copytree(name, f"before/{name}")
    effects = 0
    for at in itertools.count(1):
        counter = [0]
        with monkeypatch.context() as patch:
            for name in ("write", "fsync", "link", "replace"):
                patch.setattr(os, name, failing(at, errno.ENOSPC, counter, getattr(os, name)))
            with contextlib.suppress(BundleError, AmendmentError):
                land(here, draft)
        effects += 1
        assert not list(Path("spec").glob(".tmp-*"))
        left = sorted(Path("spec/amendments").glob("0*.md"))
        section, problems = land(here, left[0] if left else draft)
        assert (section is not None, problems) == (True, ())
        draft.unlink(missing_ok=True)
        assert kept.cli("amend", "check").code == 0
        if counter[0] < at:
            break
        for name in ("spec", "evidence"):
            shutil.rmtree(name)
            shutil.copytree(f"before/{name}", name)
    assert effects > 10


# --- Premises ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_premise_is_looked_at_again_and_a_stale_one_says_what_was_found(kept: Kept) -> None:
    git(kept.folder, "init", "-q", "-b", "main")
    git(kept.folder, "commit", "-qm", "first", "--allow-empty")
    head = git(kept.folder, "rev-parse", "HEAD").strip()
    Path("config.json").write_text("{}\n")
    words = "two words; no shell $HOME"
    digests = {name: sha256(text.encode()).hexdigest() for name, text in (("file", "{}\n"), ("command", words))}
    holds = (
        f'{{kind: file, id: config.json, expect: "{digests["file"]}"}}',
        f'{{kind: commit, id: "{head}", expect: in history}}',
    )
    command = f'{{kind: command, argv: ["printf", "%s", "{words}"], expect: "{digests["command"]}"}}'

    def with_premises(*premises: str) -> Path:
        draft = kept.draft()
        listed = "".join(f"- {one}\n" for one in premises)
        draft.write_text(draft.read_text().replace("premises:\n", f"premises:\n{listed}"))
        return draft

    draft = with_premises(*holds, command)
    ended = kept.land(draft)
    assert codes(ended) == ["premise-not-run"]
    assert kept.land(draft, "--run-commands").code == 0
    Path("contracts/mine.yaml").write_text(IMPORT.replace("policy: lossless", "policy: same"))
    Path("config.json").write_text("[]\n")
    draft = with_premises(
        *holds,
        f'{{kind: commit, id: "{"0" * 40}", expect: in history}}',
        '{kind: command, argv: ["false"], expect: ""}',
    )
    ended = kept.land(draft, "--run-commands")
    printed = [line.partition("premise-stale ")[2] for line in ended.lines if "premise-stale" in line]
    assert [line.split(":")[0] for line in printed] == [
        "file config.json", f"commit {'0' * 40}", "command false", "contract mine",
    ]  # fmt: skip
    assert f"expected {digests['file']}, found {sha256(b'[]' + bytes([10])).hexdigest()}" in printed[0]
    assert printed[1].endswith("expected in history, found not in the history of HEAD")
    assert printed[2].endswith("expected nothing, found exit 1")


def test_a_command_that_does_not_end_is_stopped(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.spec.amendments.SECONDS", 0.2)
    for name, argv, found in (("a", '["sleep", "60"]', "nothing within"), ("b", '["no-such"]', "does not start")):
        draft = kept.draft(name)
        premise = f"premises:\n- {{kind: command, argv: {argv}, expect: x}}\n"
        draft.write_text(draft.read_text().replace("premises:\n", premise))
        ended = kept.land(draft, "--run-commands")
        assert (ended.code, codes(ended)) == (1, ["premise-stale"])
        assert found in ended.out


@pytest.mark.parametrize(
    ("before", "after", "printed"),
    [
        ("---\nweighbridge", "weighbridge", "front-matter does not begin with front matter"),
        ('kind: "record"', 'kind: "claim"', "'claim' is not one of record, correction, editorial"),
        ('author: "Ada"', "author: ''", "front-matter names no author"),
        ('kind: "record"', 'kind: "editorial"', "front-matter is of the kind editorial"),
        ('kind: "record"', 'kind: "correction"', "front-matter is of the kind correction"),
        ("depends_on: []", "depends_on: [A-20260101-x]", "not-landed A-20260101-x has not landed"),
        ("depends_on: []", "depends_on: []\nstatus: DISCHARGED", "unknown key 'status'"),
        ("supersedes: []", "supersedes: []\nlanded: {}", "missing key"),
    ],
)
def test_front_matter_that_says_what_cannot_be_is_refused(kept: Kept, before: str, after: str, printed: str) -> None:
    draft = kept.draft()
    assert before in draft.read_text()
    draft.write_text(draft.read_text().replace(before, after, 1))
    ended = kept.land(draft)
    assert ended.code == 1
    assert printed in ended.out + ended.err


# --- Hypotheses -------------------------------------------------------------------------------------------------------


HYPOTHESES = "| id | hypothesis | state | evidence |\n|---|---|---|---|\n"
MEDIAN = "`264.74` ms [ev:{}#/findings/0/measured]"
NEXT = "\n| decides | measure | confirmed by | refuted by |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("rows", "experiment", "wrong"),
    [
        ("| H1 | bias | CONFIRMED | `264.74` ms [ev:TIMED#/findings/0/measured] |", "", []),
        ("| H1 | bias | OPEN | |", "| H1 | median at batch 1 | < 100 ms | > 250 ms |", []),
        ("| H1 | bias | OPEN | |", "", ["no experiment says which values would confirm and which refute it"]),
        ("| H1 | bias | OPEN | |", "| H1 | median | fast | fast |", ["H1 is OPEN, and no experiment"]),
        ("| H1 | bias | OPEN | |", "| H2 | median | < 1 s | > 1 s |", ["H1 is OPEN, and no experiment"]),
        ("| H1 | bias | REFUTED | surely |", "", ["H1 is REFUTED without evidence"]),
        ("| H1 | bias | likely | |", "", ["H1 is likely"]),
    ],
)
def test_a_decided_hypothesis_has_evidence_and_an_open_one_values_that_would_decide_it(
    kept: Kept, rows: str, experiment: str, wrong: list[str]
) -> None:
    ended = kept.check(f"{HYPOTHESES}{rows}\n{NEXT}{experiment}\n".replace("TIMED", kept.timed))
    assert (ended.code, codes(ended)) == (bool(wrong), ["hypothesis"] * len(wrong))
    assert all(one in ended.out for one in wrong)


def asked(kept: Kept, name: str, rows: str, experiment: str = "", *more: object, bundle: str = "") -> Ended:
    """Land a section with hypotheses about the import."""
    draft = kept.draft(name, *more, bundle=bundle)
    text = draft.read_text()
    text = text.replace(f"{HYPOTHESES}", f"{HYPOTHESES}{rows}\n").replace(f"{NEXT[1:]}", f"{NEXT[1:]}{experiment}\n")
    draft.write_text(text)
    return kept.land(draft)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("| H1 | The earth is flat | CONFIRMED | [ev:{}] |", "hypothesis"),
        ("| H1 | It is in 99 of 99 models | CONFIRMED | `1` [ev:{}#/findings/0/counted] |", "uncited"),
    ],
)
def test_a_draft_decides_a_hypothesis_by_a_figure_and_its_counts_are_held(kept: Kept, row: str, code: str) -> None:
    refused = asked(kept, "a", row.format(kept.imported))
    assert (refused.code, codes(refused)) == (1, [code]), refused.out


def test_a_section_has_its_claim(kept: Kept) -> None:
    draft = kept.draft()
    draft.write_text(draft.read_text().replace("### Claim", "### My notes"))
    refused = kept.land(draft)
    assert (refused.code, codes(refused)) == (1, ["unfilled"])
    assert "has no heading ### Claim" in refused.out


@pytest.mark.slow
def test_an_open_hypothesis_is_decided_by_what_was_measured_after_and_by_the_value_that_was_named(kept: Kept) -> None:
    counted = "[ev:{}#/findings/0/counted]"
    opened = asked(kept, "a", "| H1 | all is kept | OPEN | |", "| H1 | tensors | ≥ 1 tensors | < 1 |")
    assert opened.code == 0
    early = asked(kept, "b", f"| H1 | all is kept | CONFIRMED | `1` {counted.format(kept.imported)} |")
    assert (early.code, codes(early)) == (1, ["hypothesis"])
    assert "H1 is CONFIRMED by nothing that was measured after §1 said what would decide it" in early.out
    bound = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert kept.cli("verify", "contracts/mine.yaml", *bound, "--evidence", "evidence").code == 0
    (later,) = (path.name[-12:] for path in Path("evidence/bundles").glob("*mine*") if kept.imported not in path.name)
    figure = f"`1` {counted.format(later)}"
    for row, printed in (
        (f"| H1 | all is kept | REFUTED | {figure} |", "H1 is REFUTED by 1; the experiment said < 1"),
        (f"| H1 | some is kept | CONFIRMED | {figure} |", "H1 is another hypothesis in §1: all is kept"),
    ):
        Path(DRAFTS / "b.md").unlink(missing_ok=True)
        refused = asked(kept, "b", row, bundle=later)
        assert (refused.code, codes(refused)) == (1, ["hypothesis"]), refused.out
        assert printed in refused.out
    Path(DRAFTS / "b.md").unlink()
    assert asked(kept, "b", f"| H1 | all is kept | CONFIRMED | {figure} |", bundle=later).code == 0
    turned = asked(kept, "c", f"| H1 | all is kept | OPEN | {figure} |", "| H1 | tensors | > 2 | < 2 |", bundle=later)
    (second,) = (path.read_text() for path in Path("spec/amendments").glob("0002-*"))
    (id_,) = re.findall(r'^id: "(.*)"', second, re.MULTILINE)
    assert f"H1 is OPEN; §2 says that it is CONFIRMED, and is not refuted\n  name it under refutes: {id_}" in turned.out
    Path(DRAFTS / "c.md").unlink()
    again = asked(kept, "c", "| H1 | all is kept | OPEN | |", "| H1 | tensors | > 2 | < 2 |", "--refutes", id_)
    assert (again.code, codes(again)) == (0, [])
    assert kept.cli("amend", "check").lines[-1].endswith("wrong: 0, warnings: 0")
