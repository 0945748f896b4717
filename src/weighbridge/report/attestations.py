"""What a bundle came to, as in-toto statements for policy engines: Test Result v0.1, Simple Verification Result v0.1.

These are copies: each cites its bundle, which is the evidence. Nothing but a PASS is told as one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from weighbridge.core.errors import BundleError, UsageError
from weighbridge.core.limits import nearest
from weighbridge.core.model import Finding, GateDecl, Json, Outcome, Severity, Status
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.bundle import Bundle, folder_name
from weighbridge.evidence.statement import BoundSubject
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import gate_name

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
SVR = "https://in-toto.io/attestation/svr/v0.1"


@dataclass(frozen=True, slots=True)
class Result:
    """What a gate came to on one instance, and the subjects that it was judged on, by name and instance.

    Without a finding it was declared and never judged.
    """

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
class Told:
    """A bundle, the subjects in it that are told about, and the results of the gates on them."""

    bundle: Bundle
    subjects: tuple[BoundSubject, ...]
    results: tuple[Result, ...]

    @property
    def passed(self) -> tuple[Result, ...]:
        """Return the results that are a PASS."""
        return tuple(one for one in self.results if one.outcome == Outcome.PASS)


def about(bundle: Bundle, names: Collection[str]) -> Told:
    """Return what a bundle holds about some of its subjects, named `NAME` or `NAME@INSTANCE`, or about all of them.

    Raises:
        UsageError: `unknown-subject`.
        BundleError: `no-digest` where none of them has a file, so that nothing could be told of any.
    """
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
    return Told(bundle, subjects, tuple(one for one in results if not names or one.subjects & chosen))


def _contract(bundle: Bundle) -> dict[str, Json]:
    stated = bundle.statement.contract
    named = {"id": stated.id, "version": stated.version}
    return {"name": manifest.CONTRACT_JSON, "digest": {"sha256": stated.whole}, "annotations": named}


def test_result(told: Told) -> dict[str, Json]:
    """Return a Test Result: what did not pass is failed where it was required or the tool broke, otherwise warned.

    What does not apply is in none of the lists, as it is neither.
    """
    passed: list[str] = []
    warned: list[str] = []
    failed: list[str] = []
    for one in (each for each in told.results if each.outcome != Outcome.NOT_APPLICABLE):
        required = one.gate.severity is Severity.REQUIRED or one.outcome == Outcome.ERROR
        names = passed if one.outcome == Outcome.PASS else failed if required else warned
        names.append(f"{told.bundle.contract.id}/{one.name}")
    result = "FAILED" if failed or not passed else "WARNED" if warned else "PASSED"
    predicate: dict[str, Json] = {
        "result": result,
        "configuration": [_contract(told.bundle)],
        "url": f"urn:weighbridge:bundle:{told.bundle.id}",
        "passedTests": passed,
        "warnedTests": warned,
        "failedTests": failed,
    }
    return statement.of(told.subjects, TEST_RESULT, predicate)


def svr(told: Told) -> dict[str, Json]:
    """Return a Simple Verification Result: what passed on every subject of the statement, and nothing else."""
    bundle, stated = told.bundle, told.bundle.statement
    all_of_it = {(one.name, one.instance) for one in told.subjects if one.digests}
    listed = [f"WEIGHBRIDGE_{bundle.contract.id}/{one.name}" for one in told.passed if all_of_it <= one.subjects]
    evidence: Json = {"name": folder_name(stated, bundle.id), "digest": {"sha256": bundle.id}}
    predicate: dict[str, Json] = {
        "verifier": {
            "id": f"urn:weighbridge:verifier:{stated.tool.version}",
            "policy": _contract(bundle),
            "evidence": evidence,
        },
        "timeCreated": stated.finished,
        "properties": listed,
    }
    return statement.of(told.subjects, SVR, predicate)
