"""What anybody's Markdown text claims, checked: citations, statuses, counts of gates, sums, logarithms, hypotheses."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import TypeAlias

from weighbridge.contract.layers import Found
from weighbridge.core import WeighbridgeError, dataclass
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.review import State
from weighbridge.evidence.statement import moment
from weighbridge.ledger.sections import Section
from weighbridge.spec.citations import NUMBER, Bundles, Citation, agrees, citations, computed, printed, resolve
from weighbridge.spec.drafting import HEADS, TABLES, WRITTEN
from weighbridge.spec.reading import Known, Looked, Text, Unit, folded, found, units_of
from weighbridge.spec.statements import FORMS, GATE, NUMERALS, form, outcomes, statements
from weighbridge.spec.tally import block

VERDICT = re.compile(r"/findings/(?P<index>\d+)/(?:measured|limit|enough)")
Wrong: TypeAlias = Iterator[tuple[str, str]]  # what is wrong, and the remedy
Figure: TypeAlias = tuple[str, str, str, str]
COUNTS = ("/counted", "/of")  # where pointers to counts end
HOLDING = ("logarithm", "inverse", "sum", "held")  # forms of what holds its numbers itself, or names something
OPEN = "OPEN"
STATES = (OPEN, "ELIMINATED", "CONFIRMED", "REFUTED")
DECIDED_BY = {"CONFIRMED": 2, "REFUTED": 3, "ELIMINATED": 3}  # the columns of an experiment
SIGNS = {"<": lt, "<=": le, "≤": le, "=": eq, "≥": ge, ">=": ge, ">": gt}
CONDITION = re.compile(rf"(?P<sign>[<>]=?|[≤=≥]) ?(?P<value>{NUMBER})(?: [^\d]*)?")


def look(text: str, where: str, known: Known, first_line: int = 1) -> Looked:
    """Check every claim of a text."""
    read = Text(text, where, known, first_line)
    checks = [_cited, undecided, statements, _sums, _logarithms, _refuted]
    checks += [_uncited] if known.strict else []
    problems = {problem for check in checks for problem in check(read)}
    return Looked(problems=tuple(sorted(problems)), counted=read.counted)


def _cited(text: Text) -> Iterator[Found]:
    sound: dict[str, bool] = {}
    for unit in text.units:
        found = citations(unit.text)
        text.counted["citations"] += len(found)
        if len(found) != len(re.findall(r"\[(?:ev:|files:|=)", unit.text)):
            what = "has a citation that cannot be read"
            yield text.found(unit.line, "citation-form", what, "write [ev:ID12#/POINTER]")
        for one in found:
            if one.files:
                yield from _files(text, unit, one)
            if one.formula and computed(one.formula) is None:
                yield text.found(unit.line, "citation-form", f"{one.formula!r} is no ln, log2 or log10 of a number")
            if one.formula:
                yield from _logarithm(text, unit.line, one.formula, one.text, one.unit)
            if one.id and one.id not in sound:
                problems = tuple(_unsound(text, unit, one.id))
                sound[one.id] = all(problem.warning for problem in problems)
                yield from problems
            if sound.get(one.id):
                yield from _evidence(text, unit, one)


def _unsound(text: Text, unit: Unit, id_: str) -> Iterator[Found]:
    try:
        bundle, answer = text.known.bundles.get(id_), text.known.bundles.rederivation(id_)
    except WeighbridgeError as problem:
        yield text.found(unit.line, problem.code, f"[ev:{id_}]: {problem.what}", problem.remedy)
        return
    if answer.state is not State.HOLDS:  # a kind may have a new version since a section landed, which is never edited
        warning = text.known.frozen and answer.state is State.CANNOT_SAY
        what = f"[ev:{id_}]: {answer.says}"
        yield text.found(unit.line, "not-rederivable", what, "run verify again", warning=warning)
    if bundle.statement.tool.dirty:
        what = f"[ev:{id_}]: measured by a tool with uncommitted changes, so nobody else can have it"
        yield text.found(unit.line, "dirty-tool", what, "commit them, run verify again")


def _evidence(text: Text, unit: Unit, one: Citation) -> Iterator[Found]:
    bundle = text.known.bundles.get(one.id)
    yield from _whole(text, unit, bundle, alone=one.pointer is None)
    if one.pointer is None:
        return
    if not one.text:
        yield text.found(unit.line, "citation-form", f"no value stands before {one.pointer}", "print the value")
        return
    try:
        value = resolve(bundle, one)
    except WeighbridgeError as problem:
        yield text.found(unit.line, problem.code, f"{problem.where} {problem.what}", problem.remedy)
        return
    if not agrees(one.text, value):
        what = f"says {one.text}, the evidence {value if isinstance(value, float) else str(value)[:80]}"
        yield text.found(unit.line, "number-mismatch", f"{what} [ev:{one.id}#{one.pointer}]", "print what was measured")
    verdict = VERDICT.fullmatch(one.pointer) if one.file == manifest.VERDICTS else None
    size = one.file == statement.FILE and one.pointer.endswith("/size")
    wanted = bundle.findings[int(verdict["index"])].verdict.unit if verdict else "bytes" if size else ""
    plain = bool(verdict) or one.pointer.endswith(COUNTS) or not re.search("percent|share", one.pointer)
    # A unit that only its kind knows (`wraps`, `relative L2`) may stand before or after the citation.
    before, after = unit.text[slice(*one.span)].rpartition(" [")[0], unit.text[one.span[1] :]
    named = before.endswith(f" {wanted}") or re.match(rf" {re.escape(wanted)}(?!\w)", after)
    more = FORMS["more"].search(f"{before.rpartition(one.text)[2]} {after}")
    count = one.pointer.endswith(COUNTS) and one.unit not in ("", "files")
    other = (verdict or size) and one.unit != wanted and (one.unit or not named)
    if other or count or (plain and wanted != "%" and more):
        has = one.unit or (more and more[0].strip())
        what = f"{one.text} has {f'the unit {has}' if has else 'no unit'}; it was measured in {wanted or 'none'}"
        measured = one.text if agrees(one.text, value) else printed(value)  # 232.4 kB are not 232.4 bytes
        yield text.found(unit.line, "unit-mismatch", what, f"write {measured} {wanted}".rstrip())


def _whole(text: Text, unit: Unit, bundle: Bundle, *, alone: bool) -> Iterator[Found]:
    """Compare what a sentence says of gates with a bundle that it cites, `alone` where as a whole."""
    gates = set(re.findall(rf"\b{GATE}", folded(unit.text)))
    came_to = [(finding.gate, finding.verdict.outcome) for finding in bundle.findings]
    judged = {gate: {outcome for of, outcome in came_to if of == gate} for gate, _ in came_to}
    stated = outcomes(unit, by_status=alone)
    if alone and gates and not gates & judged.keys():
        what = f"bundle {bundle.id[:12]} did not judge {', '.join(sorted(gates))}"
        yield text.found(unit.line, "evidence-irrelevant", what, "cite a bundle that did")
    for gate in sorted(gates & judged.keys()):
        if stated and not (judged[gate] <= stated if alone else stated <= judged[gate]):
            what = f"{gate} came to {', '.join(sorted(judged[gate]))} in bundle {bundle.id[:12]}"
            yield text.found(unit.line, "evidence-contradicts", what, "say what the bundle says")


def _files(text: Text, unit: Unit, one: Citation) -> Iterator[Found]:
    if text.known.frozen:
        return  # it was counted when the section landed, and files may be added since
    pattern = one.files.strip()
    inside = not Path(pattern).is_absolute() and ".." not in Path(pattern).parts
    try:
        count = sum(path.is_file() for path in Path().glob(pattern)) if inside else 0
    except (ValueError, OSError):
        yield text.found(unit.line, "citation-form", f"{pattern!r} is no pattern of files")
        return
    if not agrees(one.text, count):
        yield text.found(unit.line, "count-mismatch", f"says {one.text or 'nothing'}, {pattern} matches {count} files")


def _sums(text: Text) -> Iterator[Found]:
    """Check tallies, and every sum that is written out; one that is called unchanged must be the one before."""
    for line, shown in text.blocks:
        text.counted["tallies"] += 1
        if shown != block(text.known.stood).rstrip():
            yield text.found(line, "tally-mismatch", "is not the tally of the ledger", "draft or render it again")
    before: list[Decimal] = []
    for unit in text.units:
        for match in FORMS["sum"].finditer(folded(unit.text)):
            signed = re.findall(rf"(minus|[−-]\s)?\s*({form('amount')})", match["terms"])
            terms = [Decimal(number.replace(",", "")) * (-1 if sign else 1) for sign, number in signed]
            said = Decimal((match["sum"] or "0").replace(",", ""))
            places = [-int(one.as_tuple().exponent) for one in (*terms, said)]
            rounded = sum(Decimal(5).scaleb(-1 - one) for one in places if one)
            text.counted["sums"] += 1
            if match["sum"] and abs(sum(terms) - said) > rounded:
                yield text.found(unit.line, "does-not-add", f"{match[0].strip()!r}: that is {sum(terms)}")
            if "unchanged" in unit.text and before and terms != before:
                was, now = (f"{' + '.join(map(str, some))} = {sum(some)}" for some in (before, terms))
                yield text.found(unit.line, "does-not-add", f"is called unchanged; it was {was} and is {now}")
            before = terms


def _logarithms(text: Text) -> Iterator[Found]:
    for unit in text.units:
        for match in (one for name in ("logarithm", "inverse") for one in FORMS[name].finditer(unit.text)):
            text.counted["logarithms"] += 1
            yield from _logarithm(text, unit.line, f"{match['log']} {match['of']}", match["value"], match["unit"] or "")
        for match in FORMS["named"].finditer(unit.text):
            what = f"{match[0]} names no number, so it cannot be checked"
            yield text.found(unit.line, "uncited", what, "write ln(151936) = 11.93 instead", warning=True)


def _logarithm(text: Text, line: int, formula: str, value: str, named: str) -> Iterator[Found]:
    if (found := computed(formula)) is None:
        return
    exact, unit = found
    other = "log2" if formula.startswith("ln") else "ln"
    wrong, _ = computed(re.sub(r"^\w+", other, formula)) or (exact, "")
    if not agrees(value, exact):
        mixed = f"; {value} is the {other}" if agrees(value, wrong) else ""
        what = f"says {value}, {formula} is {exact:.4g} {unit}".rstrip() + mixed
        yield text.found(line, "number-mismatch", what, f"write {exact:.4g} {unit}".rstrip())
    elif named and named != unit:
        yield text.found(line, "unit-mismatch", f"{formula} is in {unit or 'no unit'}, not in {named}")


def _refuted(text: Text) -> Iterator[Found]:
    for unit in text.units:
        for name, by in text.known.refuted.items():
            named = re.search(rf"{re.escape(name)}(?![\w-])", unit.text)
            if named and not re.search("refute|supersede", unit.text, re.IGNORECASE):
                yield text.found(unit.line, "refuted", f"builds on {name}, which {by}", "cite the later section")


def _uncited(text: Text) -> Iterator[Found]:
    """Yield the numbers of the author's own prose that nothing holds: neither cited, nor a figure of the section."""
    remedy = "cite where it was measured: [ev:ID12#/POINTER]"
    drafted = WRITTEN if text.known.gates else ()  # whose lines follow from the bundles
    cites = [one for unit in text.units for one in citations(unit.text)]
    known = {*_known(text, cites)}
    for pair in (pair for unit in text.units if unit.head in drafted for pair in FORMS["tried"].findall(unit.text)):
        known |= {(pair[0], "", "caught", ""), ("/".join(pair), "", "caught", "")}
    ofgates = FORMS["ofwords" if text.known.frozen else "ofgates"]
    mine = (one for one in (*text.units, *text.fenced) if one.head not in drafted and one.line not in text.planned)
    for unit in mine:
        shown = unit.text if text.known.frozen else folded(unit.text)
        shown += "`" * bool(unit.kind)  # a line of a fence is code, too
        found, table = citations(shown), unit.head in TABLES  # of what is asked, which is no claim
        named = (one.span() for name in HOLDING for one in FORMS[name].finditer(shown))
        within = {at for span in (*(one.span for one in found), *named) for at in range(*span)}
        for match in FORMS["bare"].finditer(shown):
            said = [one.lower() for one in (match["number"], match["of"]) if one]
            numbers = [str(NUMERALS.get(one, one.replace(",", ""))) for one in said]
            sound = (
                match.start() in within
                or any(match[0] in (one.pointer or "") for one in found)  # `7 of 7 bits`
                or ofgates.match(shown, match.end())  # the ledger knows
                or _is_figure(match, numbers, known, text)
            )
            over = bool(numbers) and Decimal(numbers[0]) > Decimal(numbers[-1])
            asked = table and not (match["of"] and unit.line in text.decided)
            if (over or not sound) and (match["unit"] or match["attached"] or not asked):
                why = "more than its whole" if over else "neither cited nor a figure"
                warning = asked or (text.known.frozen and not numbers)  # its day knew fewer words
                yield text.found(unit.line, "uncited", f"{match[0]!r} {why}", remedy, warning=warning)


def _known(text: Text, cites: Sequence[Citation]) -> Iterator[Figure]:
    """Yield each figure of a section with its unit, the form that it stands in, and what it counts where that is said.

    A count is one of its whole, and of what its finding measured.
    """
    at = {(one.id, one.pointer): one.text.replace(",", "") for one in cites}
    for one in cites:
        figure, pointer = at[one.id, one.pointer], one.pointer or ""
        whole, unit = _counted(text, one)
        name = unit if pointer.endswith(COUNTS) else pointer.removesuffix("/value").rpartition("/")[2]
        thing = name if FORMS["things"].fullmatch(name) else ""
        yield one.text.replace(",", ""), one.unit, pointer.endswith(COUNTS) * "counts", thing
        if pointer.endswith("/counted"):
            whole = at.get((one.id, f"{pointer.removesuffix('counted')}of"), whole)
            yield f"{figure}/{whole}", "", "counts", thing
            if figure.isdigit() and whole.isdigit() and (missed := int(whole) - int(figure)) > 0:
                yield from ((said, "", "missed", thing) for said in (f"{missed}", f"{missed}/{whole}"))


def _counted(text: Text, one: Citation) -> tuple[str, str]:
    """Return of how many a finding counted whose count is cited, and what it counted."""
    index = re.fullmatch(r"/findings/(\d{1,9})/(?:counted|of)", one.pointer or "")
    with contextlib.suppress(WeighbridgeError, IndexError):  # what cannot be read is reported where it is cited
        verdict = text.known.bundles.get(one.id).findings[int(index[1])].verdict if index else None
        return (str(verdict.of), verdict.unit) if verdict else ("", "")
    return "", ""


def _is_figure(match: re.Match[str], numbers: Sequence[str], known: set[Figure], text: Text) -> bool:
    """Return whether numbers are figures of the section, in their unit; those of counts only where they count."""
    (start, end), of = match.span(), match["unit"] or match["attached"]
    near = f"{match.string[max(start - 8, 0) : start]}\0{match.string[end : end + 60]}"
    beside = {"", *(name for name in ("counts", "caught", "missed") if FORMS[name].search(near))}
    beside |= {"counts"} if match["of"] or text.known.frozen else set()
    noun = None if text.known.frozen else FORMS["counted"].match(match.string, end)
    things = ("", noun["thing"].lower()) if noun else ()
    mine = [one for one in known if of in (None, one[1]) and one[2] in beside]
    figures = {number for number, _, _, thing in mine if not noun or thing in things}
    both = bool(match["of"]) and not text.known.frozen  # two counts make no count of one by the other
    sound = "/".join(numbers) in figures if both else figures.issuperset(numbers)
    return bool(numbers) and not match["times"] and sound


@dataclass(frozen=True, slots=True)
class HypothesisRow:
    """One row of a table of hypotheses, with its line."""

    line: int
    name: str
    words: str
    state: str
    evidence: str


@lru_cache(maxsize=4096)  # each text is read once however many sections follow it
def tables(text: str, first_line: int = 1) -> tuple[list[HypothesisRow], dict[int, list[str]]]:
    """Return the hypotheses of a text, and its experiments by their lines."""
    head, hypotheses, experiments = "", list[HypothesisRow](), dict[int, list[str]]()
    for one in units_of(text, first_line):
        cells = [cell.strip() for cell in one.text.strip("|").split("|")]
        if one.kind or not one.text.startswith("|") or set("".join(cells)) <= set("-: "):
            continue
        if cells in HEADS or len(cells) != len(HEADS[0]):
            head = cells[0] if cells in HEADS else ""
        elif head == HEADS[0][0]:
            hypotheses.append(HypothesisRow(one.line, *cells))
        elif head:
            experiments[one.line] = cells
    return hypotheses, experiments


def undecided(text: Text) -> Iterator[Found]:
    """Check the tables of one text: decided ones have evidence, open ones an experiment that would decide them."""
    hypotheses, experiments = tables(text.text, text.first_line)
    text.planned |= experiments.keys()
    text.decided |= {one.line for one in hypotheses if one.state != OPEN and not text.known.frozen}
    evidence = r"\[ev:[^\]]*#/|\bA-\d" if text.known.strict and not text.known.frozen else r"\[ev:|A-"
    planned = {name for name, measure, yes, no in experiments.values() if measure and yes and no and yes != no}
    for one in hypotheses:
        text.counted["hypotheses"] += 1
        if one.state not in STATES:
            what = f"{one.name} is {one.state or 'nothing'}"
            yield text.found(one.line, "hypothesis", what, f"write one of {', '.join(STATES)}")
        elif one.state == OPEN and one.name not in planned:
            what = f"{one.name} is OPEN, and no experiment says which values would confirm and which refute it"
            yield text.found(one.line, "hypothesis", what, "write it under Next experiment before it runs")
        elif one.state != OPEN and not re.search(evidence, one.evidence):
            what = f"{one.name} is {one.state} without {'a figure of its ' if '[ev:' in one.evidence else ''}evidence"
            yield text.found(one.line, "hypothesis", what, "cite it: [ev:ID12#/POINTER]")


def contradicted(mine: Section, earlier: Sequence[Section], known: Known) -> Iterator[Found]:
    """Compare the hypotheses of a section with those of the sections before it, and with their experiments."""
    rows = tables(mine.body, mine.first_line)[0]
    before: dict[str, tuple[HypothesisRow, Section]] = {}
    planned: dict[str, list[str]] = {}
    for section in earlier if rows else ():
        then, experiments = tables(section.body)
        before |= {row.name: (row, section) for row in then}
        planned |= {cells[0]: cells for cells in experiments.values()}
    for row in rows:
        if row.name in before:
            wrong = (*_against(row, *before[row.name], mine, known), *_undeserved(row, planned.get(row.name)))
            yield from (found(str(mine.path), "hypothesis", what, remedy, row.line) for what, remedy in wrong)


def _against(row: HypothesisRow, then: HypothesisRow, section: Section, mine: Section, known: Known) -> Wrong:
    at, id_ = f"§{section.number}", section.about.id
    if row.words != then.words:
        yield f"{row.name} is another hypothesis in {at}: {then.words}", "give this one an id of its own"
    elif then.state == OPEN and row.state != OPEN and not _measured_after(row, section, known.bundles):
        what = f"{row.name} is {row.state} by nothing that was measured after {at} said what would decide it"
        yield what, "run the experiment, and cite it"
    elif OPEN != then.state != row.state and id_ not in {*mine.about.refutes, *mine.about.supersedes, *known.refuted}:
        what = f"{row.name} is {row.state}; {at} says that it is {then.state}, and is not refuted"
        yield what, f"name it under refutes: {id_}"


def _undeserved(row: HypothesisRow, experiment: list[str] | None) -> Wrong:
    """Compare the first figure of a decided row with the value that its experiment named, where it named one."""
    condition = CONDITION.fullmatch(experiment[DECIDED_BY[row.state]] if experiment and row.state in DECIDED_BY else "")
    figure = next((one.text for one in citations(row.evidence) if re.fullmatch(NUMBER, one.text)), None)
    figures = [float(re.sub("[,_]", "", one)) for one in (figure, condition["value"])] if condition and figure else []
    if condition and figures and not SIGNS[condition["sign"]](*figures):
        what = f"{row.name} is {row.state} by {figure}; the experiment said {condition[0]}"
        yield what, "write the state that the value gives"


def _measured_after(row: HypothesisRow, section: Section, bundles: Bundles) -> bool:
    landed = moment(section.about.landing.at)
    for id_ in (one.id for one in citations(row.evidence) if one.id):
        with contextlib.suppress(WeighbridgeError):  # a bundle that cannot be read is reported where it is cited
            stated = bundles.get(id_).statement
            began = [stated.started, *(subject.started for subject in stated.subjects if subject.started)]
            if min(map(moment, began)) > landed:
                return True
    return False
