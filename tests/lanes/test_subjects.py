"""What a lane accepts: of the files that are looked at here, of a ledger that stands, and of all that can be read."""

from __future__ import annotations

import hashlib
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


# --- Folders, of which one gate reads more than another ---------------------------------------------------------------

CONFIG = """  - id: GATE-B
    title: The model is configured as its source is
    kind: config-agreement
    subjects: {source: source, candidate: import}
"""


@pytest.fixture
def folders(project: Path) -> Path:
    """Make both subjects folders, and let the gate of the lane that accepts read a file that the other's does not."""
    head, _, _ = CONTRACT.partition("  - id: GATE-B")
    (project / "contracts" / "imp.yaml").write_text(head + CONFIG)
    (project / ".gitignore").write_text("source*/\nimport/\n")
    commit(project)
    for name in ("source", "import"):
        (project / name).mkdir()
        shutil.copy(project / "good.safetensors", project / name / "model.safetensors")
        (project / name / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
        (project / name / "generation_config.json").write_text('{"temperature": 0.5}')
    return project


BOUND = "--subject", "source=source", "--subject", "import=import"


def lane(cli: Cli, name: str, *more: str, words: tuple[str, ...] = BOUND) -> tuple[int, str]:
    ended = cli("verify", "--lane", name, *words, *more)
    return ended.code, ended.out


def test_a_file_that_only_one_lane_reads_makes_no_other_subject(cli: Cli, folders: Path) -> None:
    assert lane(cli, "nightly", "--record")[0] == 0
    code, printed = lane(cli, "pr", "--record")
    assert ("(lane-other" in printed, "by lane nightly" in printed) == (False, True), printed
    required = cli("status", "--require", "pr")
    assert (required.code, "(lane-other" in required.out) == (code, False), required.out
    (folders / "source" / "README.md").write_text("which no loader reads")
    assert "(lane-other" not in lane(cli, "pr")[1]
    (folders / "source" / "generation_config.json").write_text('{"temperature": 0.7}')  # which nightly never read
    assert "(lane-other" not in lane(cli, "pr")[1]


def overwritten(folder: Path, name: str, data: bytes = b'{"model_type": "llama", "hidden_size": 9}') -> None:
    (folder / name).write_bytes(data)


def other_tensors(folder: Path) -> None:
    save_file({"w": np.arange(1, 97, dtype=np.float32) / 6}, folder / "model.safetensors")


def second_file(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "model-00002-of-00002.safetensors")


def swapped(folder: Path) -> None:
    """Give the tensors another name, and others theirs."""
    (folder / "model.safetensors").rename(folder / "model.bin")
    other_tensors(folder)


# What is done to the source after nightly has passed, and the file that the refusal names.
SWAPS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another file of the same name": (other_tensors, "model.safetensors sha256 "),
    "another configuration": (lambda folder: overwritten(folder, "config.json"), "config.json sha256 "),
    "the configuration removed": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "the configuration renamed": (lambda folder: (folder / "config.json").rename(folder / "c.json"), "config.json"),
    "an unread file removed": (
        lambda folder: (folder / "generation_config.json").unlink(), "generation_config.json not here"
    ),
    "a tokenizer added": (
        lambda folder: overwritten(folder, "tokenizer.json", b"{}"), "tokenizer.json not known there"
    ),
    "an adapter added": (
        lambda folder: overwritten(folder, "adapter_config.json", b"{}"), "adapter_config.json not known there"
    ),
    "code added": (lambda folder: overwritten(folder, "modeling.py", b""), "modeling.py not known there"),
    "weights added": (lambda folder: overwritten(folder, "adapter.bin", b"x"), "adapter.bin not known there"),
    "a second file of tensors": (second_file, ""),
    "tensors under another name": (swapped, "model.safetensors"),
}  # fmt: skip


def test_a_pass_with_another_adapter_does_not_count(cli: Cli, folders: Path) -> None:
    contract, whole = folders / "contracts" / "imp.yaml", {"base_model.model.w": np.ones(96, np.float32)}
    text = contract.read_text().replace("dtype-preservation", "value-preservation", 1)
    text = text.replace("source: source, candidate", "source: source, adapter: adapter, candidate", 1)
    contract.write_text(text.replace("subjects:\n", "subjects:\n  adapter: {kind: checkpoint}\n", 1))
    (folders / ".gitignore").write_text("source*/\nimport/\nadapter/\n")
    commit(folders)
    (folders / "adapter").mkdir()
    save_file(whole, folders / "adapter" / "adapter_model.safetensors")
    save_file({"w": whole["base_model.model.w"]}, folders / "import" / "model.safetensors")
    overwritten(folders / "adapter", "adapter_config.json", b'{"peft_type": "LORA", "r": 1, "lora_alpha": 1}')
    words = (*BOUND, "--subject", "adapter=adapter")
    assert lane(cli, "nightly", "--record", words=words)[0] == 0
    assert "by lane nightly" in lane(cli, "pr", words=words)[1]
    overwritten(folders / "adapter", "adapter_config.json", b'{"peft_type": "LORA", "r": 1, "lora_alpha": 2}')
    code, printed = lane(cli, "pr", words=words)
    assert (code, "of another adapter than is looked at here: adapter_config.json sha256 " in printed) == (3, True), (
        printed
    )


# Of what was added, the code stands for the others.
@pytest.mark.parametrize(
    "swap",
    [
        pytest.param(one, marks=[pytest.mark.exhaustive] * (one.endswith(" added") and one != "code added"))
        for one in sorted(SWAPS)
    ],
)
def test_another_folder_than_was_measured_is_never_accepted(cli: Cli, folders: Path, swap: str) -> None:
    assert lane(cli, "nightly", "--record")[0] == 0
    change, named = SWAPS[swap]
    change(folders / "source")
    code, printed = lane(cli, "pr")
    assert (code != 0, "(lane-other-subject)" in printed, "by lane nightly" in printed) == (True, True, False)
    assert "of another import" not in printed
    assert named in printed.replace("\n", " "), printed


def test_a_file_beside_one_that_was_bound_alone_counts_where_its_name_is_read(cli: Cli, folders: Path) -> None:
    words = "--subject", "source=source/model.safetensors", "--subject", "import=import/model.safetensors"
    assert lane(cli, "nightly", "--record", words=words)[0] == 0
    (folders / "source" / "other.safetensors").write_bytes(b"")  # which nobody reads who reads that one
    assert "(lane-other" not in lane(cli, "pr", words=words)[1]
    (folders / "source" / "tokenizer.json").write_text("{}")
    code, printed = lane(cli, "pr", words=words)
    assert (code != 0, "tokenizer.json not known there" in printed) == (True, True), printed


def test_evidence_without_the_names_of_what_lay_beside_it_counts_where_nothing_did(
    cli: Cli, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:  # as older versions sealed it
        before.setattr("weighbridge.evaluation.runner.names_beside", lambda _view: ())
        assert lane(cli, "nightly", "--record")[0] == 0
    code, printed = lane(cli, "pr")
    assert (code, "generation_config.json not known there" in printed) == (3, True), printed
    for name in ("source", "import"):
        (folders / name / "generation_config.json").unlink()
    assert "(lane-other" not in lane(cli, "pr")[1]


def test_the_required_check_joins_no_evidence_of_two_folders(cli: Cli, folders: Path) -> None:
    assert lane(cli, "nightly", "--record")[0] == 0
    overwritten(folders / "source", "config.json")
    overwritten(folders / "import", "config.json")
    lane(cli, "pr", "--record")
    joined = cli("status", "--require", "pr")
    assert (joined.code, "config.json sha256 " in joined.out) == (3, True), joined.out


def test_the_required_check_names_the_files_that_its_evidence_is_of(cli: Cli, project: Path) -> None:
    assert (nightly(cli, "good"), pull(cli, "good", "--record")[0]) == (0, 0)
    digest = hashlib.sha256((project / "good.safetensors").read_bytes()).hexdigest()
    shutil.copy(project / "bad.safetensors", project / "good.safetensors")  # nothing here is looked at
    required = cli("status", "--require", "pr")
    assert (required.code, required.out.count(f"import good.safetensors sha256 {digest[:12]}")) == (0, 2), required.out
    gates = json.loads(cli("status", "--require", "pr", "--json").out)["gates"]
    assert all(f"good.safetensors sha256 {digest[:12]}" in one["of"] for one in gates)


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


OFTEN = {"environment of another lane", "statement removed", "verdicts damaged", "folder linked", "folder deleted"}
DAMAGED = [pytest.param(name, marks=[pytest.mark.exhaustive] * (name not in OFTEN)) for name in sorted(DAMAGES)]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGED)
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
@pytest.mark.parametrize("damage", [one for one in DAMAGED if one.values != ("folder deleted",)])
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
