"""`weighbridge doctor`: what is here, and what is lacking."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import Cli


def told(cli: Cli, start: str) -> str:
    return next(line for line in cli("doctor").lines if line.startswith(start)).removeprefix(start).strip()


def test_every_extra_is_reported_with_what_it_gives_and_lacks(cli: Cli) -> None:
    extras = json.loads(cli("doctor", "--json").out)["extras"]
    assert set(extras) == {"torch", "remote", "cluster", "sign", "onnxruntime", "report", "trainers"}
    assert extras["sign"] == {"gives": "signed evidence", "lacks": []}
    assert told(cli, "extra sign") == "installed: signed evidence"


def test_folders_are_reported_with_whether_they_can_be_written(cli: Cli, workplace: Path) -> None:
    assert told(cli, "folder store") == ".weighbridge: not there yet, can be made"
    assert told(cli, "folder ledger") == "evidence/ledger: not there yet, can be made"
    (workplace / ".weighbridge").mkdir()
    assert told(cli, "folder store") == ".weighbridge: writable"


def test_the_key_is_reported_before_and_after_it_is_made_and_where_none_can_be(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(workplace))
    key = workplace / "weighbridge" / "pseudonym.key"
    assert told(cli, "key ") == f"{key}: made with the first evidence"
    key.parent.mkdir()
    key.touch()
    assert told(cli, "key ") == f"{key}: kept"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    assert told(cli, "key ").startswith("none can be kept, for there is no home folder")


def test_completion_is_reported_with_the_line_that_switches_it_on(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workplace))
    monkeypatch.setenv("SHELL", "/bin/zsh")
    line = 'eval "$(_WEIGHBRIDGE_COMPLETE=zsh_source weighbridge)"'
    assert told(cli, "completion") == f"off in zsh; add to ~/.zshrc: {line}"
    (workplace / ".zshrc").write_text(f"{line}\n")
    assert told(cli, "completion") == "on in zsh"


def test_the_extra_for_urls_brings_what_reads_the_hub() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[>]", one)[0] for one in extras["optional-dependencies"]["remote"]}
    assert names == {"fsspec", "huggingface-hub"}
