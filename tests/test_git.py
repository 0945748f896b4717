from __future__ import annotations

import subprocess
from pathlib import Path

from weighbridge.git import commit, is_dirty


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
