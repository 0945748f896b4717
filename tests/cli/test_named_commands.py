"""Every command that a message, a card or a comment names exists, with the options that it is named with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.conftest import Cli

from weighbridge.cli import VERBS, Verbs

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`weighbridge ([^`]+)`")
WORD = re.compile(r"[a-z][a-z-]+")


def named() -> Iterator[str]:
    for room in ("src", "gates", "verifiers", "words", "contracts", "templates"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".yaml", ".yml"):
                yield from NAMED.findall(path.read_text("utf-8"))


@pytest.mark.parametrize("command", sorted(set(named())))
def test_a_command_that_is_named_exists(command: str) -> None:
    verb, *rest = command.partition(" -- ")[0].split()
    if verb in ("--help", "VERB"):
        return
    assert verb in VERBS
    group = Verbs()
    found = group.get_command(click.Context(group), verb)
    if isinstance(found, click.Group) and rest and WORD.fullmatch(rest[0]):
        found = found.get_command(click.Context(found), rest.pop(0))
    assert found is not None
    options = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
    assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= options


@pytest.mark.parametrize("word", sorted({one.split()[1] for one in named() if re.fullmatch(r"explain [a-z-]+", one)}))
def test_a_word_that_is_sent_to_explain_is_explained(cli: Cli, word: str) -> None:
    ended = cli("explain", word)
    assert (ended.code, ended.err) == (0, "")
