"""What anybody's Markdown text claims, checked: citations, statuses, counts of gates, sums, logarithms, hypotheses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from weighbridge.contract.layers import Found
from weighbridge.core import Outcome, Status, WeighbridgeError
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.review import State, rederivation
from weighbridge.ledger.fold import LedgerPlace, lowest
from weighbridge.spec.citations import FORMULA, NUMBER, UNIT, Citation, agrees, citations, computed, resolve
from weighbridge.spec.hypotheses import undecided
from weighbridge.spec.reading import Known, Looked, Text, Unit
from weighbridge.spec.tally import Stood, block, criteria, tally

STATUS = "|".join(Status)
OUTCOME = re.compile(rf"\b(?:{'|'.join(Outcome)})\b")
GATE = r"[A-Z][A-Z0-9]{0,39}(?:-[A-Z0-9]{1,40}){1,8}"  # bounds, so that no text takes long to read
TOKEN = re.compile(
    rf"(?P<gate>\b{GATE})(?:\[(?P<instance>[^\]\s]{{1,99}})\])?|(?P<denied>\bnot )?\b(?P<status>{STATUS})\b"
)
SAID = re.compile(
    rf"\b(?P<gate>{GATE})[`*]*(?:\[[^\]\s]{{1,99}}\])?[`*]{{0,3}},?\s{{0,3}}"
    rf"(?:is|was|:|\||=|→)?\s{{0,3}}[`*]{{0,3}}(?:{STATUS})\b"
)
SHORT = {status.split("_")[0]: status for status in Status}
COUNT = re.compile(
    r"(?:\b(?P<scope>[A-Z][A-Z0-9-]{0,40})\s{1,3})?\b(?P<count>\d+)(?:\s*(?:/|of)\s*(?P<of>\d+))?"
    rf"\s+(?:gates\s+(?:are\s+)?)?(?P<status>{STATUS}|{'|'.join(SHORT)}|discharged|regressed|retired)\b"
)
WHOLE = r"\d{1,12}(?![\d.,]{0,9}\d)"
TERM = rf"{WHOLE}(?: [A-Z_]+\b)?"
OPERATOR = "[×*/^·−+-]"
SUM = re.compile(
    rf"(?<![\w.,])(?<!{OPERATOR})(?<!{OPERATOR} )(?P<terms>{TERM}(?:\s*\+\s*{TERM})+)(?:\s*[=(]\s*(?P<sum>{WHOLE}))?"
)
LOGARITHM = re.compile(
    rf"{FORMULA.pattern}\s*(?:=|≈|is)\s*(?P<value>{NUMBER})(?:[ \"“]*(?P<unit>{UNIT}))?"
    rf"|(?P<value_>{NUMBER})[ \"“]*(?P<unit_>{UNIT})?[\"”]?\s+(?:=|≈|for|is|of)\s+"
    rf"{FORMULA.pattern.replace('<log>', '<log_>').replace('<of>', '<of_>')}"
)
NAMED = re.compile(rf"\b(?:ln|log2|log10)[ (] ?[A-Za-z_]\w{{0,40}}\)? ?(?:=|≈|is) ?{NUMBER}")
MEASURED = re.compile(rf"{NUMBER}[ ]?{UNIT}")
VERDICT = re.compile(r"/findings/(?P<index>\d+)/(?:measured|limit|enough)")
ENTITLED = {Status.REGRESSED: Outcome.FAIL} | dict.fromkeys(
    (Status.PARTIAL_ALGORITHM_LEVEL, Status.ACTIVE_WITH_LIVE_EVIDENCE, Status.DISCHARGED), Outcome.PASS
)


def look(text: str, where: str, known: Known, first_line: int = 1) -> Looked:
    """Check every claim of a text."""
    read = Text(text, where, known, first_line)
    checks = [_cited, _statuses, _counts, _sums, _logarithms, undecided, _refuted]
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
                what = f"{one.formula!r} is no ln, log2 or log10 of a number"
                yield text.found(unit.line, "citation-form", what)
            if one.formula:
                yield from _logarithm(text, unit.line, one.formula, one.text, one.unit)
            if one.id and one.id not in sound:
                problems = tuple(_unsound(text, unit, one.id))
                sound[one.id] = all(problem.warning for problem in problems)
                yield from problems
            if sound.get(one.id):
                yield from _evidence(text, unit, one)


def _unsound(text: Text, unit: Unit, id_: str) -> Iterator[Found]:
    """Yield why a bundle cannot be cited at all."""
    try:
        bundle = text.known.bundles.get(id_)
        answer = rederivation(bundle)
    except WeighbridgeError as problem:
        yield text.found(unit.line, problem.code, f"[ev:{id_}]: {problem.what}", problem.remedy)
        return
    if answer.held is not State.HOLDS:  # a kind may have a new version since a section landed, which is never edited
        warning = text.known.frozen and answer.held is State.CANNOT_SAY
        what = f"[ev:{id_}]: {answer.says}"
        yield text.found(unit.line, "not-rederivable", what, "run verify again", warning=warning)
    if bundle.statement.tool.dirty:
        what = f"[ev:{id_}]: measured by a tool with uncommitted changes, so nobody else can have it"
        yield text.found(unit.line, "dirty-tool", what, "commit them, run verify again")


def _evidence(text: Text, unit: Unit, one: Citation) -> Iterator[Found]:
    bundle = text.known.bundles.get(one.id)
    if one.pointer is None:
        yield from _whole(text, unit, bundle)
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
    wanted = bundle.findings[int(verdict["index"])].verdict.unit if verdict else ""
    # A unit that only its kind knows (`wraps`, `relative L2`) may stand before or after the citation.
    before, after = unit.text[slice(*one.span)].rpartition(" [")[0], unit.text[one.span[1] :]
    named = before.endswith(f" {wanted}") or re.match(rf" {re.escape(wanted)}(?!\w)", after)
    if wanted and one.unit != wanted and (one.unit or not named):
        what = f"{one.text} has {f'the unit {one.unit}' if one.unit else 'no unit'}; it was measured in {wanted}"
        yield text.found(unit.line, "unit-mismatch", what, f"write {one.text} {wanted}")


def _whole(text: Text, unit: Unit, bundle: Bundle) -> Iterator[Found]:
    """Compare what a sentence says of gates with a bundle that is cited as a whole."""
    gates = {match["gate"] for match in TOKEN.finditer(unit.text) if match["gate"]}
    judged: dict[str, set[Outcome]] = {}
    for finding in bundle.findings:
        judged.setdefault(finding.gate, set()).add(finding.verdict.outcome)
    stated = {Outcome(word) for word in OUTCOME.findall(unit.text)}
    stated |= {ENTITLED[status] for status in _claimed(unit.text) if status in ENTITLED}
    if gates and not gates & judged.keys():
        what = f"bundle {bundle.id[:12]} did not judge {', '.join(sorted(gates))}"
        yield text.found(unit.line, "evidence-irrelevant", what, "cite a bundle that did")
    for gate in sorted(gates & judged.keys()):
        if stated and not judged[gate] <= stated:
            what = f"{gate} came to {', '.join(sorted(judged[gate]))} in bundle {bundle.id[:12]}"
            yield text.found(unit.line, "evidence-contradicts", what, "say what the bundle says")


def _claimed(text: str) -> set[Status]:
    return {Status(match["status"]) for match in TOKEN.finditer(text) if match["status"] and not match["denied"]}


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


def _statuses(text: Text) -> Iterator[Found]:
    by_gate: dict[str, list[tuple[LedgerPlace, Stood]]] = {}
    for place, stood in text.known.stood.items():
        by_gate.setdefault(place.gate, []).append((place, stood))
    named = (match["gate"] for unit in text.units if _claimed(unit.text) for match in TOKEN.finditer(unit.text))
    if any(name and name not in by_gate for name in named):
        by_gate = criteria(text.known.stood, text.known.bundles, text.known.at) | by_gate  # no binding renames a gate
    for unit in text.units:
        for match in SAID.finditer(unit.text):
            if match["gate"] not in by_gate:
                text.counted["statuses"] += 1
                what = f"{match['gate']} is not in the ledger, nor bound by gates that all are, so has no status"
                yield text.found(unit.line, "status-mismatch", what, "see: weighbridge status")
        for gates, said in _groups(unit.text, by_gate):
            for gate, instance in gates:
                members = [one for place, one in by_gate[gate] if instance in (None, place.instance)]
                text.counted["statuses"] += 1
                if wrong := _contradicted(gate + (f"[{instance}]" if instance else ""), members, said):
                    yield text.found(unit.line, "status-mismatch", wrong, "see: weighbridge status why GATE")


Said = Sequence[tuple[Status, bool]]  # each status word, and whether it is denied


def _groups(text: str, known: Collection[str]) -> Iterator[tuple[list[tuple[str, str | None]], Said]]:
    """Yield gates with the status words said of them: those after them, or where none follows those before."""
    gates: list[tuple[str, str | None]] = []
    said: list[tuple[Status, bool]] = []
    for match in TOKEN.finditer(text):
        if match["status"]:
            said.append((Status(match["status"]), bool(match["denied"])))
        elif match["gate"] in known:
            if gates and said:
                yield gates, said
                gates, said = [], []
            gates.append((match["gate"], match["instance"]))
    if gates and said:
        yield gates, said


def _contradicted(gate: str, members: Sequence[Stood], said: Said) -> str:
    """Return how the ledger contradicts the last word, as what is claimed, or those before it, as what once was."""
    now = lowest(one.standing.status for one in members if one.standing.status) if members else None
    past = frozenset[Status]().union(*(one.past for one in members))
    (last, denied), before = said[-1], [status for status, denied in said[:-1] if not denied]
    wrong = (now is last) if denied else (now is not last)
    never = next((status for status in before if status not in past), None)
    if wrong and denied:
        return f"{gate} is {now}, which is denied here"
    if wrong:
        return f"{gate} is {now or 'not in the ledger'}, not {last}"
    return f"{gate} was never {never}" if never is not None else ""


def _counts(text: Text) -> Iterator[Found]:
    for unit in text.units:
        for match in COUNT.finditer(unit.text):
            scope = match["scope"] or ""
            standings = {place: one.standing for place, one in text.known.stood.items()}
            inside = {place: standing for place, standing in standings.items() if scope in place.gate}
            count = tally(inside or standings)
            status = Status(SHORT.get(match["status"].upper(), match["status"]))
            text.counted["counts"] += 1
            if (int(match["count"]), int(match["of"] or count.gates)) != (count.counts[status], count.gates):
                what = f"says {match[0].strip()!r}; the ledger has {count.counts[status]} of {count.gates} {status}"
                yield text.found(unit.line, "tally-mismatch", what, "see: weighbridge status")
    for line, shown in text.blocks:
        text.counted["tallies"] += 1
        if shown != block(text.known.stood).rstrip():
            yield text.found(line, "tally-mismatch", "is not the tally of the ledger", "draft or render it again")


def _sums(text: Text) -> Iterator[Found]:
    """Check every sum that is written out; one that is called unchanged must be the one before."""
    before: list[int] = []
    for unit in text.units:
        for match in SUM.finditer(unit.text):
            terms = [int(number) for number in re.findall(r"\d+", match["terms"])]
            text.counted["sums"] += 1
            if match["sum"] and sum(terms) != int(match["sum"]):
                yield text.found(unit.line, "does-not-add", f"{match[0].strip()!r}: that is {sum(terms)}")
            if "unchanged" in unit.text and before and terms != before:
                was, now = (f"{' + '.join(map(str, some))} = {sum(some)}" for some in (before, terms))
                yield text.found(unit.line, "does-not-add", f"is called unchanged; it was {was} and is {now}")
            before = terms


def _logarithms(text: Text) -> Iterator[Found]:
    for unit in text.units:
        for match in LOGARITHM.finditer(unit.text):
            formula = f"{match['log'] or match['log_']} {match['of'] or match['of_']}"
            value, named = match["value"] or match["value_"], match["unit"] or match["unit_"] or ""
            text.counted["logarithms"] += 1
            yield from _logarithm(text, unit.line, formula, value, named)
        for match in NAMED.finditer(unit.text):
            what = f"{match[0]} names no number, so it cannot be checked"
            yield text.found(unit.line, "uncited", what, "write ln(151936) = 11.93 instead", warning=True)


def _logarithm(text: Text, line: int, formula: str, value: str, named: str) -> Iterator[Found]:
    found = computed(formula)
    if found is None:
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
    remedy = "cite where it was measured: [ev:ID12#/POINTER]"
    for unit in text.units:
        found = citations(unit.text)
        spans = [*(one.span for one in found), *(match.span() for match in LOGARITHM.finditer(unit.text))]
        for match in MEASURED.finditer(unit.text):
            cited = any(start <= match.start() < end for start, end in spans)
            named = any(match[0] in (one.pointer or "") for one in found)  # by numbers, as `7 of 7 bits`
            if not (cited or named or unit.line in text.planned):
                what = f"{match[0]!r} has a unit and no citation"
                yield text.found(unit.line, "uncited", what, remedy, warning=True)
