"""A section drafted from bundles: every figure cited, places for the author's prose, and no number yet."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import TypeAlias

from weighbridge.contract.layers import Found
from weighbridge.core import UsageError, dataclass, dumps, model, nearest
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import Bundle
from weighbridge.judging.requests import DEFAULT
from weighbridge.ledger.fold import DISCHARGED, LedgerPlace
from weighbridge.ledger.sections import Amendment, Premise, Section
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.spec.amendments import IDENTICALLY, slug, written
from weighbridge.spec.citations import cite, printed
from weighbridge.spec.reading import Unit, found, units_of
from weighbridge.spec.tally import Stood, place_in

SHOWN = ("weighbridge", "python", "torch", "cuda", "system", "machine")  # of the environment; the bundle has the rest
DEVICE_FACTS = ("requested_device", "resolved_device", "device_name", "driver")
OF_REQUEST = re.compile(r"\.[0-9a-f]{8}$")  # that tells two requests of one quantity apart
AUTHOR = "<!-- author:"
Places: TypeAlias = Mapping[LedgerPlace, Stood]
Earned: TypeAlias = frozenset[LedgerPlace]
ABOUT = "Of contract `{}` {}. Every figure: `weighbridge evidence show {}`."
NOT = "What this section is not"
WHY = "Why, gate by gate"
WRITTEN = (WHY, "Command", "Figures", "Device", "Impact, gate by gate", "Evidence", NOT)  # which the author leaves so
TABLES = ("Hypotheses", "Next experiment")
DECIDED = "OPEN, ELIMINATED, CONFIRMED or REFUTED, each with its evidence"
UNDECIDED = "for each OPEN hypothesis the values that would decide it"
HEADS = (["id", "hypothesis", "state", "evidence"], ["decides", "measure", "confirmed by", "refuted by"])
HYPOTHESES, EXPERIMENT = ((f"| {' | '.join(head)} |", "|---|---|---|---|") for head in HEADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorNotes:
    """What only the author can tell, or the command line."""

    at: datetime
    title: str = ""
    author: str = ""
    supersedes: tuple[str, ...] = ()
    refutes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    landed: tuple[str, ...] = ()  # ids of the sections that are there


@dataclass(frozen=True, slots=True)
class Cited:
    """One finding of one bundle that a section is about."""

    bundle: Bundle
    index: int
    finding: model.Finding
    gate: model.GateDecl


def cited(bundles: Iterable[Bundle], gates: Sequence[str]) -> tuple[Cited, ...]:
    """Find what the bundles hold of these gates, or raise `unknown-gate` where none judged one."""
    bundles = tuple(bundles)
    known = {gate.id for bundle in bundles for gate in bundle.contract.gates}
    for gate in gates:
        if gate not in known:
            shown = ", ".join(bundle.id[:12] for bundle in bundles)
            raise UsageError("unknown-gate", f"bundle {shown} has no gate {gate!r}{nearest(gate, known)}")
    return tuple(
        Cited(bundle, index, finding, bundle.contract.gate(finding.gate))
        for bundle in bundles
        for index, finding in enumerate(bundle.findings)
        if finding.gate in gates
    )


def draft(bundles: Sequence[Bundle], gates: Sequence[str], notes: AuthorNotes, stood: Places, earned: Earned) -> str:
    """Write the unnumbered section of some gates; `earned` are the places that landing it would discharge."""
    mine = cited(bundles, gates)
    came_to = [one.finding.verdict.outcome for one in mine if one.gate.id == mine[0].gate.id]
    other = next((f": {one}" for one in came_to if one is not model.Outcome.PASS), "")
    title = notes.title or mine[0].gate.title + other  # which says of a PASS alone what is so
    correction = bool(notes.refutes or notes.supersedes)
    dated = f"A-{notes.at.astimezone(UTC):%Y%m%d}-{slug(title)}"
    ids = (dated, *(f"{dated}-{number}" for number in range(2, len(notes.landed) + 2)))
    contracts = {one.bundle.contract.id: one.bundle for one in mine}
    named = [(f"{one.bundle.id[:12]}/{one.finding.gate}[{one.finding.instance}]", one.finding.verdict) for one in mine]
    about = Amendment(
        id=next(one for one in ids if one not in notes.landed),
        title=title,
        author=notes.author,
        kind="correction" if correction else "record",
        gates=tuple(dict.fromkeys(gates)),
        evidence=tuple(bundle.id for bundle in bundles),
        premises=(
            *(Premise(kind="bundle", id=bundle.id, expect=IDENTICALLY) for bundle in bundles),
            *(Premise(kind="contract", id=id_, expect=of.statement.contract.whole) for id_, of in contracts.items()),
            *(Premise(kind="verdict", id=id_, expect=verdict.outcome.value) for id_, verdict in named),
        ),
        supersedes=notes.supersedes,
        refutes=notes.refutes,
        depends_on=notes.depends_on,
    )
    return written(about, _body(title, bundles, mine, stood, earned))


def _body(title: str, bundles: Sequence[Bundle], mine: Sequence[Cited], stood: Places, earned: Earned) -> str:
    commands = dict.fromkeys(shlex.join(of.statement.command) or "(not recorded)" for of in bundles)
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        (f"## {title}", (ABOUT.format(of.contract.id, of.contract.version, of.id[:12]) for of in bundles)),
        ("### Claim", (f"{AUTHOR} what this section claims and why; then delete this line -->",)),
        (f"### {WHY}", dict.fromkeys(f"- `{one.gate.id}`. {one.gate.why or one.gate.title}" for one in mine)),
        ("### Command", ("```", *commands, "```")),
        ("### Figures", _figures(mine)),
        ("### Device", _device(bundles)),
        ("### Impact, gate by gate", _impact(bundles, stood, earned)),
        ("### Hypotheses", (f"{AUTHOR} {DECIDED} -->", *HYPOTHESES)),
        ("### Next experiment", (f"{AUTHOR} {UNDECIDED} -->", *EXPERIMENT)),
        ("### Evidence", (line for of in bundles for line in _evidence(of))),
        (f"### {NOT}", dict.fromkeys(_is_not(bundles, mine))),
    )
    return "\n".join("\n".join((head, "", *lines, "")) for head, lines in parts)


def changed(section: Section, bundles: Sequence[Bundle], stood: Places, earned: Earned) -> Iterator[Found]:
    """Draft a section again, and yield each line under its title and WRITTEN that differs, is missing or was added."""
    body = _body("", bundles, cited(bundles, section.about.gates), stood, earned)
    title, *stands = [*units_of(section.body, section.first_line)] or [Unit(section.first_line, "")]
    ours = [one for one in [*units_of(body)][1:] if one.head in ("", *WRITTEN)]
    theirs = [one for one in stands if one.head in (title.head, *WRITTEN)]
    matcher = SequenceMatcher(a=[one.text for one in ours], b=[one.text for one in theirs])
    for _, a, b, c, d in (code for code in matcher.get_opcodes() if code[0] != "equal"):
        none = Unit([title, *theirs[: c + 1]][-1].line, "")
        for wanted, said in zip_longest(ours[a:b], theirs[c:d], fillvalue=none):
            pairs = enumerate(zip(wanted.text, said.text, strict=False))
            same = 1 + said.text.rfind(" ", 0, next((at for at, (one, other) in pairs if one != other), 0))
            gives = f"the bundles give {wanted.text[same:]!r}" if wanted.text else "which no bundle gives"
            what = f"says {said.text[same:]!r}, {gives}" if said.text else f"lacks {wanted.text!r}"
            yield found(str(section.path), "draft-mismatch", what, "draft again, or write it under Claim", said.line)


def _figures(mine: Sequence[Cited]) -> Iterator[str]:
    """Yield a row for each finding, then where those that are no PASS offend, and the facts of each bundle, once."""
    yield "| gate | came to | measured | limit | passing of looked at | trials |"
    yield "|---|---|---|---|---|---|"
    for one in mine:
        yield f"| {' | '.join(_cells(one))} |"
    yield ""
    for one in mine:
        for offence, offended in enumerate(one.finding.verdict.offences[:3]):
            here = f"/findings/{one.index}/offences/{offence}"
            place, code = (cite(one.bundle, f"{here}/{name}", getattr(offended, name)) for name in ("place", "code"))
            yield f"- offence against `{one.finding.gate}`: {place}, {code}"
        if (more := len(one.finding.verdict.offences) - 3) > 0:
            yield f"- offence against `{one.finding.gate}`: +{more} more"
    facts: dict[tuple[str, str, object], str] = {}
    for one in mine:
        for name, fact in one.finding.facts.items():
            value = fact["value"] if isinstance(fact, Mapping) else None
            if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "":
                pointer = f"/findings/{one.index}/facts/{_escaped(name)}/value"
                facts.setdefault((one.bundle.id, name, value), cite(one.bundle, pointer, value))
    yield from (f"- {name}: {cited}" for (_, name, _), cited in facts.items())


def _cells(one: Cited) -> Iterator[str]:
    verdict, at = one.finding.verdict, f"/findings/{one.index}"
    yield f"`{one.finding.gate}`" + (f" on `{one.finding.instance}`" if one.finding.instance != DEFAULT else "")
    code = "" if verdict.outcome is model.Outcome.PASS else f", {cite(one.bundle, f'{at}/code', verdict.code)}"
    yield cite(one.bundle, f"{at}/outcome", str(verdict.outcome)) + code
    unit = f" {verdict.unit}" if verdict.unit else ""
    for name in ("measured", "limit"):
        value: model.Scalar = getattr(verdict, name)
        yield "" if value is None else f"{cite(one.bundle, f'{at}/{name}', value)}{unit}"
    yield " of ".join(cite(one.bundle, f"{at}/{name}", getattr(verdict, name)) for name in ("counted", "of"))
    results = [trial.result for trial in one.finding.trials if trial.result is not model.TrialResult.UNTRIED]
    yield f"{results.count(model.TrialResult.CAUGHT)} of {len(results)} caught"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _device(bundles: Sequence[Bundle]) -> Iterator[str]:
    """Yield hosts and environments, those of several bundles that are the same once, and the facts of each device."""
    for bundle in {dumps([of.statement.host, of.environment]): of for of in reversed(bundles)}.values():
        yield f"- host: `{bundle.statement.host}`"
        for name, value in ((name, bundle.environment[name]) for name in SHOWN if name in bundle.environment):
            yield f"- {name}: {cite(bundle, f'/{_escaped(name)}', value, manifest.ENVIRONMENT)}"
    facts: dict[tuple[str, str, str, object], str] = {}  # gates that ask for other facts measure the device again
    for bundle, (key, item) in ((of, pair) for of in bundles for pair in of.measured.items()):
        rows = rows_of(item, Fact) if isinstance(item, model.Measurement) and item.quantity == "facts" else ()
        for index, fact in enumerate(rows):
            if fact.name in DEVICE_FACTS and fact.value is not None:
                pointer, about = f"/measured/measurement/value/rows/{index}/value", OF_REQUEST.sub("", key)
                figure = cite(bundle, pointer, fact.value, manifest.measurement_file(key))
                facts.setdefault((bundle.id, about, fact.name, fact.value), f"- {about}, {fact.name}: {figure}")
    yield from facts.values()


def _impact(bundles: Sequence[Bundle], stood: Places, earned: Earned) -> Iterator[str]:
    yield "| gate | severity | prior status | status after |"
    yield "|---|---|---|---|"
    for bundle in bundles:
        for finding in bundle.findings:
            place = place_in(bundle, finding, stood)
            prior = stood[place].standing.status if place in stood else None
            after = DISCHARGED if place in earned else prior
            named = f"{finding.gate}[{place.instance}]"
            yield f"| {named} | {finding.severity} | {prior or 'none'} | {after or 'none'} |"


def _evidence(bundle: Bundle) -> Iterator[str]:
    stated = bundle.statement
    tool = f"{stated.tool.name} {stated.tool.version}{' with uncommitted changes' if stated.tool.dirty else ''}"
    yield f"- bundle `{bundle.id}`, finished {stated.finished}, by {tool}"
    yield f"- contract digest `{stated.contract.whole}`"
    for index, subject in enumerate(stated.subjects):
        size = cite(bundle, f"/predicate/subjects/{index}/size", subject.size, statement.FILE)
        yield f"- {subject.name}[{subject.instance}], {subject.said}: `{subject.path}`, {size} bytes"
        yield from (f"  - `{name}` sha256 `{digest}`" for name, digest in sorted(subject.digests.items()))


def _is_not(bundles: Sequence[Bundle], mine: Sequence[Cited]) -> Iterator[str]:
    gates = ", ".join(dict.fromkeys(f"`{one.gate.id}`" for one in mine))
    yield "- Proof of honest measuring. It shows that nothing changed after sealing, and that the verdicts follow."
    yield f"- A statement about any subject but those named above, or about any gate but {gates}."
    for one in mine:
        for subject in one.bundle.statement.subjects:
            if subject.counts_as is not model.Origin.LIVE and subject.name in one.gate.subjects.values():
                why = f" ({subject.unwitnessed})" if subject.unwitnessed else ""
                yield f"- Live evidence: {subject.name}[{subject.instance}] is a {subject.counts_as} subject{why}."
    for bundle in bundles:
        if bundle.statement.overridden:
            yield f"- Evidence for the contract as written: {', '.join(bundle.statement.overridden)} overridden."
    for one in mine:
        verdict, named = one.finding.verdict, f"`{one.gate.id}` on {one.finding.instance}"
        if verdict.outcome is not model.Outcome.PASS:
            yield f"- A pass of {named}: it is {verdict.outcome} ({printed(verdict.code)})."
    if idle := sum(trial.result is model.TrialResult.UNTRIED for one in mine for trial in one.finding.trials):
        yield f"- Tried against {idle} trials that had nothing to break here; the bundle names each."
