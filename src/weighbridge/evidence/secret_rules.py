"""The forms of secrets, of the table beside this file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from weighbridge.core.data import table

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


TABLE = table("evidence/secret_rules")
RULES = (
    *(
        SecretRule(name, tuple(map(str.lower, starts)), f"{_START}(?:{'|'.join(map(re.escape, starts))}){rest}{_END}")
        for name, starts, rest in TABLE["tokens"]
    ),
    *(
        SecretRule(name, hints, re.sub(r"<([A-Z]+)>", lambda part: str(TABLE["parts"][part[1]]), form))
        for name, hints, form in TABLE["forms"]
    ),
)
PERSONAL = tuple(SecretRule(*row) for row in TABLE["personal"])
