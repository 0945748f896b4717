"""Draft a section of the spec from a bundle: every figure cited, nothing claimed that the bundle does not hold.

The fragment has no number; landing gives it one. It re-executes its premises and holds every figure again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from weighbridge.amendment.citations import cite, printed
from weighbridge.errors import UsageError
from weighbridge.evidence import layout
from weighbridge.evidence.unseal import Bundle
from weighbridge.model import Finding, GateDecl, Json, Measurement, Origin, Outcome, Scalar, TrialResult
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
        for name, fact in verdict.figures.items():
            yield from _flat(bundle, name, fact, f"{at}/figures/{_escaped(name)}")
        for name, fact in finding.facts.items():
            yield from _flat(bundle, name, fact, f"{at}/facts/{_escaped(name)}")
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
        yield f"- {name}: {cite(bundle, f'/{_escaped(name)}', value, layout.ENVIRONMENT)}"
    for key, item in bundle.measured.items():
        if isinstance(item, Measurement) and item.quantity == "facts":
            yield from _device_facts(bundle, key, rows_of(item, Fact))


def _device_facts(bundle: Bundle, key: str, facts: Sequence[Fact]) -> Iterator[str]:
    for index, fact in enumerate(facts):
        if fact.name in DEVICE_FACTS and fact.value is not None:
            pointer = f"/measured/measurement/value/rows/{index}/value"
            yield f"- {key}, {fact.name}: {cite(bundle, pointer, fact.value, layout.measurement_file(key))}"


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
