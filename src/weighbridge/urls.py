"""Tell what is a URL, and show one without what opens a door: its user, its password and its query.

Only words: nothing here is looked up or opened.
"""

from __future__ import annotations

import re

URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,31})://")
_CLOSING = r"\s\"'<>\\"  # where a URL in a text ends
_SECRETS = re.compile(
    rf"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,31}}://)"
    # A password may hold a stroke that should have been escaped; what looks like a port does not begin one.
    rf"(?:(?!\[)[^{_CLOSING}/?#@:]{{0,4096}}:(?!\d{{1,5}}(?:[/?#{_CLOSING}]|$))[^{_CLOSING}]{{0,4096}}@"
    rf"|[^{_CLOSING}/?#@]{{0,4096}}@)?"
    rf"(?P<rest>[^{_CLOSING}?#]{{0,65536}})(?:[?#][^{_CLOSING}]{{0,65536}})?"
)


def bare(text: str) -> str:
    """Take user, password, query and fragment out of every URL in a text."""
    return _SECRETS.sub(r"\g<scheme>\g<rest>", text) if "://" in text else text


def scheme_of(target: str) -> str:
    """Name the scheme of a URL, in lower case; empty where it is none."""
    match = URL.match(target)
    return match["scheme"].lower() if match else ""
