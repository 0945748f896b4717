from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.disks import failing
from tests.evidence import drafts
from tests.evidence.drafts import NOON
from tests.ledgers import CONTRACT, FILES, NOW, PLACE, git, recorded, sealed

from weighbridge.contract.resolved import digests
from weighbridge.core.canonical import dumps, loads, sha256
from weighbridge.core.errors import BundleError, UsageError
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.statement import utc
from weighbridge.ledger.audit import check
from weighbridge.ledger.fold import ACTIVE, DRAFT, REGRESSED, LedgerEntry, LedgerPlace, LedgerStep, fold
from weighbridge.ledger.record import reconcile, record
from weighbridge.ledger.store import Ledger, illegal, segment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger of three entries: declared, regressed, healed."""
    made = Ledger(tmp_path / "ledger")
    recorded(made, sealed(tmp_path, bad=True, hours=1))
    recorded(made, sealed(tmp_path, hours=2))
    return made


def files(ledger: Ledger) -> list[Path]:
    return sorted(ledger.root.rglob("*.json"))


def codes(ledger: Ledger) -> set[str]:
    return {problem.code for problem in ledger.problems()}


def test_an_entry_is_named_by_its_number_and_digest(ledger: Ledger) -> None:
    for number, path in enumerate(files(ledger), start=1):
        shown = path.relative_to(ledger.root).as_posix()
        digest = sha256(path.read_bytes())
        assert shown == f"checkpoint-import/GATE-IMPORT-001/{segment(FILES)}/{number:06d}-{digest}.json"


@pytest.mark.slow
def test_a_flipped_byte_of_any_entry_is_seen_and_named(ledger: Ledger) -> None:
    """Every byte in its turn: benchmarks/robustness.py."""
    for path in files(ledger):
        data = path.read_bytes()
        for at in range(0, len(data), 7):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert path.relative_to(ledger.root).as_posix() in {problem.where for problem in ledger.problems()}
        path.write_bytes(data)
    assert ledger.problems() == ()


def test_a_hole_in_the_chain_is_seen(ledger: Ledger) -> None:
    for path in files(ledger)[:-1]:
        data = path.read_bytes()
        path.unlink()
        assert "missing-parent" in codes(ledger)
        path.write_bytes(data)


def test_the_newest_entry_taken_away_is_not_seen_without_an_older_commit(ledger: Ledger) -> None:
    files(ledger)[-1].unlink()
    assert ledger.problems() == ()


def rewritten(ledger: Ledger, at: int, **change: Any) -> None:
    """Change an entry and repair its name, as a careful forger would."""
    path = files(ledger)[at]
    body = {**loads(path.read_bytes()), **change}
    path.unlink()
    data = dumps(body)
    path.with_name(f"{body['seq']:06d}-{sha256(data)}.json").write_bytes(data)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"after": "DISCHARGED"}, "illegal-edge"),
        ({"before": "DRAFT"}, "illegal-edge"),
        ({"seq": 9}, "seq"),
        ({"outcome": "FAIL"}, "unearned"),
        ({"outcome": None}, "unearned"),
        ({"evidence_at": ""}, "unearned"),
        ({"evidence_at": "2026-04-26T13:00:00.000Z"}, "older-than-fail"),
        ({"evidence_at": "yesterday"}, "structure"),
        ({"parents": []}, "seq"),
        ({"step": "reconcile"}, "parents"),
        ({"step": "discharge", "after": "DISCHARGED"}, "illegal-edge"),
        ({"schema": "weighbridge.ledger/v9"}, "not-canonical"),
        ({"note": "x"}, "structure"),
        ({"place": {"contract": "other", "gate": "G", "instance": "default"}}, "misplaced"),
    ],
)
def test_a_forged_newest_entry_is_refused_by_the_table(ledger: Ledger, change: dict[str, Any], code: str) -> None:
    rewritten(ledger, -1, **change)
    assert code in codes(ledger)


def test_one_head_named_twice_reconciles_nothing(ledger: Ledger) -> None:
    known = ledger.read(PLACE)
    (head,) = fold(known).heads
    entry = dataclasses.replace(
        known[head], step=LedgerStep.RECONCILE, parents=(head, head), seq=known[head].seq + 1, before=known[head].after,
        cause=f"{head[:12]}+{head[:12]}", outcome=None, evidence_at="", reason="both branches recorded a PASS",
    )  # fmt: skip
    refused = illegal(entry, known, fold(known))
    assert refused is not None
    assert (refused.code, refused.what) == ("parents", "is a reconcile with 2 parents")


def test_a_stranger_in_the_folder_is_named_and_a_dead_writer_s_draft_is_not(ledger: Ledger) -> None:
    folder = ledger.folder(PLACE)
    (folder / ".tmp-00").write_bytes(b"half")
    assert ledger.problems() == ()
    (folder / "notes.txt").write_text("x")
    assert codes(ledger) == {"extra-file"}
    with pytest.raises(BundleError, match="extra-file is no entry of a ledger"):
        ledger.read(PLACE)


def test_a_spoiled_entry_is_an_error_and_never_a_gate_left_out(ledger: Ledger) -> None:
    for path in files(ledger):
        path.write_bytes(b"{}")
    with pytest.raises(BundleError, match="altered has sha256"):
        ledger.places()
    with pytest.raises(BundleError, match="altered has sha256"):
        ledger.causes()


def test_a_linked_or_stray_thing_above_the_entries_is_named(ledger: Ledger) -> None:
    (ledger.root / ".gitkeep").write_bytes(b"")
    assert ledger.problems() == ()
    folder = ledger.folder(PLACE)
    folder.rename(ledger.root.parent / "moved")
    folder.symlink_to(ledger.root.parent / "moved")
    assert codes(ledger) == {"extra-file"}
    with pytest.raises(BundleError, match="is no folder of a ledger"):
        ledger.places()


def test_names_that_are_no_safe_folder_names_become_digests() -> None:
    assert segment("falcon-7b.v1") == "falcon-7b.v1"
    for name in ("../x", ".git", "a/b", "", "ü", "x" * 101):
        assert segment(name) == f"_{sha256(name.encode())[:16]}"


def test_ten_thousand_entries_fold_in_order() -> None:
    place = LedgerPlace(contract="c", gate="g", instance="i")
    entries: dict[str, LedgerEntry] = {}
    for number in range(10_000):
        parents = (str(number - 1),) if number else ()
        entries[str(number)] = _entry(place, number, parents)
    assert fold(entries).heads == ("9999",)


def _entry(place: LedgerPlace, number: int, parents: tuple[str, ...]) -> LedgerEntry:
    return LedgerEntry(
        step=LedgerStep.MOVE,
        place=place,
        seq=number + 1,
        parents=parents,
        before=DRAFT,
        after=ACTIVE,
        cause="c",
        contract_digest="d",
        recorded_at=utc(NOON),
    )


# --- Crashes and crowds -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_at_any_effect_leaves_the_old_chain_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bundle = sealed(tmp_path)
    at, seen = 0, set()
    while True:
        at += 1
        ledger = Ledger(tmp_path / f"ledger-{at}")
        counter = [0]
        with monkeypatch.context() as patch:
            for name in ("open", "write", "fsync", "link", "mkdir"):
                patch.setattr(os, name, failing(at, number, counter, getattr(os, name)))
            with contextlib.suppress(BundleError):
                recorded(ledger, bundle)
        if counter[0] < at:
            break
        assert ledger.problems() == ()
        seen.add(len(files(ledger)))
        recorded(ledger, bundle)
        assert fold(ledger.read(PLACE)).status is ACTIVE
        assert len(files(ledger)) == 2
    assert at > 10
    assert seen == {0, 1, 2}


APPENDER = """
import sys
from datetime import timedelta
from pathlib import Path
from tests.ledgers import NOW, DIGEST
from weighbridge.evidence.bundle import unseal
from weighbridge.ledger.record import record
from weighbridge.ledger.store import Ledger
for path in sorted(Path(sys.argv[1]).iterdir()):
    record(unseal(path), Ledger(Path(sys.argv[2])), now=NOW, contract_digest=DIGEST)
"""


def test_what_a_dead_writer_left_is_swept_by_the_next(ledger: Ledger) -> None:
    left = ledger.folder(PLACE) / ".tmp-00"
    left.write_bytes(b"half")
    ledger.append(PLACE, lambda _: ())
    assert not left.exists()


TAKER = """
import sys
from filelock import FileLock, Timeout
try:
    FileLock(sys.argv[1]).acquire(blocking=False)
except Timeout:
    sys.exit(7)
"""


def test_nobody_else_can_lock_the_ledger_while_an_entry_is_decided(ledger: Ledger) -> None:
    ended: list[int] = []

    def decide(_: Mapping[str, LedgerEntry]) -> tuple[LedgerEntry, ...]:
        argv = [sys.executable, "-c", TAKER, str(ledger.root / ".lock")]
        ended.append(subprocess.run(argv, check=False).returncode)
        return ()

    assert ledger.append(PLACE, decide) == ()
    assert ended == [7]
    assert ledger.problems() == ()


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.exhaustive)])
def test_processes_that_append_at_once_lose_nothing_and_fork_nothing(tmp_path: Path, count: int) -> None:
    for hours in range(1, 9):
        sealed(tmp_path, bad=True, hours=hours)
    argv = [sys.executable, "-c", APPENDER, str(tmp_path / "bundles"), str(tmp_path / "ledger")]
    running = [subprocess.Popen(argv, cwd=ROOT) for _ in range(count)]
    assert [process.wait() for process in running] == [0] * count
    ledger = Ledger(tmp_path / "ledger")
    standing = fold(ledger.read(PLACE))
    assert ledger.problems() == ()
    assert not standing.diverged
    assert standing.seq == len(files(ledger))
    assert standing.failed_at == NOON + timedelta(hours=8)


@pytest.mark.exhaustive
def test_appenders_that_are_killed_at_any_moment_leave_one_whole_chain(tmp_path: Path) -> None:
    for hours in range(1, 9):
        sealed(tmp_path, bad=True, hours=hours)
    argv = [sys.executable, "-c", APPENDER, str(tmp_path / "bundles"), str(tmp_path / "ledger")]
    ledger = Ledger(tmp_path / "ledger")
    for storm in range(12):
        running = [subprocess.Popen(argv, cwd=ROOT) for _ in range(2)]
        while storm and all(process.poll() is None for process in running) and not files(ledger)[storm // 2 :]:
            time.sleep(0.001)  # until some entry more is there: then kill in the midst of it
        for process in running:
            time.sleep(0.002 * storm)
            process.kill()
            process.wait()
        assert ledger.problems() == ()
        assert not any(fold(entries).diverged for entries in ledger.chains().values())
    assert subprocess.run(argv, cwd=ROOT, check=False).returncode == 0
    standing = fold(ledger.read(PLACE))
    assert (standing.diverged, standing.failed_at) == (False, NOON + timedelta(hours=8))
    assert check(ledger, NOW) == ()


def test_two_machines_that_both_appended_show_as_diverged(tmp_path: Path, ledger: Ledger) -> None:
    other = Ledger(tmp_path / "other")
    shutil.copytree(ledger.root, other.root)
    recorded(ledger, sealed(tmp_path, bad=True, hours=3))
    recorded(other, sealed(tmp_path, bad=True, hours=4))
    shutil.copytree(other.root, ledger.root, dirs_exist_ok=True)
    standing = fold(ledger.read(PLACE))
    assert (standing.diverged, len(standing.heads)) == (True, 2)
    assert ledger.problems() == ()
    before = files(ledger)
    (move,) = recorded(ledger, sealed(tmp_path, hours=5), NOW)
    assert (move.code, files(ledger)) == ("diverged", before)


def test_an_entry_never_replaces_another(ledger: Ledger) -> None:
    chain = ledger.read(PLACE)
    newest = max(chain.values(), key=lambda entry: entry.seq)
    with pytest.raises(BundleError, match="the ledger entry was not written: File exists"):
        ledger.append(PLACE, lambda _: (newest,))
    assert ledger.read(PLACE) == chain


# --- Against an older commit ------------------------------------------------------------------------------------------


REASON = "both branches ran the nightly check"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitattributes").write_text("evidence/** -text\n")
    recorded(ledger_of(tmp_path), sealed(tmp_path / "evidence", hours=1))
    commit(tmp_path, "declare")
    return tmp_path


def ledger_of(folder: Path) -> Ledger:
    return Ledger(folder / "evidence" / "ledger")


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)


def branch_with(folder: Path, name: str, *, bad: bool, hours: int) -> None:
    git(folder, "checkout", "-q", "-b", name, "main")
    recorded(ledger_of(folder), sealed(folder / "evidence", bad=bad, hours=hours))
    commit(folder, name)


def test_two_branches_that_both_appended_merge_without_conflict_and_show_as_diverged(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=3)
    branch_with(repository, "right", bad=True, hours=2)
    git(repository, "merge", "-q", "-m", "merge", "left")
    ledger = ledger_of(repository)
    standing = fold(ledger.read(PLACE))
    assert (standing.status, standing.diverged) == (REGRESSED, True)
    assert check(ledger, NOW, "main") == ()
    for path in (repository / "evidence" / "bundles").iterdir():
        assert unseal(path).id.startswith(path.name[-12:])


def test_a_pass_on_one_branch_and_a_fail_on_the_other_count_as_the_fail(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=2)
    git(repository, "checkout", "-q", "main")
    git(repository, "checkout", "-q", "-b", "right")
    recorded(ledger_of(repository), sealed(repository / "evidence", bad=True, hours=3))
    recorded(ledger_of(repository), sealed(repository / "evidence", hours=4))
    commit(repository, "healed")
    git(repository, "merge", "-q", "-m", "merge", "left")
    ledger = ledger_of(repository)
    standing = fold(ledger.read(PLACE))
    assert (standing.status, standing.diverged) == (REGRESSED, True)
    digest = reconcile(ledger, PLACE, reason=REASON, now=NOW)
    assert reconcile(ledger, PLACE, reason=REASON, now=NOW) == digest
    joined = ledger.read(PLACE)[digest]
    assert (joined.step, joined.after, joined.parents) == (LedgerStep.RECONCILE, REGRESSED, standing.heads)
    recorded(ledger, sealed(repository / "evidence", hours=9))
    assert fold(ledger.read(PLACE)).status is ACTIVE
    assert check(ledger, NOW, "main") == ()


def test_branches_that_moved_different_gates_merge_into_both_moves(repository: Path) -> None:
    other = dataclasses.replace(CONTRACT, gates=(drafts.gate("GATE-IMPORT-002"),), id="other")
    branch_with(repository, "left", bad=True, hours=2)
    git(repository, "checkout", "-q", "-b", "right", "main")
    bundle = sealed(repository / "evidence", hours=2, given=other)
    record(bundle, ledger_of(repository), now=NOW, contract_digest=digests(other).whole)
    commit(repository, "right")
    git(repository, "merge", "-q", "-m", "merge", "left")
    found = {place.contract: fold(entries) for place, entries in ledger_of(repository).chains().items()}
    assert {name: (at.status, at.diverged) for name, at in found.items()} == {
        "checkpoint-import": (REGRESSED, False), "other": (ACTIVE, False),
    }  # fmt: skip
    assert check(ledger_of(repository), NOW, "main") == ()


def test_the_same_entry_on_both_branches_is_one_entry(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=2)
    branch_with(repository, "right", bad=True, hours=2)
    git(repository, "merge", "-q", "-m", "merge", "left")
    assert not fold(ledger_of(repository).read(PLACE)).diverged


def test_additions_alone_are_accepted(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=3)
    assert check(ledger_of(repository), NOW, "main") == ()


def test_the_newest_entry_taken_away_is_seen_against_an_older_commit(repository: Path) -> None:
    newest = max(ledger_of(repository).folder(PLACE).iterdir())
    newest.unlink()
    (problem,) = check(ledger_of(repository), NOW, "main")
    assert problem.code == "not-added"
    assert problem.what == "was deleted since main: evidence is only ever added"
    assert problem.where == newest.relative_to(repository).as_posix()
    commit(repository, "gone")
    (problem,) = check(ledger_of(repository), NOW, "main~1")
    assert problem.what == "was deleted since main~1: evidence is only ever added"


def test_a_changed_or_renamed_file_of_a_bundle_is_seen(repository: Path) -> None:
    (bundle,) = (repository / "evidence" / "bundles").iterdir()
    (bundle / "verdicts.json").write_bytes(b"{}")
    git(repository, "mv", str(bundle / "canaries.json"), str(bundle / "canary.json"))
    *added, entry = check(ledger_of(repository), NOW, "main")
    assert entry.what == f"bundle {bundle.name[-12:]} is not whole: canary.json is not in the manifest"
    found = {problem.where.rpartition("/")[2]: problem.what for problem in added}
    assert found == {
        "verdicts.json": "was changed since main: evidence is only ever added",
        "canaries.json": "was deleted since main: evidence is only ever added",
    }


def test_a_landed_amendment_is_frozen_and_a_draft_is_not(repository: Path) -> None:
    for name in ("0018-cuda.md", "draft.md"):
        path = repository / "spec" / "amendments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    commit(repository, "land")
    for path in (repository / "spec" / "amendments").iterdir():
        path.write_text("y")
    problems = check(ledger_of(repository), NOW, "main")
    assert [problem.where for problem in problems] == ["spec/amendments/0018-cuda.md"]


def test_a_base_that_git_does_not_know_is_a_usage_error(repository: Path) -> None:
    with pytest.raises(UsageError, match="base git does not know it: git merge-base nowhere"):
        check(ledger_of(repository), NOW, "nowhere")
