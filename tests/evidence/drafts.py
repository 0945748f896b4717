"""Small drafts of real evidence: hand-made measurements, judged by the real kinds."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tests.rows import typed

from weighbridge.core.canonical import dumps
from weighbridge.core.limits import plain, read
from weighbridge.core.model import (
    Basis,
    CanaryResult,
    Contract,
    GateDecl,
    Measured,
    Measurement,
    Origin,
    Rows,
    Series,
    Severity,
    SubjectDecl,
    SubjectKind,
)
from weighbridge.evaluation.runner import as_sealed
from weighbridge.evidence.bundle import BundleDraft
from weighbridge.evidence.redact import Redactor
from weighbridge.evidence.statement import BoundSubject, Tool
from weighbridge.gates import KINDS
from weighbridge.judging.judging import judge_contract
from weighbridge.judging.requests import all_requests
from weighbridge.quantities.tensors import TensorPair

NOON = datetime(2026, 4, 26, 12, 0, tzinfo=UTC)
REDACTOR = Redactor(key=b"k" * 32, paths=(("/home/ada", "${HOME}"),), names=(("ada", "user-000000000000"),))


def pair(name: str, **changes: Any) -> TensorPair:
    """Return a pair that is typical of its quantity: six elements of BF16, all of them identical."""
    row: TensorPair = typed("tensor_values", {"name": name, "reproduced": {"identical": 6}, **changes})
    return row


def pairs(*rows: TensorPair) -> Measurement:
    return Measurement(
        quantity="tensor_values",
        value=Rows("name", rows),
        by="tensor_values/1",
        at="payload",
        unit="elements",
        basis={"elements": Basis.MEASURED},
        examined=len(rows),
        total=len(rows),
    )


def gate(name: str = "GATE-IMPORT-001", kind: str = "dtype-preservation", **more: Any) -> GateDecl:
    limits = plain(read(KINDS[kind].limits, more.pop("limits", {})))
    return GateDecl(
        id=name,
        limits=limits,
        measure=plain(read(KINDS[kind].measure, {})),
        kind=kind,
        title="The import keeps every dtype",
        subjects={"source": "source", "candidate": "import"},
        **more,
    )


def key(instance: str = "default") -> str:
    """Return the key of what both kinds of the draft's gates measure of tensors."""
    (found,) = {one.key for kind in ("dtype-preservation", "byte-identity")
                for one in all_requests(gate(kind=kind), instance) if one.quantity == "tensor_values"}  # fmt: skip
    return found


PAIRS = key()


def contract(*gates: GateDecl, **more: Any) -> Contract:
    subjects = {name: SubjectDecl(kind=SubjectKind.CHECKPOINT) for name in ("source", "import")}
    given = gates or (gate(), gate("GATE-IMPORT-002", "byte-identity", severity=Severity.ADVISORY))
    whole = {"id": "checkpoint-import", "version": "1.0.0", "title": "An import keeps its bytes", "owner": "imports"}
    return Contract(**(whole | {"subjects": subjects, "gates": given} | more))


def written(given: Contract) -> bytes:
    """Return a contract as it may stand in its file: JSON is YAML."""
    whole: Any = plain(given)
    gates = [
        {key: item for key, item in gate.items() if item and key not in ("limits", "max_age_days")}
        | ({"with": gate["limits"]} if gate["limits"] else {})
        | ({"max_age": f"{gate['max_age_days']:g}d"} if gate["max_age_days"] else {})
        for gate in whole["gates"]
    ]
    head = {key: whole[key] for key in ("id", "version", "title", "owner")}
    subjects = {name: {"kind": one["kind"]} for name, one in whole["subjects"].items()}
    return dumps({"weighbridge": "contract/v0", **head, "subjects": subjects, "gates": gates})


def seen(measurement: str = PAIRS) -> Mapping[str, CanaryResult]:
    return {measurement: CanaryResult(name="one flipped bit", place="b", applied=True, seen=True)}


def series() -> Measurement:
    step, value = array.array("q", range(5)), array.array("d", [1.5, float("nan"), -0.0, 1e-300, 2.5])
    return Measurement(
        quantity="step_series", value=Series(step, value), by="step_series/1", unit="ms", examined=5, total=5
    )


def bound(name: str, instance: str = "default", origin: Origin = Origin.LIVE, digest: str = "") -> BoundSubject:
    return BoundSubject(
        name=name,
        instance=instance,
        kind=SubjectKind.CHECKPOINT,
        path=f"${{RUN}}/{name}.safetensors",
        origin=origin,
        digests={f"{name}.safetensors": digest or name.encode().hex().ljust(64, "0")[:64]},
        size=12,
    )


def draft(
    measured: Mapping[str, Measured] | None = None,
    given: Contract | None = None,
    *,
    origin: Origin = Origin.LIVE,
    finished: datetime = NOON,
    redactor: Redactor = REDACTOR,
    **more: Any,
) -> BundleDraft:
    given = given or contract()
    raw = measured if measured is not None else {PAIRS: pairs(pair("a"), pair("b"))}
    settled = {key: as_sealed(item, redactor) for key, item in raw.items()}
    instances = {item.id: ("default",) for item in given.gates}
    base = BundleDraft(
        contract=given,
        contract_yaml=written(given),
        subjects=(bound("source", origin=origin), bound("import", origin=origin)),
        instances=instances,
        measured=settled,
        canaries=seen(),
        findings=judge_contract(given, instances, settled, seen()),
        tool=Tool(version="0.1.0", commit="c" * 40),
        host="host-79e6d65f7efa",
        started=finished,
        finished=finished,
        command=("weighbridge", "verify", "contracts/checkpoint-import.yaml"),
        environment={"python": "3.11.9", "torch": "2.13.0", "HOME": "/home/ada"},
        logs={"verify": "measured 2 of 2 tensors\n"},
    )
    return dataclasses.replace(base, **more)
