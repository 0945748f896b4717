"""Text from outside, shown on one line: whatever could move a cursor, start a line or turn one round is escaped.

A URL is shown without user, password, query and fragment. Nothing here is looked up or opened.
"""

from __future__ import annotations

import re

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


# --- URLs -------------------------------------------------------------------------------------------------------------


URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,31})://")
_IN_TEXT = re.compile(rf"({URL.pattern})([^\s\"'<>\\]*)")
# All up to an "@" before the path; and after a user and ":" up to the last "@" of all, for a password may hold strokes
# that should have been escaped. What looks like a port begins no password.
_USER = re.compile(r"(?!\[)[^/?#@:]*:(?!\d{1,5}(?:[/?#]|$)).*@|[^/?#]*@", re.DOTALL)
_INNER_USER = re.compile(r"://[^/?#]*@")  # of a URL inside the path of another


def bare(text: str) -> str:
    """Return a text with every URL in it shown without user, password, query and fragment."""
    return _IN_TEXT.sub(lambda found: found[1] + _shown(found[3]), text) if "://" in text else text


def _shown(rest: str) -> str:
    while match := _USER.match(rest):  # what a user is taken from may look like another: "@@", "a@b:c@d"
        rest = rest[match.end() :]
    return _INNER_USER.sub("://", re.split("[?#]", rest, maxsplit=1)[0])


def scheme_of(target: str) -> str:
    """Return the scheme of a URL in lower case, empty where it is none."""
    match = URL.match(target)
    return match["scheme"].lower() if match else ""
