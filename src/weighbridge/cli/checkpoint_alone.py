"""What one checkpoint shows without its source, under the gates' default limits and in their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weighbridge.cards import gate_words, render
from weighbridge.gates import KINDS
from weighbridge.gates.label_plausibility import Limits, decide
from weighbridge.limits import read
from weighbridge.model import Fields, Json, Measurement, Outcome, SubjectKind, Verdict
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorBits
from weighbridge.verifiers import VERIFIERS, tensor_bits, tensor_health, tensor_walk

GATES = ("checkpoint-integrity", "label-plausibility")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem: the place, the gate that would report it, its code, and the message."""

    place: str
    gate: str
    code: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What a checkpoint shows by itself: problems, figures of its stored dtypes and health, and every tensor."""

    findings: tuple[Finding, ...]
    labels: Fields
    health: Fields
    tensors: Mapping[str, Fields]


def look(view: Any, table: Fields) -> CheckpointReport:
    """Return what a checkpoint's values show, with what each tensor of its table looks like.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    files = VERIFIERS["file_structure", (SubjectKind.CHECKPOINT,)].measure((view,), {})
    assert isinstance(files, Measurement)
    read_once = tensor_walk.walk(
        view, [(tensor_bits.QUANTITY, tensor_bits.begin), (tensor_health.QUANTITY, tensor_health.begin)]
    )
    measured = {found.quantity: found for found in (files, *read_once)}
    verdicts = {gate: _judged(gate, measured) for gate in GATES}
    findings = tuple(finding for gate, verdict in verdicts.items() for finding in _findings(gate, verdict))
    rows = {row.name: {**_of(table[row.name]), **_told(row)} for row in rows_of(measured["tensor_bits"], TensorBits)}
    wrong = {finding.place for finding in findings}
    worst_first = sorted(rows, key=lambda name: (name not in wrong, name))
    return CheckpointReport(
        findings=findings,
        labels=verdicts["label-plausibility"].figures,
        health=verdicts["checkpoint-integrity"].figures,
        tensors={name: rows[name] for name in worst_first},
    )


def _judged(gate: str, measured: Mapping[str, Measurement]) -> Verdict:
    kind = KINDS[gate]
    evidence = {name: measured[need.quantity] for name, need in kind.needs.items()}
    return kind.judge(evidence, read(kind.limits, {}))


def _findings(gate: str, verdict: Verdict) -> list[Finding]:
    if verdict.outcome is not Outcome.FAIL:
        return []
    told = zip(verdict.offences, render(gate_words(gate), verdict), strict=True)
    return [Finding(place=offence.place, gate=gate, code=offence.code, says=says) for offence, says in told]


def _told(row: TensorBits) -> Fields:
    """Return whether a tensor's stored dtype can be right, and how much of its mantissa is used."""
    decision = decide(row, Limits())
    unused, all_bits = row.trailing_zero_bits, row.mantissa_bits
    used = None if unused is None or all_bits is None else all_bits - unused
    return {"label": decision.verdict, "why": decision.why, "used_bits": used, "mantissa_bits": all_bits}


def _of(row: Json) -> Fields:
    assert isinstance(row, Mapping)
    return row
