"""Text from outside, shown on one line: nothing moves a cursor, URLs lose user and query. Nothing is looked up."""

import re
from collections.abc import Callable, Mapping, Sequence

from weighbridge.core.model import Json

SHOWN = 60


def printable(text: str) -> str:
    """Escape every character that is not printable, lone surrogates among them, and show URLs without their secrets."""
    text = bare(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


_ONE = re.compile(
    r"(?<![\w.,/-])(?<!step )(1 (?:of 1 )?)("
    r"bundle|case|check|checksum|citation|column|contract|count|digest|draft|element|entr|epoch|event|"
    r"field|file|finding|gate|hypothes|infinit|instance|key|logarithm|norm|place|point|problem|row|run|sample|"
    r"section|sequence|signature|spike|status|step|sum|tall|tensor|time|token|verdict|warning|weight|wrap|bound"
    r")(ies|es|s)\b(?:((?: of [\w.]+)?) (are|have|were|follow)\b)?"
)
_END = {"ies": "y", "hypothes": "is"}
_OF_ONE = {"differ": " differs", "are": " is", "have": " has", "were": " was", "follow": " follows", None: ""}


_ONE_OF = re.compile(r"(?<![\w.,/-])(1 of \d+ (?:configuration )?\w+s) (are|have|were|follow|differ)\b")


def singular(text: str) -> str:
    """Return a text in which one thing is one: `1 step`, and not `1 steps`."""
    text = _ONE_OF.sub(lambda of: of[1] + str(_OF_ONE[of[2]]), text)
    return _ONE.sub(
        lambda of: f"{of[1]}{of[2]}{_END.get(of[2], _END.get(of[3], ''))}{of[4] or ''}{_OF_ONE[of[5]]}", text
    )


_COMMAND = re.compile(r"^(\s*)(?=::)|(?<=#)(?=#(?:vso)?\[)", re.MULTILINE)


def uncommanded(text: str) -> str:
    """Return a text in which no name from outside commands GitHub Actions or Azure: those look for `##[` anywhere."""
    return _COMMAND.sub(r"\1\\", text)


def quoted(name: str) -> str:
    """Return a name from outside as a message shows it: quoted, escaped, not longer than 60 characters."""
    return repr(name if len(name) <= SHOWN else name[: SHOWN - 1] + "…")


URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{1,31})://")
_WORD = re.compile(r"[^\s\"<>\\]*")
_LINE = re.compile(rf"(?:(?![\s\"<>\\'=,]{URL.pattern}).)*")  # the rest of it, up to another URL
_NAMED = re.compile(r"(?:[\w@-]+=)?")
_WITHHELD = re.compile(r"(?:\[withheld:[a-z0-9-]+\])*")  # what redaction left in the place of a user
_INNER_USER = re.compile(r"://[^/?#]*@")  # of a URL inside the path of another


def bare(text: str, stand_in: Callable[[str], str] = lambda _user: "") -> str:
    """Return a text with every URL in it shown without user, password, query and fragment.

    A text that begins with a URL, or with `NAME=URL`, is taken for one: its password may hold spaces and quotes.
    `stand_in` returns what is shown in the place of a user and a password.
    """
    while (shown := _barer(text, stand_in)) != text:  # what a user is taken from may look like another: "@@"
        text = shown
    return text


def bare_json(value: Json) -> Json:
    """Return a value with every text in it bare, the keys too."""
    if isinstance(value, str):
        return bare(value)
    if isinstance(value, Mapping):
        return {bare(key): bare_json(item) for key, item in value.items()}
    return [bare_json(item) for item in value] if isinstance(value, Sequence) else value


def _barer(text: str, stand_in: Callable[[str], str]) -> str:
    shown, at = "", 0
    while found := URL.search(text, at):
        start = _after(_WITHHELD, text, found.end())
        word = text[start : _after(_WORD, text, start)]
        cut_off = "@" not in word and _has_password(word)  # by a sign that no URL may hold
        alone = found.start() in (0, _after(_NAMED, text, 0))
        url = text[start : _after(_LINE, text, start)] if alone or cut_off else word
        begins = _has_password(url) or "@" in url.partition("/")[0]
        user = url[: url.rfind("@") + 1] if begins else ""  # to the last of all, for a password may hold strokes
        end = start + len(user)
        word = text[end : _after(_WORD, text, end)]
        kept = re.split("[?#]", word, maxsplit=1)[0]
        shown += text[at:start] + (stand_in(user) if user else "") + _INNER_USER.sub("://", kept)
        at = end + len(word)
        if word.endswith("'") and kept != word:
            at -= 1  # it closes the quotes that the URL stands in
    return shown + text[at:]


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _has_password(url: str) -> bool:
    """Return whether a colon of a URL begins a password: a port is a number, and no "@" follows it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(f"//{url.partition('/')[0]}")
        return parts.password is not None or (parts.port is None and parts.netloc.endswith(":"))
    except ValueError:  # a port that is none, or brackets without an address
        return True


def scheme_of(target: str) -> str:
    """Return the scheme of a URL in lower case, empty where it is none."""
    match = URL.match(target)
    return match["scheme"].lower() if match else ""
