from __future__ import annotations

import sys
from pathlib import Path

import pytest

from weighbridge.core.errors import SubjectError
from weighbridge.views.command import CommandView


def test_a_file_named_from_where_the_person_stands_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "train").write_text("")
    view = CommandView((sys.executable, "train.py", "./train", "train", "--lr", "0.1", "absent.py"), tmp_path)
    assert view.resolved()[1:] == (
        str(tmp_path / "train.py"),
        str(tmp_path / "train"),
        "train",
        "--lr",
        "0.1",
        "absent.py",
    )


def test_a_program_is_found_on_the_path_and_beside_the_person(tmp_path: Path) -> None:
    program = tmp_path / "trainer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert CommandView(("./trainer",), tmp_path).resolved() == (str(tmp_path / "trainer"),)
    assert CommandView(("sh",), tmp_path).resolved()[0].endswith("/sh")


def test_a_command_without_words_is_refused() -> None:
    with pytest.raises(SubjectError, match="the command has no words"):
        CommandView(()).resolved()


def test_the_digest_changes_with_the_words_and_with_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    view = CommandView(("python", "train.py"), tmp_path)
    first = dict(view.digest())
    assert set(first) == {"argv", "train.py"}
    script.write_text("print(2)")
    assert view.digest()["train.py"] != first["train.py"]
    assert view.overlaid(("python", "train.py", "-v")).digest()["argv"] != first["argv"]
