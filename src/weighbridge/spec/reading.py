"""A Markdown text cut into its own claims: sentences, list items and rows, without fences, comments and quotations."""

import html
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate

from weighbridge.contract.layers import Found
from weighbridge.core import dataclass, field
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.spec.citations import Bundles, citations
from weighbridge.spec.tally import BEGIN, END, Stood

QUOTE, FENCES = "<!-- weighbridge:quote -->", ("```", "~~~")
LOOK_ALIKE = str.maketrans("АВЕЗІЈКМНОРЅТУХаеорсухіѕјСΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABE3IJKMHOPSTYXaeopcyxisjCABEZHIKMNOPTYX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a text is compared with. `refuted` maps what may no longer be built on to what says so."""

    bundles: Bundles
    stood: Mapping[LedgerPlace, Stood]
    at: str = ""  # when it landed, or now
    refuted: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False  # whether a number with a unit needs a citation
    gates: tuple[str, ...] = ()  # of which a draft speaks where a sentence names none
    frozen: bool = False  # whether files, which may be added since, are not counted


@dataclass(frozen=True, slots=True)
class Unit:
    """One sentence, list item or row of a table, with the line that it begins on, and the heading above it."""

    line: int
    text: str
    head: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found wrong, and how many claims of each sort were looked at."""

    problems: tuple[Found, ...]
    counted: Mapping[str, int]


class Text:
    """One text while it is checked: its own sentences, and what was looked at in it."""

    def __init__(self, text: str, where: str, known: Known, first_line: int = 1) -> None:
        self.where = where
        self.known = known
        self.units = tuple(units_of(text, first_line))
        self.fenced = tuple(units_of(text, first_line, fences=True)) if known.strict and not known.frozen else ()
        spans = _between(text, BEGIN, END)
        self.blocks = tuple((first_line + text.count("\n", 0, start), text[start:stop]) for start, stop in spans)
        self.counted: Counter[str] = Counter()
        self.cited = {one.id for unit in self.units for one in citations(unit.text)} - {""}
        self.planned: set[int] = set()  # lines of what is still to be measured

    def found(self, line: int, code: str, what: str, remedy: str = "", *, warning: bool = False) -> Found:
        """Return a problem at a line."""
        return found(self.where, code, what, remedy, line, warning=warning)


def found(where: str, code: str, what: str, remedy: str = "", line: int = 1, *, warning: bool = False) -> Found:
    """Return a problem at a line of a text."""
    return Found(file=where, line=line, column=1, code=code, what=what, remedy=remedy, warning=warning)


def units_of(text: str, line: int = 1, *, fences: bool = False) -> Iterator[Unit]:
    """Yield a text's own sentences; a paragraph is joined before it is cut. Of `fences`, the rows inside of them."""
    text = _without(_without(text, BEGIN, END), "<!--", "-->")
    fenced = quoted = False
    joined: list[str] = []
    head, start = "", line
    for at, raw in enumerate([*text.split("\n"), ""], start=line):
        row = raw.strip()
        fence = row.startswith(FENCES)
        fenced, quoted = fenced is not fence, row == QUOTE or (quoted and row.startswith(">"))
        alone = row.startswith(("|", "#", "- ", "* ", "+ ", ">")) or re.match(r"\d+[.)] ", row)
        if joined and (not row or alone or fence or fenced or quoted):
            head = joined[0] if joined[0].startswith("#") else head
            begins = list(accumulate(len(one) + 1 for one in joined))
            for one in re.finditer(r"\S.*?(?:(?<=[.;!?])(?=\s+(?!\[))|$)", "" if fences else " ".join(joined)):
                yield Unit(start + bisect(begins, one.start()), one[0], head)
            joined = []
        if fences and fenced and not fence:
            yield Unit(at, row, head)
        if row and not (fence or fenced or quoted):
            start = start if joined else at
            joined.append(row)


@cache
def _seen(char: str) -> str:
    """Return what a character looks like: a plain letter, dash or space, or nothing."""
    whole = unicodedata.decomposition(char).startswith(("<super", "<frac"))
    plain = char if whole else unicodedata.normalize("NFKD", char)
    dash, sign = " - " if char in "—―" else "-", "-" if char == "−" else char
    kinds = {"Mn": "", "Cf": "", "Zs": " ", "Pd": dash, "Sm": sign}
    return "".join(kinds.get(unicodedata.category(one), one) for one in plain).translate(LOOK_ALIKE)


def folded(text: str) -> str:
    """Return a text in the letters that a reader sees: without tags, entities, hidden characters and look-alikes."""
    return "".join(map(_seen, html.unescape(re.sub(r"</?[A-Za-z][^<>]{0,200}>", "", text))))


def _between(text: str, begin: str, end: str) -> Iterator[tuple[int, int]]:
    """Yield where each part from `begin` to `end` stands, in one pass."""
    start = text.find(begin)
    while start >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
        yield start, stop + len(end)
        start = text.find(begin, stop + len(end))


def _without(text: str, begin: str, end: str) -> str:
    """Return a text with such parts blank, its lines still counted, and the mark of a quotation kept."""
    shown, at = [], 0
    for start, stop in _between(text, begin, end):
        part = text[start:stop]
        shown += [text[at:start], part if part == QUOTE else "\n" * part.count("\n")]
        at = stop
    return "".join((*shown, text[at:]))
