"""What a sentence says of gates, by id or by number: in any case and order it is true of the ledger, or a problem."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from weighbridge.contract.layers import Found
from weighbridge.core import Outcome, Status, WeighbridgeError, dataclass
from weighbridge.core.data import table
from weighbridge.ledger.fold import RETIRED, lowest
from weighbridge.spec.citations import FORMULA, NUMBER, UNIT, agrees, citations
from weighbridge.spec.reading import Text, Unit, folded
from weighbridge.spec.tally import Stood, Tally, criteria, tally

TABLE = table("spec/statements")
WORDS: Mapping[str, tuple[tuple[Status, ...], Outcome | None]] = {
    word: (tuple(map(Status, means["statuses"])), Outcome(means["outcome"]) if "outcome" in means else None)
    for words, means in TABLE["words"].items()
    for word in words.split(", ")
}
ADJECTIVES = frozenset((*TABLE["adjectives"], *TABLE["drafted"]))
DRAFTED = frozenset((*TABLE["drafted"], *TABLE["verbs"]))  # which mean something in a draft alone
NUMERALS: Mapping[str, int] = {word: number for number, word in enumerate(TABLE["numerals"])} | {
    f"{ten}-{one}".rstrip("-"): 10 * tens + more
    for tens, ten in enumerate(TABLE["tens"], start=2)
    for more, one in enumerate(("", *TABLE["numerals"][1:10]))
}
SEE = "see: weighbridge status"


def form(name: str) -> str:
    """Return the pattern of a name in the table, with what it is made of."""
    lists = {"words": "|".join(sorted(WORDS, key=len, reverse=True)), "statuses": "|".join(Status)}
    lists |= {"numerals": "|".join(sorted(NUMERALS, key=len, reverse=True))}
    lists |= {"passing": "|".join(word for word, (_, outcome) in WORDS.items() if outcome is Outcome.PASS)}
    lists |= {"value": NUMBER, "unit": UNIT, "formula": FORMULA.pattern}
    return re.sub(r"(?<!\(\?P)<([a-z]+)>", lambda one: form(one[1]), TABLE["forms"].get(name) or lists[name])


GATE: str = TABLE["forms"]["gate"]
FORMS = {name: re.compile(form(name), re.IGNORECASE) for name in TABLE["forms"]}
TOKEN = FORMS["token"]
SHORT = re.compile(rf"\W*(?:{TOKEN.pattern})?\W*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """A gate, a status word or a number in a sentence, and what makes it one."""

    match: re.Match[str]
    word: str  # the status word, as it is written
    before: str  # what stands between it and the token before


def _plain(word: str) -> bool:
    return word.isupper() or word.lower() not in ADJECTIVES | DRAFTED


Places: TypeAlias = Mapping[str, Sequence[tuple[str, Stood]]]  # by gate: its instances


def statements(text: Text) -> Iterator[Found]:
    """Hold every sentence, row and heading against the ledger; a heading's gates are those of a bare status below."""
    places, families = _places(text)
    known = "|".join(re.sub("-", "[-_ ]", name) for name in places if name.find("-") > 2)
    head, before = list[re.Match[str]](), list[re.Match[str]]()
    drafted = [*TOKEN.finditer(" ".join(text.known.gates))]
    columns: list[str] = []
    for unit in text.units:
        said = _said(unit) if text.known.frozen else _spelled(text, _said(unit))
        if known:  # GATE_A and Gate A are GATE-A
            said = re.sub(rf"(?i)\b(?:{known})\b", lambda one: re.sub("[_ ]", "-", one[0]), said)
        named = [match for match in TOKEN.finditer(said) if _is_gate(match, places, families)]
        cells = said.split("|") if said.startswith("|") and not named else [said]
        if len(cells) == len(columns) > 1 and not re.search("[A-Za-z]", said):  # numbers below words
            pairs = zip(columns, cells, strict=True)
            cells = [f"{one} {cell}" for one, cell in pairs] if re.search(r"\d", said) else []
        else:
            columns = cells if unit.text.startswith("|") else []
        short = [cell for cell in cells if SHORT.fullmatch(cell)]
        prose = [cell for cell in cells if cell not in short]
        for part in ([" | ".join(short)] if len(short) > 1 else short) + prose:
            sentence = _Sentence(text, unit, part, places, families)
            ours = any(one.word.isupper() for one in sentence.tokens) or (text.draft and FORMS["ours"].search(part))
            yield from sentence.problems(before or head or (drafted if ours else []))
        if unit.text.startswith("#"):
            head = named
        before = named if named or re.search(r"\w", said) else before


def _said(unit: Unit) -> str:
    """Return a sentence without what is cited, the marks of Markdown and the targets of links."""
    text = unit.text
    for one in reversed(citations(text)):
        start = one.span[0] if one.pointer is not None or not one.id else text.rindex("[", *one.span)
        text = text[:start] + text[one.span[1] :]
    quoted = r"`(?:[^`\s]+ ){2,}[^`]*`|^- Tried against .*?, for (?=`)"  # code, and names of trials
    text = re.sub(quoted, lambda part: part[0] if re.search(GATE, part[0]) else "", text)
    text = re.sub(r"\]\([^()\s]{0,500}\)", "]", folded(text))
    return re.sub(r"[*`~\\]|(?<![A-Za-z])_|_(?![A-Za-z])", "", text)


def _spelled(text: Text, said: str) -> str:
    """Return a sentence with the ids of gates that it points at; in a draft the others, or those of its contract."""
    said = FORMS["range"].sub(r"\g<stem>\g<from>, \g<stem>\g<to>", FORMS["parted"].sub(r"\1 of \2 gates", said))
    named = {*re.findall(rf"\b{GATE}\b", said)} or {*text.known.gates}
    ours = {place.contract for place in text.known.stood if place.gate in text.known.gates}
    standing = {place: one for place, one in text.known.stood.items() if one.standing.status is not RETIRED}

    def ids(match: re.Match[str]) -> str:
        contracts = {place.contract for place in standing if place.contract == match["contract"]} or ours
        gates = (place.gate for place in standing if place.contract in contracts and not match["denied"])
        return ", ".join(dict.fromkeys(gate for gate in gates if match["whole"] or gate not in named)) or match[0]

    return FORMS["elsewhere"].sub(ids, said) if text.draft else said


def outcomes(unit: Unit, *, by_status: bool) -> set[Outcome]:
    """Return what a sentence says that gates came to, in words, or by a status that only that can give."""
    said = _said(unit)
    words = [match["word"] for match in TOKEN.finditer(said) if match["word"]]
    sure = [WORDS[word.lower()] for word in words if _plain(word) or word.lower() in ("green", "red")]
    given = {status: outcome for states, outcome in WORDS.values() if outcome for status in states} if by_status else {}
    came_to = [outcome or given.get(states[0]) for states, outcome in sure]
    return {*filter(None, came_to), *map(Outcome, re.findall(rf"\b(?:{'|'.join(Outcome)})\b", said))}


def _places(text: Text) -> tuple[Places, frozenset[str]]:
    places: dict[str, list[tuple[str, Stood]]] = {}
    for place, stood in text.known.stood.items():
        places.setdefault(place.gate.upper(), []).append((place.instance, stood))
    if any({*re.findall(rf"\b{GATE}\b", _said(unit))} - places.keys() for unit in text.units):
        found = criteria(text.known.stood, text.known.bundles, text.known.at)
        more = {name.upper(): members for name, members in found.items()}
        places = {**more, **places}  # no binding renames a gate
    return places, frozenset({"GATE", *(name.partition("-")[0] for name in places)})


def _is_gate(match: re.Match[str], places: Places, families: frozenset[str]) -> bool:
    name = match["gate"] or ""
    ours = name.partition("-")[0] in families or FORMS["stated"].match(match.string, match.end())
    return name.upper() in places or bool(name.isupper() and ours)


class _Sentence:
    """One sentence while it is looked at."""

    def __init__(self, text: Text, unit: Unit, said: str, places: Places, families: frozenset[str]) -> None:
        self.text, self.unit, self.said, self.places = text, unit, said, places
        self.tokens: list[Token] = []
        end = 0
        for match in TOKEN.finditer(said):
            token = Token(match, match["word"] or "", said[end : match.start()][-80:])
            if _is_gate(match, places, families) if match["gate"] else not token.word or self._means(token):
                self.tokens.append(token)
                end = match.end()
        self.gates = [one.match for one in self.tokens if one.match["gate"]]
        self.of_gates = bool(re.search(r"\bgates\b", said, re.IGNORECASE))

    def _means(self, token: Token) -> bool:
        """Return whether a word states something: what may, must or does in general is no statement."""
        word, before, after = token.word, token.before, self.said[token.match.end() :]
        if word.lower() in DRAFTED and not self._claims(word.lower(), before, after):
            return False
        if ((word.isupper() and word.isalpha()) or "_" in word) and word not in ("OK", "FINE"):
            planned = self.unit.line in self.text.planned and WORDS[word.lower()][1]
            named = WORDS[word.lower()][1] and re.match(r"\s+of\b", after)  # "a FAIL of GATE-X means …"
            return not (planned or named or word.lower() in ("red", "green", "live"))
        subject = self.said[: token.match.start() - len(before)]
        clause = re.split("[,;:]", " ".join((*re.split("[,;:]", subject)[-1].split()[-6:], before)))[-1]
        relative = FORMS["relative"].search(before)
        some = re.search(r"(?i)\b(?:every|each|no|the|these|our|all) gates?$", subject)
        apart = relative and (some or before[: relative.start()].strip(" ,"))
        noun = word.lower() in ("pass", "fail") and re.search(r"(?i)\b(?:an?|the|no|its|to|of|or|each)\s*$", before)
        general = noun or (word.lower() in ("pass", "passes", "fail", "fails") and FORMS["general"].match(after))
        predicate = FORMS["predicate"].search(before) or after.lstrip().startswith((":", "="))
        needs = word.lower() in ADJECTIVES and not predicate
        return not (FORMS["open"].search(clause) or apart or general or needs)

    def _claims(self, word: str, before: str, after: str) -> bool:
        """Return whether a word that only a draft must keep is said of what the gate looked at, or of the gate."""
        if word in TABLE["verbs"]:
            ahead = (before, self.said[: -len(word + after)])
            said = FORMS["alone"].match(after) and any(FORMS["swept"].fullmatch(one) for one in ahead)
        else:
            said = not FORMS["clause"].search(before)
        return self.text.draft and bool(said)

    def problems(self, pointed: Sequence[re.Match[str]]) -> Iterator[Found]:
        """Yield every statement that the ledger and what is cited contradict, or that cannot be read as one."""
        gates, said, last = list[re.Match[str]](), list[Token](), list[Token]()
        numbers, idle, counted = list[Token](), list[Token](), list[Token]()
        for token in self.tokens:
            counted = counted if FORMS["joined"].fullmatch(token.before) and not self.text.known.frozen else []
            if token.match["gate"]:
                if gates and said:
                    yield from self._of(gates, said)
                    gates, said, last = [], [], said if FORMS["alike"].search(token.before) else []
                gates.append(token.match)
                numbers = [one for one in numbers if one.match["noun"] and not one.match["quantity"]]
            elif not token.word:
                numbers.append(token)
            elif mine := [one for one in numbers if self._counts(one, token)] or counted:
                yield from self._counted(mine, token)
                numbers, idle, counted = [], [], mine
            else:
                said.append(token)
                idle += [] if gates else [token]
        if idle and (mine := [one for one in numbers if self._counts(one, idle[-1])]):
            yield from self._counted(mine, idle[-1])
        elif not self.gates and said and pointed:
            ahead, _, after = self.said.partition(said[0].word)
            more = len(after.split()) > 3 and not _plain(said[0].word)  # "it was broken by a cold cache"
            bare = re.search(r"\w", ahead) or not re.search("[a-z]{3}", after)
            form = FORMS["swept" if self.text.draft and WORDS[said[0].word.lower()][1] else "pointed"]
            yield from self._of(pointed, said) if form.fullmatch(ahead) and bare and not more else ()
        if gates and (said or last):
            yield from self._of(gates, said or last)

    def _counts(self, number: Token, word: Token) -> bool:
        """Return whether a number before or after a status word is one of gates."""
        match, (first, last) = number.match, sorted((number.match.span(), word.match.span()))
        gap = self.said[first[1] : last[0]]
        near, noun = FORMS["between"].fullmatch(gap), match["noun"]
        sure = WORDS[word.word.lower()][1] is None and _plain(word.word)
        whole = FORMS["whole"].fullmatch(gap)
        if quantity := (match["quantity"] or "").lower():
            some = quantity not in TABLE["definite"]
            late = quantity in ("the", "these", "our") and match.start() > word.match.start()
            rule = some and not (sure or FORMS["first"].fullmatch(self.said[: match.start()]))  # "where no gate passed"
            alone = sure and not some and not self.gates
            counts = (noun and not some and whole) or (near and (noun or self.of_gates or alone))
            return bool(counts and not late and not rule)
        if noun or self._scope(number):
            return sure or bool(whole)
        if self.gates:
            return False
        if match["bare"]:
            return bool(near and (sure or self.of_gates))
        apart = self.of_gates and not FORMS["others"].match(self.said, match.end())
        return bool(apart or (sure and (near or word.word.isupper())))

    def _scope(self, number: Token) -> str:
        """Return the word in capitals beside a number that ids of gates hold, as GPUTRAIN in `GPUTRAIN 7/7`."""
        ahead = re.search(r"\b([A-Z][A-Z0-9]{1,40})\s{1,3}$", self.said[: number.match.start()])
        end = number.match.end("of" if number.match["of"] else 0)
        after = re.match(r"\s{1,3}([A-Z][A-Z0-9]{1,40})\b", self.said[end:])
        words = (one[1] for one in (ahead, after) if one)
        return next((word for word in words if any(word in place.gate for place in self.text.known.stood)), "")

    def _counted(self, numbers: Sequence[Token], word: Token) -> Iterator[Found]:
        scope = next(filter(None, map(self._scope, numbers)), "")
        mine = ((place, one.standing) for place, one in self.text.known.stood.items() if scope in place.gate)
        count = tally(dict(mine))
        states = WORDS[word.word.lower()][0]
        number = sum(count.counts[status] for status in states)
        number = count.gates - number if FORMS["denied"].search(word.before) else number
        self.text.counted["counts"] += 1
        if not all(_is(one.match, number, count, of_more=len(numbers) > 1) for one in numbers):
            ends = sorted(end for one in (*numbers, word) for end in one.match.span())
            before = re.search(rf"{scope}\s*$", self.said[: ends[0]])
            says = f"{before[0] if before else ''}{self.said[ends[0] : ends[-1]]}".strip()
            named = word.word if WORDS[word.word.lower()][1] else " or ".join(states)
            what = f"says {says!r}; the ledger has {number} of {count.gates} {named}"
            yield self.text.found(self.unit.line, "tally-mismatch", what, SEE)

    def _of(self, gates: Sequence[re.Match[str]], said: Sequence[Token]) -> Iterator[Found]:
        for gate in gates:
            name, instance = gate["gate"].upper(), gate["instance"]
            members = [one for of, one in self.places.get(name, ()) if instance in (None, of)]
            self.text.counted["statuses"] += 1
            absent = f"{name} is not in the ledger, nor bound by gates that all are, so has no status"
            wrong = self._contradicted(name, instance or "", members, said) if name in self.places else absent
            if wrong:
                yield self.text.found(self.unit.line, "status-mismatch", wrong, f"{SEE} why {name}")

    def _contradicted(self, name: str, instance: str, members: Sequence[Stood], said: Sequence[Token]) -> str:
        """Return how the ledger contradicts the last word, as what is claimed, or those before it, as what once was."""
        gate = f"{name}[{instance}]" if instance else name
        statuses = [one.standing.status for one in members if one.standing.status]
        now = lowest(statuses) if statuses else None
        past = frozenset[Status]().union(*(one.past for one in members))
        for word in said:
            states, outcome = WORDS[word.word.lower()]
            denied = FORMS["denied"].findall(word.before) + re.findall(r"(?i)\bneither\b(?=.*\bnor\b)", self.said)
            none = [] if self.gates else re.findall(r"(?i)^\W*(?:no|none|nothing)\b", self.said)
            denied, swept = denied + none, none and self.text.draft
            if len(denied) % 2:
                if swept and outcome is Outcome.FAIL and now not in WORDS["passed"][0]:
                    return f"{gate} is {now}, so nothing that it looked at passed"
                never = "never" in map(str.lower, denied) and {*states} & past
                if never or (word is said[-1] and now in states):
                    return f"{gate} is {now}, which is denied here" if not never else f"{gate} was {' or '.join(never)}"
            elif outcome and self._cited(name, instance, outcome):
                continue
            elif word is said[-1] and now not in states:
                return f"{gate} is {now or 'not in the ledger'}, not {word.word if outcome else ' or '.join(states)}"
            elif word is not said[-1] and not {*states} & past:
                return f"{gate} was never {' or '.join(states)}"
        return ""

    def _cited(self, gate: str, instance: str, outcome: Outcome) -> bool:
        here = {one.id for one in citations(self.unit.text)}
        for id_ in self.text.cited:
            with contextlib.suppress(WeighbridgeError):  # one that cannot be read is reported where it is cited
                findings = self.text.known.bundles.get(id_).findings
                mine = (one for one in findings if one.gate.upper() == gate and instance in ("", one.instance))
                if any(id_ in here or one.verdict.outcome is outcome for one in mine):
                    return True
        return False


def _is(match: re.Match[str], number: int, count: Tally, *, of_more: bool) -> bool:
    """Return whether a number is that of the ledger; of several the one of all gates may be among them."""
    wholes = tuple(filter(None, (count.gates, count.gates - count.counts[RETIRED])))
    if match["quantity"]:
        wanted = {"all": wholes, "none": (0,), "both": tuple({2} & {*wholes})}
        found = wanted.get(TABLE["quantities"].get(match["quantity"].lower()), ())
        denied = re.search(r"(?i)\bnot\s$", match.string[: match.start()])
        return bool(found) and (number in found) is not bool(denied)
    if match["share"]:
        return any(agrees(match["share"], 100 * number / whole) for whole in wholes)
    value = _numeral(match["count"] or match["bare"])
    if match["count"]:
        return value == number and _numeral(match["of"]) in (count.gates, *wholes)
    return value == number or bool(of_more and match["noun"] and value in wholes)


def _numeral(text: str) -> int:
    return NUMERALS[text.lower()] if text.lower() in NUMERALS else int(text.replace(",", ""))
