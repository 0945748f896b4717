"""What a lane accepts: of the files that are looked at here, of a ledger that stands, and of all that can be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli
from tests.lanes.test_lanes import commit, edit
from tests.ledgers import git

from weighbridge.evidence.statement import Tool

__all__ = ["cli"]

CONTRACT = """weighbridge: contract/v0
id: imp
version: 1.0.0
title: An import keeps what it was
owner: me
subjects:
  source: {kind: checkpoint}
  import: {kind: checkpoint}
gates:
  - id: GATE-A
    title: Every dtype is kept
    kind: dtype-preservation
    subjects: {source: source, candidate: import}
    with: {policy: lossless}
  - id: GATE-B
    title: The file is whole
    kind: checkpoint-integrity
    subjects: {candidate: import}
"""
LANES = """
[lanes.pr]
decides = ["GATE-B"]

[lanes.pr.accepts]
nightly = {max_age = "36h"}

[lanes.nightly]
decides = ["GATE-A"]
"""


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with one contract, two lanes, a source, an import that is right and one that is not."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    for name, text in {
        "contracts/imp.yaml": CONTRACT,
        "weighbridge.toml": LANES,
        ".gitignore": "*.safetensors\n",
    }.items():
        (workplace / name).parent.mkdir(exist_ok=True)
        (workplace / name).write_text(text)
    values = np.arange(1, 97, dtype=np.float32) / 7
    save_file({"w": values}, workplace / "src.safetensors")
    save_file({"w": values}, workplace / "good.safetensors")
    save_file({"w": values.astype(np.float16)}, workplace / "bad.safetensors")
    git(workplace, "init", "-q")
    commit(workplace)
    return workplace


def bound(candidate: str, source: str = "src") -> tuple[str, ...]:
    return "--subject", f"source={source}.safetensors", "--subject", f"import={candidate}.safetensors"


def nightly(cli: Cli, candidate: str) -> int:
    return cli("verify", "--lane", "nightly", "--record", *bound(candidate)).code


def pull(cli: Cli, candidate: str, *more: str) -> tuple[int, str]:
    ended = cli("verify", "--lane", "pr", *bound(candidate), *more)
    return ended.code, ended.out


def bundle(project: Path, outcome: str) -> Path:
    """Return the one bundle in which GATE-A came to an outcome."""
    (found,) = (
        path.parent
        for path in project.glob("evidence/bundles/*/verdicts.json")
        if any(
            one["outcome"] == outcome and one["gate"] == "GATE-A" for one in json.loads(path.read_text())["findings"]
        )
    )
    return found


# --- The files that it is of ------------------------------------------------------------------------------------------


def test_a_pass_of_another_file_does_not_count_for_the_file_that_is_bound(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    assert pull(cli, "good")[0] == 0
    code, printed = pull(cli, "bad")
    assert (code, "GATE-A  Every dtype is kept" in printed, "(lane-other-subject)" in printed) == (3, True, True)
    shutil.copy(project / "good.safetensors", project / "copy.safetensors")  # the same file under another name
    assert pull(cli, "copy")[0] == 0


def test_a_pass_against_another_source_does_not_count(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    save_file({"w": np.ones(96, dtype=np.float32)}, project / "other.safetensors")
    ended = cli("verify", "--lane", "pr", *bound("good", "other"))
    assert (ended.code, "(lane-other-subject)" in ended.out) == (3, True)


def test_a_pass_of_an_older_file_under_the_same_name_does_not_count(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    shutil.copy(project / "bad.safetensors", project / "good.safetensors")
    code, printed = pull(cli, "good")
    assert (code, "(lane-other-subject)" in printed) == (3, True)


def test_a_file_that_cannot_be_read_here_is_blocked(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    (project / "torn.safetensors").write_bytes(b"")
    code, printed = pull(cli, "torn")
    assert (code, "(lane-other-subject)" in printed, "by lane nightly" in printed) == (4, True, False)


def test_the_required_check_joins_no_gates_of_two_files(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    assert pull(cli, "bad", "--record")[0] == 3
    joined = cli("status", "--require", "pr")
    assert (joined.code, "(lane-other-subject)" in joined.out) == (3, True), joined.out
    assert pull(cli, "good", "--record")[0] == 0
    assert cli("status", "--require", "pr").code == 0


def test_the_required_check_asks_nothing_of_an_instance_that_is_retired(cli: Cli, project: Path) -> None:
    both = [word for name, file in (("a", "good"), ("b", "bad")) for word in bound(file)[2:]]
    both[1], both[3] = (word.replace("import=", f"import@{name}=") for name, word in zip("ab", both[1::2], strict=True))
    assert cli("verify", "--lane", "nightly", "--record", *bound("good")[:2], *both).code == 1
    assert cli("verify", "--lane", "pr", "--record", *both).code == 1
    assert cli("status", "--require", "pr").code == 1
    reason = ("--reason", "another converter makes it now", "--cause", bundle(project, "FAIL").name[-12:])
    assert cli("ledger", "retire", "imp/GATE-A/b", *reason).code == 0
    required = cli("status", "--require", "pr")
    assert (required.code, "GATE-A[b]" in required.out, "GATE-B[b]" in required.out) == (0, False, True), required.out


# --- The ledger's standing --------------------------------------------------------------------------------------------


def test_a_pass_of_a_gate_that_stands_regressed_does_not_count(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    assert cli("verify", "--record", *bound("bad"), "--gate", "GATE-A").code == 1  # of no lane, but it regressed
    shutil.copy(project / "good.safetensors", project / "bad.safetensors")
    lane = ("verify", "--lane", "nightly", "--evidence", "evidence")  # a PASS that nobody recorded heals nothing
    assert cli(*lane, *bound("bad")).code == 0
    code, printed = pull(cli, "bad")
    assert (code, "(lane-standing)" in printed, "REGRESSED" in printed) == (3, True, True), printed


def test_a_status_that_was_typed_blocks_the_lane(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    passed = bundle(project, "PASS")
    assert cli("verify", "--lane", "nightly", "--evidence", "evidence", *bound("good")).code == 0
    shutil.rmtree(passed)  # what the ledger's entry names is gone, and a newer PASS is there
    code, printed = pull(cli, "good")
    assert (code, "(lane-standing)" in printed, "UNVERIFIED" in printed) == (3, True, True), printed


def test_two_newest_entries_block_the_lane(cli: Cli, project: Path) -> None:
    assert nightly(cli, "good") == 0
    (newest,) = project.glob("evidence/ledger/imp/GATE-A/*/000002-*")
    kept = newest.read_bytes()
    newest.unlink()
    assert nightly(cli, "good") == 0
    newest.write_bytes(kept)  # as after a merge of two branches
    code, printed = pull(cli, "good")
    assert (code, "(lane-standing)" in printed, " as DIVERGED" in printed) == (3, True, True), printed


# --- What cannot be read is never skipped -----------------------------------------------------------------------------


def linked(folder: Path) -> None:
    """Put a link in the place of a folder."""
    elsewhere = folder.parents[2] / folder.name
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "environment removed": lambda folder: (folder / "environment.json").unlink(),
    "environment damaged": lambda folder: (folder / "environment.json").write_text("{"),
    "environment of another lane": lambda folder: edit(folder / "environment.json", "nightly", "weekly"),
    "statement removed": lambda folder: (folder / "statement.json").unlink(),
    "statement damaged": lambda folder: edit(folder / "statement.json", "GATE-A", "GATE-C"),
    "contract damaged": lambda folder: (folder / "contract.json").write_text("{}"),
    "manifest removed": lambda folder: (folder / "MANIFEST.json").unlink(),
    "verdicts damaged": lambda folder: edit(folder / "verdicts.json", "FAIL", "PASS"),
    "folder renamed": lambda folder: folder.rename(folder.with_name("old")),
    "folder renamed to another id": lambda folder: folder.rename(folder.with_name(f"{folder.name[:-12]}{'0' * 12}")),
    "folder hidden": lambda folder: folder.rename(folder.with_name(f".{folder.name}")),
    "folder moved into another": lambda folder: shutil.move(folder, folder.with_name("old") / folder.name),
    "folder linked": linked,
    "folder deleted": shutil.rmtree,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_fail_that_cannot_be_read_lets_no_older_pass_stand_in(cli: Cli, project: Path, damage: str) -> None:
    right, wrong = (project / f"{name}.safetensors" for name in ("good", "bad"))
    assert nightly(cli, "good") == 0
    kept = right.read_bytes()
    right.write_bytes(wrong.read_bytes())
    assert nightly(cli, "good") == 1
    assert pull(cli, "good")[0] == 1
    DAMAGES[damage](bundle(project, "FAIL"))
    code, printed = pull(cli, "good")
    assert (code, "PASS     GATE-A" in printed) == (3, False), printed
    assert ("(lane-unproven)" in printed) is (damage != "folder deleted"), printed
    right.write_bytes(kept)  # nor for the file that passed: what was found later is not known
    code, printed = pull(cli, "good")
    assert (code, "PASS     GATE-A" in printed) == (3, False), printed
    assert cli("ledger", "check").code == 1


@pytest.mark.slow
@pytest.mark.parametrize("damage", sorted(set(DAMAGES) - {"folder deleted"}))
def test_an_unrecorded_fail_that_cannot_be_read_leaves_no_gate_sound(cli: Cli, project: Path, damage: str) -> None:
    assert nightly(cli, "good") == 0
    shutil.copy(project / "bad.safetensors", project / "good.safetensors")
    assert (
        cli("verify", "--evidence", "evidence", *bound("good"), "--gate", "GATE-A").code == 1
    )  # of no lane, and not recorded
    folder = bundle(project, "FAIL")
    if damage == "environment of another lane":
        (folder / "environment.json").write_text('{"lane":"weekly"}\n')
    else:
        DAMAGES[damage](folder)
    gate = next(one for one in json.loads(cli("status", "--json").out)["gates"] if one["gate"] == "GATE-A")
    assert gate["stale"], gate
    code, printed = pull(cli, "good")
    assert (code, "PASS     GATE-A" in printed) == (3, False), printed
    assert cli("ledger", "check").code == 1
