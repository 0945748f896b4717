"""Text from outside, shown on one line: whatever could move a cursor, start a line or turn one round is escaped.

A URL is shown without what would open a door.
"""

from __future__ import annotations

from weighbridge.urls import bare

SHOWN = 60


def printable(text: str) -> str:
    """Escape every character that is not printable, lone surrogates among them, and show URLs without their secrets."""
    text = bare(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def quoted(name: str) -> str:
    """Return a name from outside as a message shows it: quoted, escaped, not longer than 60 characters."""
    return repr(name if len(name) <= SHOWN else name[: SHOWN - 1] + "…")
