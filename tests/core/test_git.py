from __future__ import annotations

import subprocess
from pathlib import Path

from weighbridge.core.git import commit, is_dirty, tree


def test_a_changed_tree_is_recorded_as_dirty(tmp_path: Path) -> None:
    assert (is_dirty(tmp_path), commit(tmp_path)) == (None, "")
    (tmp_path / "train.py").write_text("lr = 1\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "log").touch()
    assert len(commit(tmp_path)) == 40
    assert is_dirty(tmp_path) is False  # what a run writes is no change of what it ran
    (tmp_path / "model.py").touch()
    assert is_dirty(tmp_path) is True
    (tmp_path / "model.py").unlink()
    (tmp_path / "train.py").write_text("lr = 2\n")
    assert is_dirty(tmp_path) is True


def test_a_tree_is_known_by_what_is_tracked_and_only_where_nothing_was_changed(tmp_path: Path) -> None:
    assert tree(tmp_path, ":(glob)src/**") is None
    (tmp_path / "src" / "train").mkdir(parents=True)
    (tmp_path / "src" / "train" / "loop.py").write_text("lr = 1\n")
    (tmp_path / "src" / "notes").touch()
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    whole, part = tree(tmp_path, ":(glob)src/**"), tree(tmp_path, ":(glob)src/train/**")
    assert part not in (None, "", whole)
    assert tree(tmp_path, ":(glob)src/**", ("src/notes",)) == part
    assert tree(tmp_path, ":(glob)lib/**") == ""
    (tmp_path / "src" / "notes").write_text("a word\n")
    assert (tree(tmp_path, ":(glob)src/**"), tree(tmp_path, ":(glob)src/train/**")) == (None, part)
    subprocess.run(["git", *identity, "commit", "-qam", "m"], cwd=tmp_path, check=True)
    assert tree(tmp_path, ":(glob)src/**") not in (None, whole)
