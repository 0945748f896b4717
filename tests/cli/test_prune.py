"""`weighbridge evidence prune`, and verifying without evidence: what is kept, what goes, and what never does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from weighbridge.core.data import data_path

SPECIMENS = data_path("verifiers") / "specimens"
HEALTH = ("builtin:checkpoint-health", "--subject", f"checkpoint={SPECIMENS / 'checkpoints' / 'source.safetensors'}")


@pytest.fixture
def kept(cli: Cli, workplace: Path) -> list[str]:
    """Seal three bundles, the oldest of 2020; return their folders, newest first."""
    for _ in range(3):
        cli("verify", *HEALTH)
    store = Path(".weighbridge/bundles")
    oldest, middle, newest = sorted(store.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    oldest = oldest.rename(store / f"2020-01-01{oldest.name[10:]}")
    for seconds, path in enumerate((middle, newest)):
        os.utime(path, (2e9 + seconds, 2e9 + seconds))
    return [path.name for path in (newest, middle, oldest)]


def left() -> list[str]:
    return sorted(path.name for path in Path(".weighbridge/bundles").iterdir())


def test_old_bundles_go_and_how_many_bytes_they_took_is_reported(cli: Cli, kept: list[str]) -> None:
    size = sum(path.stat().st_size for path in Path(".weighbridge/bundles", kept[2]).rglob("*") if path.is_file())
    printed = [f"would remove .weighbridge/bundles/{kept[2]}: {size} bytes",
            f"1 of 3 bundles in .weighbridge/bundles would be removed, {size} bytes"]  # fmt: skip
    assert cli("evidence", "prune", "--older-than", 30, "--dry-run").lines == printed
    assert left() == sorted(kept)
    done = cli("evidence", "prune", "--older-than", 30)
    assert (done.code, done.lines[-1]) == (0, f"1 of 3 bundles in .weighbridge/bundles removed, {size} bytes")
    assert left() == sorted(kept[:2])


def test_the_newest_are_kept_and_both_conditions_hold_together(cli: Cli, kept: list[str]) -> None:
    cli("evidence", "prune", "--keep-last", 3, "--older-than", 0)
    assert left() == sorted(kept)
    cli("evidence", "prune", "--keep-last", 1)
    assert left() == [kept[0]]


@pytest.mark.slow
def test_what_a_page_or_the_ledger_names_is_kept(cli: Cli, kept: list[str]) -> None:
    Path("spec").mkdir()
    Path("spec/draft.md").write_text(f"`8` [ev:{kept[2][-12:]}#/findings/0/measured]\n")
    cli("verify", *HEALTH, "--evidence", ".weighbridge", "--record")
    ended = cli("evidence", "prune", "--keep-last", 0)
    assert f"kept .weighbridge/bundles/{kept[2]}: named in spec/draft.md" in ended.lines
    assert len([line for line in ended.lines if line.endswith(": named in the ledger")]) == 1
    assert len(left()) == 2


def test_evidence_that_is_kept_for_others_is_never_touched(cli: Cli) -> None:
    cli("verify", *HEALTH, "--record")
    assert cli("evidence", "prune", "--keep-last", 0).lines == [
        "0 of 0 bundles in .weighbridge/bundles removed, 0 bytes"
    ]
    assert len(list(Path("evidence/bundles").iterdir())) == 1


def test_pruning_without_a_condition_is_refused(cli: Cli, kept: list[str]) -> None:
    ended = cli("evidence", "prune")
    assert (ended.code, ended.err.split()[0], left()) == (2, "prune-what", sorted(kept))


# --- Without evidence -------------------------------------------------------------------------------------------------


def test_without_evidence_the_gates_are_judged_and_nothing_is_written(cli: Cli, workplace: Path) -> None:
    sealed, judged = cli("verify", *HEALTH), cli("verify", *HEALTH, "--no-evidence")
    printed, other = ([line for line in one.lines if "evidence: " not in line] for one in (judged, sealed))
    assert (judged.code, printed) == (sealed.code, other)
    assert "evidence: none was kept (--no-evidence)" in judged.lines
    assert len(left()) == 1


@pytest.mark.parametrize("words", [("--record",), ("--attach", "log=x"), ("--input", "c=x"), ("--evidence", "x")])
def test_what_needs_a_bundle_is_refused_where_none_is_kept(cli: Cli, workplace: Path, words: tuple[str, ...]) -> None:
    ended = cli("verify", *HEALTH, "--no-evidence", *words)
    assert (ended.code, ended.err.splitlines()) == (
        2,
        [f"not-kept {words[0]} needs the bundle that --no-evidence does not keep",
         f"  leave out --no-evidence, or {words[0]}"],
    )  # fmt: skip
    assert list(workplace.iterdir()) == []


@pytest.mark.slow
def test_statuses_are_reported_only_where_they_are_recorded(cli: Cli) -> None:
    assert not [line for line in cli("verify", *HEALTH).lines if "moved" in line or "would move" in line]
    assert [line for line in cli("verify", *HEALTH, "--record").lines if line.startswith("moved: none -> ")]


def test_evidence_of_a_subfolder_goes_to_the_projects_root(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "pyproject.toml").touch()
    (workplace / "models").mkdir()
    monkeypatch.chdir(workplace / "models")
    (line,) = (line for line in cli("verify", *HEALTH).lines if line.startswith("evidence: "))
    assert cli("evidence", "verify", line.removeprefix("evidence: ")).code == 0
    assert (workplace / ".weighbridge" / ".gitignore").read_text() == "*\n"
    assert list((workplace / "models").iterdir()) == []
