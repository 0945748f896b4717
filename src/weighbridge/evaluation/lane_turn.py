"""A lane's turn in one `verify`: the gates that it measures, what is sealed of it, and what other lanes say."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weighbridge.core import EMPTY, Contract, Fields, LaneError, Outcome, SubjectError
from weighbridge.evaluation.binding import Binding, find, instances
from weighbridge.evaluation.runner import Evaluation
from weighbridge.lanes import lane_evidence
from weighbridge.lanes.lane_evidence import Decided, LaneEvidence, Unfit, Wanted, blocked_for
from weighbridge.lanes.lanes import Project
from weighbridge.ledger.store import Ledger
from weighbridge.quantities.base import record_of
from weighbridge.quantities.hosts import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One lane, and the evidence of the lanes that it accepts."""

    project: Project
    lane: str
    sealed: Fields
    others: LaneEvidence

    def of(self, contract: Contract, gates: frozenset[str]) -> frozenset[str]:
        """Return those of a contract's gates that the lane measures itself."""
        return frozenset(gate for gate in gates if self.project.decider(self.lane, contract.id, gate) == self.lane)

    def with_others(
        self, evaluation: Evaluation, gates: frozenset[str]
    ) -> tuple[Evaluation, Mapping[tuple[str, str], str]]:
        """Return an evaluation with what other lanes found of gates, in the contract's order, and whose that is."""
        contract, findings = evaluation.contract, list(evaluation.findings)
        measured, elsewhere = dict(evaluation.measured), {}
        for gate in contract.gates:
            by = self.project.decider(self.lane, contract.id, gate.id)
            if not by or gate.id not in gates:
                continue
            is_bound = any(item.subject in gate.subjects.values() for item in evaluation.bound)
            named = () if is_bound else self.others.instances(contract.id, gate.id)
            for instance in named or instances(gate, evaluation.bound):
                asked = Wanted(contract, gate, instance, by)
                decided = self.others.decide(asked)
                if decided.finding.verdict.outcome is Outcome.NOT_APPLICABLE:
                    decided = _of_this(asked, decided, evaluation.bound)
                findings.append(decided.finding)
                measured |= decided.lacking
                elsewhere[gate.id, instance] = "" if decided.lacking else decided.says
        order = [gate.id for gate in contract.gates]
        findings.sort(key=lambda finding: order.index(finding.gate))
        return dataclasses.replace(evaluation, findings=tuple(findings), measured=measured), elsewhere


def _of_this(asked: Wanted, decided: Decided, bound: Sequence[Binding]) -> Decided:
    """Return what was decided, unless it was of another subject than is bound here: the gate may be meant for this."""
    for name in asked.gate.subjects.values():
        here = find(bound, name, asked.instance)
        try:
            digests = frozenset(here.open().digest().values()) if here else frozenset()
        except SubjectError as unread:
            return blocked_for(asked, Unfit.SUBJECT, f"{name} cannot be read here: {unread.what}")
        if here and (not digests or digests != decided.judged.get(name)):
            what = f"it found that {asked.gate.id} does not apply to another {name} than is bound here"
            return blocked_for(asked, Unfit.SUBJECT, what)
    return decided


def begin(project: Project, name: str, ledger: Path) -> Turn:
    """Return the turn of a lane on this host, or raise `lane-host` where that lacks what the lane requires."""
    lane = project.lane(name)
    if lane.requires:
        from weighbridge.verifiers import host

        found = record_of(host.measure((), EMPTY), Host)
        assert found is not None
        for fact, needed in lane.requires.items():
            if getattr(found, fact) is not needed:
                what = f"lane {name} requires {fact}: {str(needed).lower()}, and this host has not ({found.why})"
                raise LaneError("lane-host", what, remedy="run it on a host that has it; nothing was measured")
    others = lane_evidence.lane_evidence(project, name, Ledger(ledger), dt.datetime.now(dt.UTC))
    return Turn(project=project, lane=name, sealed=lane_evidence.sealed(name, lane.trees()), others=others)
