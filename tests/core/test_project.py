"""Where a project begins, and the folder there that nobody commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weighbridge.core.project import in_project, local, make_local, root


def test_a_project_begins_at_the_repository_else_at_its_configuration_else_here(tmp_path: Path) -> None:
    deep = tmp_path / "package" / "contracts"
    deep.mkdir(parents=True)
    assert root(deep) == deep
    (tmp_path / "package" / "pyproject.toml").touch()
    assert root(deep) == tmp_path / "package"
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # as in a linked worktree
    assert root(deep) == tmp_path


def test_it_is_named_from_where_the_command_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workplace / "weighbridge.toml").touch()
    (workplace / "runs").mkdir()
    assert local() == Path(".weighbridge")
    monkeypatch.chdir(workplace / "runs")
    assert local() == Path("../.weighbridge")


def test_git_sees_nothing_of_it_and_what_a_person_wrote_there_stays(workplace: Path) -> None:
    subprocess.run(("git", "init", "--quiet"), check=True)
    make_local(Path(".weighbridge"))
    Path(".weighbridge/bundle").touch()
    status = subprocess.run(("git", "status", "--porcelain"), check=True, capture_output=True)
    assert status.stdout == b""
    Path(".weighbridge/.gitignore").write_text("demo-*\n")
    make_local(Path(".weighbridge"))
    assert Path(".weighbridge/.gitignore").read_text() == "demo-*\n"


@pytest.mark.parametrize("command", ["true", "python -m train", "a/b:c d"])
def test_a_command_stays_as_it_was_bound(workplace: Path, command: str) -> None:
    assert in_project(command) == command
