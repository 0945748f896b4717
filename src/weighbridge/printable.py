"""Show text from outside on one line: whatever could move a cursor, start a line or turn one round is escaped."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape every character that is not printable, lone surrogates among them."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
