"""What a bundle came to, for other tools: statements of in-toto and a model card, which cite it; only a PASS passed."""

from collections.abc import Collection
from pathlib import Path

import yaml

from weighbridge.core import BundleError, Finding, GateDecl, Json, Outcome, Severity, Status, UsageError, nearest
from weighbridge.core.frozen import dataclass
from weighbridge.core.printable import printable
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import ID_SHOWN, Bundle, folder_name
from weighbridge.evidence.statement import BoundSubject
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import finding_text, gate_name
from weighbridge.report.github import escaped

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
SVR = "https://in-toto.io/attestation/svr/v0.1"


@dataclass(frozen=True, slots=True)
class Result:
    """What a gate came to on one instance of its subjects; without a finding it was declared and never judged."""

    gate: GateDecl
    finding: Finding | None
    subjects: frozenset[tuple[str, str]]

    @property
    def name(self) -> str:
        """Return the gate's name, with its instance where it has one."""
        return gate_name(self.finding) if self.finding else self.gate.id

    @property
    def outcome(self) -> str:
        """Return the outcome, or DRAFT where there is none."""
        return self.finding.verdict.outcome.value if self.finding else Status.DRAFT.value


@dataclass(frozen=True, slots=True)
class Export:
    """A bundle, the subjects in it that are asked about, and the results of the gates on them."""

    bundle: Bundle
    subjects: tuple[BoundSubject, ...]
    results: tuple[Result, ...]

    @property
    def passed(self) -> tuple[Result, ...]:
        """Return the results that are a PASS."""
        return tuple(one for one in self.results if one.outcome == Outcome.PASS)


def about(bundle: Bundle, names: Collection[str]) -> Export:
    """Return what a bundle holds about some of its subjects or about all of them; `no-digest` without a file of any."""
    words = {(one.name, one.instance): {one.name, f"{one.name}@{one.instance}"} for one in bundle.statement.subjects}
    known = set().union(*words.values())
    if (unknown := next((name for name in names if name not in known), None)) is not None:
        raise UsageError("unknown-subject", f"the bundle has no subject {unknown!r}{nearest(unknown, known)}")
    chosen = {key for key, said in words.items() if not names or said & set(names)}
    subjects = tuple(one for one in bundle.statement.subjects if (one.name, one.instance) in chosen)
    if not any(one.digests for one in subjects):
        what = "holds no digest of a file, and other tools know a subject by nothing else"
        raise BundleError("no-digest", what, where=str(bundle.path), remedy="cite the bundle itself")
    results = []
    for gate in bundle.contract.gates:
        found: list[Finding | None] = [one for one in bundle.findings if one.gate == gate.id]
        for one in found or [None]:
            instance = one.instance if one else DEFAULT
            bound = ((name, instance if (name, instance) in words else DEFAULT) for name in gate.subjects.values())
            results.append(Result(gate, one, frozenset(bound)))
    return Export(bundle, subjects, tuple(one for one in results if not names or one.subjects & chosen))


def _judged(bundle: Bundle) -> str:
    """Return the contract that gates passed or failed under: with another parameter it is not the one of that name."""
    return bundle.contract.id + (f"({', '.join(bundle.contract.overrides)})" if bundle.contract.overridden else "")


def _contract(bundle: Bundle) -> dict[str, Json]:
    stated = bundle.statement.contract
    named: dict[str, Json] = {"id": stated.id, "version": stated.version}
    left = [gate.id for gate in bundle.contract.gates if not bundle.statement.instances.get(gate.id)]
    named |= {"overridden": list(bundle.contract.overrides)} if bundle.contract.overridden else {}
    named |= {"notJudged": list[Json](left)} if left else {}
    return {"name": manifest.CONTRACT_JSON, "digest": {"sha256": stated.whole}, "annotations": named}


def test_result(export: Export) -> dict[str, Json]:
    """Return a Test Result: what did not pass is failed where required or broken, else warned."""
    tests: dict[str, list[str]] = {"passed": [], "warned": [], "failed": []}
    for one in (each for each in export.results if each.outcome != Outcome.NOT_APPLICABLE):
        required = one.gate.severity is Severity.REQUIRED or one.outcome == Outcome.ERROR
        word = "passed" if one.outcome == Outcome.PASS else "failed" if required else "warned"
        tests[word].append(f"{_judged(export.bundle)}/{one.name}")
    result = "FAILED" if tests["failed"] or not tests["passed"] else "WARNED" if tests["warned"] else "PASSED"
    about: dict[str, Json] = {"result": result, "configuration": [_contract(export.bundle)]}
    about |= {"url": f"urn:weighbridge:bundle:{export.bundle.id}", **{f"{of}Tests": tests[of] for of in tests}}
    return statement.of(export.subjects, TEST_RESULT, about)


def svr(export: Export) -> dict[str, Json]:
    """Return a Simple Verification Result: what passed on every subject of the statement, and nothing else."""
    bundle, stated = export.bundle, export.bundle.statement
    all_of_it = {(one.name, one.instance) for one in export.subjects if one.digests}
    listed = [f"WEIGHBRIDGE_{_judged(bundle)}/{one.name}" for one in export.passed if all_of_it <= one.subjects]
    evidence: Json = {"name": folder_name(stated, bundle.id), "digest": {"sha256": bundle.id}}
    verifier: dict[str, Json] = {"id": f"urn:weighbridge:verifier:{stated.tool.version}", "evidence": evidence}
    verifier["policy"] = _contract(bundle)
    predicate: dict[str, Json] = {"verifier": verifier, "timeCreated": stated.finished, "properties": listed}
    return statement.of(export.subjects, SVR, predicate)


def model_card(export: Export) -> str:
    """Return the card: its metadata between `---`, and the section of the README."""
    bundle, stated = export.bundle, export.bundle.statement
    gates = []
    for result in export.results:
        found = finding_text(result.finding, bundle.measured).lines[0] if result.finding else "not judged"
        cells = (result.name, result.gate.title, result.gate.kind, result.gate.severity, result.outcome, found)
        gates.append(f"| {' | '.join(map(escaped, cells))} |")
    files = []
    for one in export.subjects:
        named = ((f"{one.name}@{one.instance} {file}", digest) for file, digest in sorted(one.digests.items()))
        files += [f"- {escaped(name)} ({one.said}), sha256 {escaped(digest)}" for name, digest in named]
    required = [one for one in export.results if one.gate.severity is Severity.REQUIRED]
    overrides = escaped(", ".join(bundle.contract.overrides or stated.overridden))
    changed = f"\nParameters were overridden, so this is not the contract as written: {overrides}.\n"
    section = Path(__file__).with_name("model_card.txt").read_text("utf-8")
    return section.format(
        metadata=yaml.safe_dump(_metadata(export), sort_keys=False, allow_unicode=True, width=1 << 16),
        passed=len(export.passed),
        all=len(export.results),
        those=sum(one in export.passed for one in required),
        required=len(required),
        contract=escaped(f"{stated.contract.id} {stated.contract.version}"),
        gates="\n".join(gates),
        finished=stated.finished,
        tool=escaped(f"{stated.tool.name} {stated.tool.version}") + (" (changed)" if stated.tool.dirty else ""),
        subjects="\n".join(files),
        overridden=changed if stated.overridden else "",
        folder=escaped(folder_name(stated, bundle.id)),
        id=bundle.id,
        short=bundle.id[:ID_SHOWN],
    )


def _metadata(export: Export) -> Json:
    """Return what the Hub reads: each gate as a metric, and the contract, by its digest, as what it was measured on."""
    contract = export.bundle.statement.contract
    metrics = [{"type": one.gate.kind, "value": one.outcome, "name": printable(one.name)} for one in export.results]
    changed = "".join(f", {one}" for one in export.bundle.contract.overrides)
    dataset: dict[str, Json] = {"name": printable(f"contract {contract.id} {contract.version}{changed}")}
    dataset |= {"type": printable(contract.id), "revision": contract.whole}
    dataset["args"] = {"bundle": export.bundle.id, "finished": export.bundle.statement.finished}
    results: Json = {"task": {"type": "other", "name": "Verification"}, "dataset": dataset, "metrics": metrics}
    name = export.subjects[0].name if len(export.subjects) == 1 else contract.id
    return {"model-index": [{"name": printable(name), "results": [results]}]}
