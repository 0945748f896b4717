"""What a bundle came to, as in-toto statements, each of which cites it: nothing but a PASS is written as one."""

from __future__ import annotations

from collections.abc import Collection

from weighbridge.core import BundleError, Finding, GateDecl, Json, Outcome, Severity, Status, UsageError, nearest
from weighbridge.core.frozen import dataclass
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import Bundle, folder_name
from weighbridge.evidence.statement import BoundSubject
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import gate_name

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
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
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
    passed: list[str] = []
    warned: list[str] = []
    failed: list[str] = []
    for one in (each for each in export.results if each.outcome != Outcome.NOT_APPLICABLE):
        required = one.gate.severity is Severity.REQUIRED or one.outcome == Outcome.ERROR
        names = passed if one.outcome == Outcome.PASS else failed if required else warned
        names.append(f"{_judged(export.bundle)}/{one.name}")
    result = "FAILED" if failed or not passed else "WARNED" if warned else "PASSED"
    tests: dict[str, Json] = {"passedTests": passed, "warnedTests": warned, "failedTests": failed}
    about: dict[str, Json] = {"result": result, "configuration": [_contract(export.bundle)]}
    url: dict[str, Json] = {"url": f"urn:weighbridge:bundle:{export.bundle.id}"}
    return statement.of(export.subjects, TEST_RESULT, about | url | tests)


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
