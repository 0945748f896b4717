"""What the words of the tool mean, from the cards in `words/`. They decide nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weighbridge.contract import strict_yaml
from weighbridge.data import data_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What one word means, an example of it, and what to do about it; `do` may stand in `means`."""

    means: str
    example: str = ""
    do: str = ""


@functools.cache
def glossary(name: str) -> Mapping[str, Mapping[str, Meaning]]:
    """Read `codes` or `terms`: every word with its meaning, by group."""
    path = data_path("words") / f"{name}.yaml"
    groups: Any = strict_yaml.load(path.read_bytes(), where=str(path)).data
    return {group: {word: _meaning(said) for word, said in words.items()} for group, words in groups.items()}


def _meaning(said: str | Mapping[str, str]) -> Meaning:
    return Meaning(means=said) if isinstance(said, str) else Meaning(**said)
