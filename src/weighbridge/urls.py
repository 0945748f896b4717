"""What is a URL, and how one is shown: without its user, password, query and fragment.

Nothing here is looked up or opened.
"""

from __future__ import annotations

import re

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
