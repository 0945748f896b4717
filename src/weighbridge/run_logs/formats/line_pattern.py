"""Find rows in a text by a person's pattern of named groups, in time that no pattern and no line can stretch.

A pattern is read as parts between its gaps (`.*`); each part is looked for once, behind the one before. Within a part a
repeat takes what it can and gives nothing back, so that no part is tried in more than one way from one place.
"""

from __future__ import annotations

import re
from typing import Final

from weighbridge.core import SubjectError, dataclass, quoted

MAX_PATTERN: Final = 500
MAX_LINE: Final = 1000  # characters of a line that are looked at
MAX_REPEAT: Final = 1000
REMEDY: Final = r"write it as 'step (?P<step>\d+).*loss (?P<loss>\S+)': named groups of characters, and .* between them"
_TOKEN = re.compile(
    r"(?P<gap>\.[*+]\??)|(?P<set>\[\^?\]?(?:\\.|(?!--|&&|\|\||~~)[^]\\[])*\])|(?P<name>\(\?P<[A-Za-z_]\w*>)|(?P<open>\(\?:|\((?!\?))"
    r"|(?P<close>\))|(?P<repeat>[*+?]|\{\d{1,4}(?:,\d{0,4})?\})|(?P<one>\\[dDwWsStbB]|\\[^A-Za-z0-9]|[^\\()*+?{\[])"
)


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern that was found harmless; `parts` lie behind one another in a line."""

    parts: tuple[re.Pattern[str], ...]

    def row(self, line: str) -> dict[str, str] | None:
        """Return what the named groups hold in a line; None where the line is no row."""
        found: dict[str, str] = {}
        at = 0
        for part in self.parts:
            if (match := part.search(line, at, MAX_LINE)) is None:
                return None
            at = match.end()
            found |= {name: text.strip() for name, text in match.groupdict().items() if text is not None}
        return found


def line_pattern(text: str) -> LinePattern:
    """Read a pattern; refuse with `pattern` what is none, names no group, or could take long."""
    if not 0 < len(text) <= MAX_PATTERN:
        raise _refused(f"it has {len(text)} characters, at most {MAX_PATTERN} are read")
    parts, at, depth, last = [""], 0, 0, ""
    while at < len(text):
        if (token := _TOKEN.match(text, at)) is None:
            raise _refused(f"what stands at character {at + 1} is not read: {quoted(text[at : at + 12])}")
        kind, word, at = token.lastgroup or "", token[0], token.end()
        depth += (kind in ("name", "open")) - (kind == "close")
        if kind == "gap" and not depth:
            parts.append("")
        elif kind == "gap":
            parts[-1] += word[:2] + "+"
        elif kind == "repeat":
            parts[-1] += _repeat(word, last, at)
        else:
            parts[-1] += word + ("(?>" if kind in ("name", "open") else ")" if kind == "close" else "")
        last = word if kind == "repeat" else kind
    try:
        compiled = tuple(re.compile(part, re.ASCII) for part in parts if part)
    except (re.error, OverflowError) as problem:
        raise _refused(str(problem)) from None
    names = [name for part in compiled for name in part.groupindex]
    if not names or len(set(names)) < len(names):
        raise _refused("it names no group, or one twice")
    return LinePattern(compiled)


def _repeat(word: str, last: str, at: int) -> str:
    """Return a repeat that gives nothing back; only a single character may be repeated more than once."""
    most = max((int(number) for number in re.findall(r"\d+", word)), default=0)
    if last not in ("set", "one", "close") or (last == "close" and word != "?") or most > MAX_REPEAT:
        raise _refused(f"the repeat that ends at character {at} could take long: {word}")
    return word + "+"


def _refused(what: str) -> SubjectError:
    return SubjectError("pattern", f"the pattern of lines cannot be used: {what}", where="lines", remedy=REMEDY)
