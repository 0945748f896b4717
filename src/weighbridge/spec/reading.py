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
from weighbridge.spec.tally import TALLY, Stood

QUOTE, FENCED, LISTED = "<!-- weighbridge:quote -->", "```", r"\d{1,9}[.)] "
ROW, SENTENCE = r".+", rf"(?:\A{LISTED})?\S.*?(?:(?<=[.;!?])(?=\s+(?!\[))|$)"  # a row of a table is not cut
FENCE = r"^[ \t]*(?P<fence>(?P<mark>[`~])(?P=mark){2,})(?!(?<=`)[^`\n]*`)"
# Whichever begins first: a fence may show a comment, and within a line `<!--` may be code.
SPANS = re.compile(
    rf"(?ms)(?P<kept>{FENCE}.*?(?:\n[ \t]*(?P=fence)(?P=mark)*[ \t]*$|\Z)|^[ \t]*{QUOTE})|{TALLY.pattern}"
    "|^[ \t]*<!--.*?-->|<!--(?:(?!<!--)[^`])*?-->"
)
LOOK_ALIKE = str.maketrans("АВЕЗІЈКМНОРЅТУХаеорсухіѕјСΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABE3IJKMHOPSTYXaeopcyxisjCABEZHIKMNOPTYX")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a text is compared with. `refuted` maps what may no longer be built on to what says so."""

    bundles: Bundles
    stood: Mapping[LedgerPlace, Stood]
    at: str = ""  # when it landed, or now
    refuted: Mapping[str, str] = field(default_factory=dict)
    strict: bool = False  # whether a number with a unit needs a citation
    gates: tuple[str, ...] = ()  # of which a section speaks where a sentence names none
    frozen: bool = False  # whether files, which may be added since, are not counted


@dataclass(frozen=True, slots=True)
class Unit:
    """One sentence, list item or row of a table, with the line that it begins on, and the words of its heading."""

    line: int
    text: str
    head: str = ""
    kind: str = ""  # FENCED or QUOTE, of what is no claim of the text's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found wrong, and how many claims of each sort were looked at."""

    problems: tuple[Found, ...]
    counted: Mapping[str, int]


class Text:
    """One text while it is checked: its own sentences, and what was looked at in it."""

    def __init__(self, text: str, where: str, known: Known, first_line: int = 1) -> None:
        self.text, self.first_line = text, first_line
        self.where = where
        self.known = known
        units = tuple(units_of(text, first_line))
        self.units = tuple(one for one in units if not one.kind)
        self.fenced = tuple(one for one in units if one.kind == FENCED and known.strict and not known.frozen)
        blocks = TALLY.finditer(text)
        self.blocks = tuple((first_line + text.count("\n", 0, one.start()), one[0]) for one in blocks)
        self.counted: Counter[str] = Counter()
        self.cited = {one.id for unit in self.units for one in citations(unit.text)} - {""}
        self.draft = bool(known.gates) and not known.frozen  # a section that may still be written otherwise
        self.planned: set[int] = set()  # lines of what is still to be measured
        self.decided: set[int] = set()  # lines of hypotheses that a draft says are decided

    def found(self, line: int, code: str, what: str, remedy: str = "", *, warning: bool = False) -> Found:
        """Return a problem at a line."""
        return found(self.where, code, what, remedy, line, warning=warning)


def found(where: str, code: str, what: str, remedy: str = "", line: int = 1, *, warning: bool = False) -> Found:
    """Return a problem at a line of a text."""
    return Found(file=where, line=line, column=1, code=code, what=what, remedy=remedy, warning=warning)


def units_of(text: str, line: int = 1) -> Iterator[Unit]:
    """Yield a text's sentences, a paragraph joined before it is cut, and each row that is fenced or quoted."""
    fence = head = ""
    quoted, begun = False, line
    joined: list[str] = []
    last = text.rfind("-->") + 3
    shown = SPANS.sub(lambda part: part["kept"] or "\n" * part[0].count("\n"), text[:last]) + text[last:]
    for at, raw in enumerate([*shown.split("\n"), ""], start=line):
        row, opened = raw.strip(), re.match(FENCE, raw)
        fenced = bool(fence or opened)
        quoted = not fenced and (row == QUOTE or (quoted and row.startswith(">")))
        within = joined and not re.match(LISTED, joined[0])  # a paragraph, which only a list from 1 on interrupts
        alone = row.startswith(("|", "#", "- ", "* ", "+ ", ">")) or re.match(r"1[.)] " if within else LISTED, row)
        if joined and (not row or alone or fenced or quoted or joined[0].startswith("#")):
            begins = list(accumulate(len(one) + 1 for one in joined))
            for one in re.finditer(ROW if joined[0].startswith("|") else SENTENCE, " ".join(joined)):
                yield Unit(begun + bisect(begins, one.start()), one[0], head)
            joined = []
        if fenced or quoted:
            yield Unit(at, row, head, FENCED if fenced else QUOTE)
        elif row:
            head = folded(row).strip("#*_`:. ") if row.startswith("#") else head
            begun = begun if joined else at
            joined.append(row)
        ends = fence and row.startswith(fence) and not row.strip(fence[0])
        fence = "" if ends else fence or (opened["fence"] if opened else "")


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
