"""The forms of secrets, of the table beside this file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from weighbridge.core import dataclass
from weighbridge.core.data import table

TABLE = "evidence/secret_rules"
_START, _END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A rule: its pattern is compiled and runs only where one of the lower-case `hints` stands in the text."""

    name: str
    hints: tuple[str, ...]
    form: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of its form, which `re` keeps."""
        return re.compile(self.form)


@cache
def rules() -> tuple[SecretRule, ...]:
    """Return the rules of secrets, read when a text is first looked at: judging again reads no table."""
    rows = table(TABLE)
    tokens = ((name, starts, f"(?:{'|'.join(map(re.escape, starts))}){rest}") for name, starts, rest in rows["tokens"])
    forms = ((*row[:2], re.sub(r"<([A-Z]+)>", lambda one: str(rows["parts"][one[1]]), row[2])) for row in rows["forms"])
    return (
        *(SecretRule(name, tuple(map(str.lower, starts)), _START + form + _END) for name, starts, form in tokens),
        *(SecretRule(*row) for row in forms),
    )


def suspected(lowered: str, among: Callable[[], tuple[SecretRule, ...]]) -> Iterator[SecretRule]:
    """Yield the rules of which a hint stands in a text, in their order."""
    at = {at for hint, at in _hints(among) if hint in lowered}
    return (among()[one] for one in sorted(at))


@cache
def _hints(among: Callable[[], tuple[SecretRule, ...]]) -> tuple[tuple[str, int], ...]:
    return tuple((hint, at) for at, rule in enumerate(among()) for hint in rule.hints)


@cache
def personal() -> tuple[SecretRule, ...]:
    """Return the rules of what names a person or a machine."""
    return tuple(SecretRule(*row) for row in table(TABLE)["personal"])


def shared_names() -> frozenset[str]:
    """Return the names that hide nobody: machines share them, or contracts use them as words."""
    return frozenset(table(TABLE)["shared"].split())
