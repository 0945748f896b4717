from __future__ import annotations

import re
from pathlib import Path

import pytest

from weighbridge.core.pseudonym import key_file, pseudonym


def test_one_value_has_one_word_and_another_has_another(tmp_path: Path) -> None:
    key = tmp_path / "state" / "pseudonym.key"
    words = [pseudonym("host", name, key) for name in ("alpha", "alpha", "beta")]
    assert words[0] == words[1] != words[2]
    assert re.fullmatch(r"host-[0-9a-f]{12}", words[0])
    assert pseudonym("user", "alpha", key) != words[0].replace("host", "user")


def test_the_key_is_its_owners_alone_and_another_key_gives_another_word(tmp_path: Path) -> None:
    one, other = tmp_path / "one.key", tmp_path / "other.key"
    assert pseudonym("host", "alpha", one) != pseudonym("host", "alpha", other)
    assert one.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.key", "other.key"]


@pytest.mark.parametrize("text", ["", "not hexadecimal"])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(ValueError, match=r"key|hexadecimal"):
        pseudonym("host", "alpha", tmp_path / "key")


@pytest.mark.parametrize(
    ("platform", "environment", "state"),
    [
        ("linux", {"HOME": "/home/ada"}, "/home/ada/.local/state"),
        ("linux", {"HOME": "/home/ada", "XDG_STATE_HOME": "/state"}, "/state"),
        ("linux", {"HOME": "/home/ada", "XDG_STATE_HOME": "state"}, "/home/ada/.local/state"),
        ("darwin", {"HOME": "/Users/ada"}, "/Users/ada/Library/Application Support"),
        ("win32", {"HOME": "/c/ada", "LOCALAPPDATA": "/c/ada/AppData/Local"}, "/c/ada/AppData/Local"),
    ],
)
def test_the_key_is_in_the_persons_state_folder_of_each_platform(
    platform: str, environment: dict[str, str], state: str
) -> None:
    assert key_file(environment, platform) == Path(state) / "weighbridge" / "pseudonym.key"


def test_who_has_no_home_has_no_file_for_a_key() -> None:
    assert key_file({}, "linux") is key_file({"XDG_STATE_HOME": "state"}, "linux") is key_file({}, "win32") is None
