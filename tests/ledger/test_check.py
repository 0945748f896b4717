from __future__ import annotations

from pathlib import Path

import pytest
from tests.ledgers import NOW, PLACE, git, recorded, sealed

from weighbridge.errors import UsageError
from weighbridge.evidence.unseal import unseal
from weighbridge.ledger.check import check
from weighbridge.ledger.fold import ACTIVE, REGRESSED, Step, fold
from weighbridge.ledger.record import reconcile
from weighbridge.ledger.store import Ledger

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
    assert check(ledger, repository, "main") == ()
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
    assert (joined.step, joined.after, joined.parents) == (Step.RECONCILE, REGRESSED, standing.heads)
    recorded(ledger, sealed(repository / "evidence", hours=9))
    assert fold(ledger.read(PLACE)).status is ACTIVE
    assert check(ledger, repository, "main") == ()


def test_the_same_entry_on_both_branches_is_one_entry(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=2)
    branch_with(repository, "right", bad=True, hours=2)
    git(repository, "merge", "-q", "-m", "merge", "left")
    assert not fold(ledger_of(repository).read(PLACE)).diverged


def test_additions_alone_are_accepted(repository: Path) -> None:
    branch_with(repository, "left", bad=True, hours=3)
    assert check(ledger_of(repository), repository, "main") == ()


def test_the_newest_entry_taken_away_is_seen_against_an_older_commit(repository: Path) -> None:
    newest = max(ledger_of(repository).folder(PLACE).iterdir())
    newest.unlink()
    (problem,) = check(ledger_of(repository), repository, "main")
    assert problem.code == "not-added"
    assert problem.what == "was deleted since main: evidence is only ever added"
    assert problem.path == newest.relative_to(repository).as_posix()
    commit(repository, "gone")
    assert check(ledger_of(repository), repository, "main~1") == (
        type(problem)("not-added", problem.what.replace("main", "main~1"), problem.path),
    )


def test_a_changed_or_renamed_file_of_a_bundle_is_seen(repository: Path) -> None:
    (bundle,) = (repository / "evidence" / "bundles").iterdir()
    (bundle / "verdicts.json").write_bytes(b"{}")
    git(repository, "mv", str(bundle / "canaries.json"), str(bundle / "canary.json"))
    problems = check(ledger_of(repository), repository, "main")
    found = {problem.path.rpartition("/")[2]: problem.what for problem in problems}
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
    problems = check(ledger_of(repository), repository, "main")
    assert [problem.path for problem in problems] == ["spec/amendments/0018-cuda.md"]


def test_a_base_that_git_does_not_know_is_a_usage_error(repository: Path) -> None:
    with pytest.raises(UsageError, match="base git does not know it: git merge-base nowhere"):
        check(ledger_of(repository), repository, "nowhere")
