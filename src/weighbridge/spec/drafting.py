"""A section drafted from bundles: every figure cited, places for the author's prose, and no number yet."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from weighbridge.core import UsageError, dataclass, dumps, model, nearest
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import Bundle
from weighbridge.ledger.fold import DISCHARGED, LedgerPlace
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.spec.amendments import Amendment, Premise, slug, written
from weighbridge.spec.citations import cite, printed
from weighbridge.spec.hypotheses import HEADS
from weighbridge.spec.premises import IDENTICALLY
from weighbridge.spec.tally import Stood, place_in

COUNTS = ("counted", "of")
FIGURES = ("measured", "limit", "enough")
DEVICE_FACTS = ("requested_device", "resolved_device", "device_name", "driver")
AUTHOR = "<!-- author:"
DECIDED = "OPEN, ELIMINATED, CONFIRMED or REFUTED, each with its evidence"
UNDECIDED = "for each OPEN hypothesis the values that would decide it"
Places: TypeAlias = Mapping[LedgerPlace, Stood]
Earned: TypeAlias = frozenset[LedgerPlace]
NOT = "What this section is not"
WRITTEN = ("Command", "Figures", "Device", "Impact, gate by gate", "Hypotheses", "Next experiment", "Evidence", NOT)
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
        Cited(bundle, index, finding, next(one for one in bundle.contract.gates if one.id == finding.gate))
        for bundle in bundles
        for index, finding in enumerate(bundle.findings)
        if finding.gate in gates
    )


def draft(bundles: Sequence[Bundle], gates: Sequence[str], notes: AuthorNotes, stood: Places, earned: Earned) -> str:
    """Write the unnumbered section of some gates; `earned` are the places that landing it would discharge."""
    mine = cited(bundles, gates)
    title = notes.title or mine[0].gate.title
    contracts = {one.bundle.contract.id: one.bundle for one in mine}
    named = [(f"{one.bundle.id[:12]}/{one.finding.gate}[{one.finding.instance}]", one.finding.verdict) for one in mine]
    about = Amendment(
        id=f"A-{notes.at.astimezone(UTC):%Y%m%d}-{slug(title)}",
        title=title,
        author=notes.author,
        kind="correction" if notes.refutes or notes.supersedes else "record",
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
    gates = {(one.gate.id, one.bundle.contract.id, one.bundle.contract.version): one.gate.why for one in mine}
    about = (f"- `{name}`, of contract `{of}` {version}. {why}".rstrip() for (name, of, version), why in gates.items())
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        (f"## {title}", about),
        ("### Claim", (f"{AUTHOR} what this section claims and why; then delete this line -->",)),
        ("### Command", ("```", *commands, "```")),
        ("### Figures", _figures(mine)),
        ("### Device", _device(bundles)),
        ("### Impact, gate by gate", _impact(bundles, stood, earned)),
        ("### Hypotheses", (f"{AUTHOR} {DECIDED} -->", *HYPOTHESES)),
        ("### Next experiment", (f"{AUTHOR} {UNDECIDED} -->", *EXPERIMENT)),
        ("### Evidence", itertools.chain.from_iterable(map(_evidence, bundles))),
        (f"### {NOT}", dict.fromkeys(_is_not(bundles, mine))),
    )
    return "\n".join("\n".join((head, "", *lines, "")) for head, lines in parts)


def _figures(mine: Sequence[Cited]) -> Iterator[str]:
    for number, one in enumerate(mine):
        bundle, finding, verdict, at = one.bundle, one.finding, one.finding.verdict, f"/findings/{one.index}"
        yield from [""] * bool(number)
        outcome = cite(bundle, f"{at}/outcome", str(verdict.outcome))
        named = f"`{finding.gate}` on `{finding.instance}`"
        yield f"{named}: {outcome}, code {cite(bundle, f'{at}/code', verdict.code)}."
        yield ""
        unit = f" {verdict.unit}" if verdict.unit else ""
        for name in (*COUNTS, *FIGURES):
            value: model.Scalar = getattr(verdict, name)
            if value is not None:
                yield f"- {name}: {cite(bundle, f'{at}/{name}', value)}{unit if name in FIGURES else ''}"
        for offence in range(min(3, len(verdict.offences))):
            place, code = verdict.offences[offence].place, verdict.offences[offence].code
            here = f"{at}/offences/{offence}"
            yield f"- offence: {cite(bundle, f'{here}/place', place)}, {cite(bundle, f'{here}/code', code)}"
        for group, facts in (("figures", verdict.figures), ("facts", finding.facts)):
            for name, fact in facts.items():
                yield from _flat(bundle, name, fact, f"{at}/{group}/{_escaped(name)}")
        results = Counter(trial.result for trial in finding.trials)
        skipped = results[model.TrialResult.UNTRIED]
        idle = f", {skipped} had nothing to break" if skipped else ""
        yield f"- trials: {results[model.TrialResult.CAUGHT]} of {len(finding.trials) - skipped} caught{idle}"


def _flat(bundle: Bundle, name: str, value: model.Json, pointer: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(bundle, f"{name}, {key}", item, f"{pointer}/{_escaped(key)}")
    elif isinstance(value, (str, int, float)) and value != "":
        yield f"- {name}: {cite(bundle, pointer, value)}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _device(bundles: Sequence[Bundle]) -> Iterator[str]:
    """Yield hosts and environments, those of several bundles that are the same once, and the facts of each device."""
    for bundle in {dumps([of.statement.host, of.environment]): of for of in reversed(bundles)}.values():
        yield f"- host: `{bundle.statement.host}`"
        for name, value in bundle.environment.items():
            yield f"- {name}: {cite(bundle, f'/{_escaped(name)}', value, manifest.ENVIRONMENT)}"
    for bundle, (key, item) in ((of, pair) for of in bundles for pair in of.measured.items()):
        facts = rows_of(item, Fact) if isinstance(item, model.Measurement) and item.quantity == "facts" else ()
        for index, fact in enumerate(facts):
            if fact.name in DEVICE_FACTS and fact.value is not None:
                pointer = f"/measured/measurement/value/rows/{index}/value"
                yield f"- {key}, {fact.name}: {cite(bundle, pointer, fact.value, manifest.measurement_file(key))}"


def _impact(bundles: Sequence[Bundle], stood: Places, earned: Earned) -> Iterator[str]:
    yield "| gate | severity | verdict | code | in order | prior status | status after |"
    yield "|---|---|---|---|---|---|---|"
    for bundle in bundles:
        for index, finding in enumerate(bundle.findings):
            verdict, place = finding.verdict, place_in(bundle, finding, stood)
            prior = stood[place].standing.status if place in stood else None
            after = DISCHARGED if place in earned else prior
            outcome = cite(bundle, f"/findings/{index}/outcome", str(verdict.outcome))
            named = f"{finding.gate}[{place.instance}]"
            cells = (named, finding.severity, outcome, verdict.code, f"{verdict.counted} of {verdict.of}")
            yield f"| {' | '.join(map(str, (*cells, prior or 'none', after or 'none')))} |"


def _evidence(bundle: Bundle) -> Iterator[str]:
    stated = bundle.statement
    tool = f"{stated.tool.name} {stated.tool.version}{' with uncommitted changes' if stated.tool.dirty else ''}"
    yield f"- bundle `{bundle.id}`, finished {stated.finished}, by {tool}"
    yield f"- contract digest `{stated.contract.whole}`"
    for index, subject in enumerate(stated.subjects):
        size = cite(bundle, f"/predicate/subjects/{index}/size", subject.size, statement.FILE)
        yield f"- {subject.name}[{subject.instance}], {subject.origin}: `{subject.path}`, {size} bytes"
        yield from (f"  - `{name}` sha256 `{digest}`" for name, digest in sorted(subject.digests.items()))


def _is_not(bundles: Sequence[Bundle], mine: Sequence[Cited]) -> Iterator[str]:
    gates = ", ".join(dict.fromkeys(f"`{one.gate.id}`" for one in mine))
    yield "- Proof of honest measuring. It shows that nothing changed after sealing, and that the verdicts follow."
    yield f"- A statement about any subject but those named above, or about any gate but {gates}."
    for one in mine:
        for subject in one.bundle.statement.subjects:
            if subject.origin is not model.Origin.LIVE and subject.name in one.gate.subjects.values():
                yield f"- Live evidence: {subject.name}[{subject.instance}] is a {subject.origin} subject."
    for bundle in bundles:
        if bundle.statement.overridden:
            yield f"- Evidence for the contract as written: {', '.join(bundle.statement.overridden)} overridden."
    for one in mine:
        verdict, named = one.finding.verdict, f"`{one.gate.id}` on {one.finding.instance}"
        if verdict.outcome is not model.Outcome.PASS:
            yield f"- A pass of {named}: it is {verdict.outcome} ({printed(verdict.code)})."
        skipped = [trial.name for trial in one.finding.trials if trial.result is model.TrialResult.UNTRIED]
        if skipped:
            yield f"- Tried against {', '.join(skipped)}, for {named}: these had nothing to break."
