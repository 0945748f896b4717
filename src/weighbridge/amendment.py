"""What a spec holds of evidence: a section drafted from a bundle, every figure cited, and the tally of the ledger.

A drafted fragment claims nothing that the bundle does not hold, and has no number; landing gives it one, executes its
premises again and holds every figure again.

A citation, `264.74 ms [ev:2f6a7cfc0f86#/findings/0/measured]`, must equal the evidence to the printed digits. Its
pointer is a JSON pointer as a URI fragment (RFC 6901); one without a file is into `verdicts.json`, and
`[ev:ID12/environment.json#/torch]` names another file of the bundle.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote, unquote

from weighbridge.canonical import dumps, loads, sha256
from weighbridge.errors import BundleError, UsageError
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.disk import read_regular
from weighbridge.ledger.fold import Place, Standing, fold, lowest
from weighbridge.ledger.store import Ledger
from weighbridge.model import (
    STATUS_ORDER,
    Finding,
    GateDecl,
    Json,
    Measurement,
    Origin,
    Outcome,
    Scalar,
    Status,
    TrialResult,
)
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact

COUNTS = ("counted", "of")
FIGURES = ("measured", "limit", "enough")
DEVICE_FACTS = ("requested_device", "resolved_device", "device_name", "driver")


def draft(bundle: Bundle, gate_id: str) -> str:
    """Write the unnumbered fragment of one gate.

    Raises:
        UsageError: `unknown-gate`, where the bundle did not judge it.
    """
    gate = next((gate for gate in bundle.contract.gates if gate.id == gate_id), None)
    if gate is None:
        known = ", ".join(gate.id for gate in bundle.contract.gates)
        raise UsageError("unknown-gate", f"bundle {bundle.id[:12]} has no gate {gate_id!r}; it judged {known}")
    about = f"`{gate.id}`, of contract `{bundle.contract.id}` {bundle.contract.version}."
    parts = (
        (f"## {gate.title}", (about, "", gate.why) if gate.why else (about,)),
        ("### Command", ("```", " ".join(bundle.statement.command) or "(not recorded)", "```")),
        ("### Figures", _figures(bundle, gate)),
        ("### Device", _device(bundle)),
        ("### Impact, gate by gate", _impact(bundle)),
        ("### Evidence", _evidence(bundle)),
        ("### What this section is not", _is_not(bundle, gate)),
        ("### Premises", _premises(bundle, gate)),
    )
    return "\n".join("\n".join((head, "", *lines, "")) for head, lines in parts)


def _mine(bundle: Bundle, gate: GateDecl) -> list[tuple[int, Finding]]:
    return [(index, finding) for index, finding in enumerate(bundle.findings) if finding.gate == gate.id]


def _figures(bundle: Bundle, gate: GateDecl) -> Iterator[str]:
    for number, (index, finding) in enumerate(_mine(bundle, gate)):
        verdict, at = finding.verdict, f"/findings/{index}"
        yield from [""] * bool(number)
        outcome = cite(bundle, f"{at}/outcome", str(verdict.outcome))
        yield f"On `{finding.instance}`: {outcome}, code {cite(bundle, f'{at}/code', verdict.code)}."
        yield ""
        unit = f" {verdict.unit}" if verdict.unit else ""
        for name in (*COUNTS, *FIGURES):
            value: Scalar = getattr(verdict, name)
            if value is not None:
                yield f"- {name}: {cite(bundle, f'{at}/{name}', value)}{unit if name in FIGURES else ''}"
        for group, told in (("figures", verdict.figures), ("facts", finding.facts)):
            for name, fact in told.items():
                yield from _flat(bundle, name, fact, f"{at}/{group}/{_escaped(name)}")
        results = Counter(trial.result for trial in finding.trials)
        skipped = results[TrialResult.NOT_APPLICABLE]
        idle = f", {skipped} had nothing to break" if skipped else ""
        yield f"- trials: {results[TrialResult.CAUGHT]} of {len(finding.trials) - skipped} caught{idle}"


def _flat(bundle: Bundle, name: str, value: Json, pointer: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(bundle, f"{name}, {key}", item, f"{pointer}/{_escaped(key)}")
    elif isinstance(value, (str, int, float)) and value != "":
        yield f"- {name}: {cite(bundle, pointer, value)}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _device(bundle: Bundle) -> Iterator[str]:
    yield f"- host: `{bundle.statement.host}`"
    for name, value in bundle.environment.items():
        yield f"- {name}: {cite(bundle, f'/{_escaped(name)}', value, manifest.ENVIRONMENT)}"
    measured = [(key, item) for key, item in bundle.measured.items() if isinstance(item, Measurement)]
    facts = [
        (key, pair) for key, item in measured if item.quantity == "facts" for pair in enumerate(rows_of(item, Fact))
    ]
    for key, (index, fact) in facts:
        if fact.name in DEVICE_FACTS and fact.value is not None:
            pointer = f"/measured/measurement/value/rows/{index}/value"
            yield f"- {key}, {fact.name}: {cite(bundle, pointer, fact.value, manifest.measurement_file(key))}"


def _impact(bundle: Bundle) -> Iterator[str]:
    yield "| gate | instance | severity | verdict | code | in order |"
    yield "|---|---|---|---|---|---|"
    for index, finding in enumerate(bundle.findings):
        verdict = finding.verdict
        outcome = cite(bundle, f"/findings/{index}/outcome", str(verdict.outcome))
        cells = (finding.gate, finding.instance, finding.severity, outcome, verdict.code)
        yield f"| {' | '.join(map(str, cells))} | {verdict.counted} of {verdict.of} |"


def _evidence(bundle: Bundle) -> Iterator[str]:
    stated = bundle.statement
    yield f"- bundle `{bundle.id}`, finished {stated.finished}, by {stated.tool.name} {stated.tool.version}"
    yield f"- contract digest `{stated.contract.whole}`"
    for subject in stated.subjects:
        size = f", {subject.size} bytes" if subject.size else ""
        yield f"- {subject.name}[{subject.instance}], {subject.origin}: `{subject.path}`{size}"
        yield from (f"  - `{name}` sha256 `{digest}`" for name, digest in sorted(subject.digests.items()))


def _is_not(bundle: Bundle, gate: GateDecl) -> Iterator[str]:
    yield "- Proof of honest measuring. It shows that nothing changed after sealing, and that the verdicts follow."
    yield f"- A statement about any subject but those named above, or about any gate but `{gate.id}`."
    for subject in bundle.statement.subjects:
        if subject.origin is not Origin.LIVE and subject.name in gate.subjects.values():
            yield f"- Live evidence: {subject.name}[{subject.instance}] is a {subject.origin} subject."
    if bundle.statement.overridden:
        yield f"- Evidence for the contract as written: {', '.join(bundle.statement.overridden)} overridden."
    for _, finding in _mine(bundle, gate):
        if finding.verdict.outcome is not Outcome.PASS:
            yield f"- A pass on {finding.instance}: it is {finding.verdict.outcome} ({printed(finding.verdict.code)})."
        skipped = [trial.name for trial in finding.trials if trial.result is TrialResult.NOT_APPLICABLE]
        if skipped:
            yield f"- Tried against {', '.join(skipped)} on {finding.instance}: these had nothing to break."


def _premises(bundle: Bundle, gate: GateDecl) -> Iterator[str]:
    """Yield what must hold again when the section lands, in a form that landing reads."""
    yield "```yaml"
    yield f"- {{kind: bundle, id: {bundle.id}, expect: re-judges identically}}"
    yield f"- {{kind: contract, id: {bundle.contract.id}, expect: {bundle.statement.contract.whole}}}"
    for _, finding in _mine(bundle, gate):
        yield f"- {{kind: verdict, id: '{gate.id}[{finding.instance}]', expect: {finding.verdict.outcome}}}"
    yield "```"


# --- Citations --------------------------------------------------------------------------------------------------------


SIGNIFICANT = 6
WIDE = Context(prec=400)  # the whole range of a double, digit by digit
CITED = re.compile(
    r"`(?P<text>[^`]*)` \[ev:(?P<id>[0-9a-f]{12,64})(?:/(?P<file>[A-Za-z0-9._/-]+))?#(?P<pointer>(?:/[^\]\s]*)?)\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A printed text, and where in which bundle its value stands."""

    text: str
    id: str
    file: str
    pointer: str


def cite(bundle: Bundle, pointer: str, value: object, file: str = "") -> str:
    """Print a value with its citation; a number to six significant digits at most."""
    named = f"/{file}" if file else ""
    return f"`{printed(value)}` [ev:{bundle.id[:12]}{named}#{quote(pointer, safe='/~')}]"


def printed(value: object) -> str:
    """Print a value as a person reads it, and as `agrees` accepts it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):.{SIGNIFICANT}g}"
    return str(value).replace("`", "'").replace("|", "¦").replace("\n", " ")


def citations(text: str) -> tuple[Citation, ...]:
    """Find every citation in a text."""
    return tuple(
        Citation(
            text=match["text"],
            id=match["id"],
            file=match["file"] or manifest.VERDICTS,
            pointer=unquote(match["pointer"]),
        )
        for match in CITED.finditer(text)
    )


def resolve(bundle: Bundle, citation: Citation) -> Any:
    """Return the cited value from the bundle's bytes.

    Raises:
        BundleError: `bad-pointer`, where there is none.
    """
    if not manifest.NAME.fullmatch(citation.file):
        raise BundleError("bad-pointer", f"{citation.file!r} is no name for a file of a bundle", where=str(bundle.path))
    data = read_regular(bundle.path / citation.file, citation.file, manifest.MAX_FILE)
    value = loads(data, where=citation.file)
    for step in citation.pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise BundleError("bad-pointer", f"has nothing at {citation.pointer}", where=citation.file)
    return value


def agrees(text: str, value: object) -> bool:
    """Return whether a printed text equals a value to the printed digits, rounded half up or half to even."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return text == printed(value)
    try:
        shown, exact = Decimal(text), Decimal(repr(value))
        last = Decimal(1).scaleb(int(shown.as_tuple().exponent), WIDE)
        return shown in (exact.quantize(last, rounding, WIDE) for rounding in (ROUND_HALF_EVEN, ROUND_HALF_UP))
    except (InvalidOperation, ValueError):
        return False


# --- The tally --------------------------------------------------------------------------------------------------------


BEGIN, END = "<!-- weighbridge:tally begin", "<!-- weighbridge:tally end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many gates stand where; `heads` is the digest of the ledger's newest entries."""

    counts: Mapping[Status, int]
    gates: int
    instances: int
    diverged: tuple[Place, ...]
    heads: str


def standings(ledger: Ledger) -> dict[Place, Standing]:
    """Fold every place of a ledger."""
    return {place: fold(ledger.read(place)) for place in ledger.places()}


def tally(found: Mapping[Place, Standing]) -> Tally:
    """Count gates by status; a gate stands where its lowest instance stands."""
    by_gate: dict[tuple[str, str], list[Status]] = {}
    for place, standing in found.items():
        if standing.status is not None:
            by_gate.setdefault((place.contract, place.gate), []).append(standing.status)
    counts = Counter(lowest(statuses) for statuses in by_gate.values())
    heads: dict[str, list[str]] = {str(place): list(standing.heads) for place, standing in found.items()}
    return Tally(
        counts={status: counts[status] for status in reversed(STATUS_ORDER)},
        gates=len(by_gate),
        instances=sum(map(len, by_gate.values())),
        diverged=tuple(sorted(place for place, standing in found.items() if standing.diverged)),
        heads=sha256(dumps(heads)),
    )


def markdown(count: Tally) -> str:
    """Write a tally as the block that a spec carries; regenerating it from the same ledger gives the same bytes."""
    lines = [f"{BEGIN} heads={count.heads} -->", "| status | gates |", "|---|---|"]
    lines += [f"| {status} | {number} of {count.gates} |" for status, number in count.counts.items()]
    told = f"{count.gates} gates on {count.instances} instances; a gate stands where its lowest instance stands."
    lines += ["", told]
    lines += [f"DIVERGED, counted as the lower: {', '.join(map(str, count.diverged))}."] if count.diverged else []
    return "\n".join((*lines, END, ""))
