"""A lane's turn in one `verify`: the gates that it measures, what is sealed of it, and what other lanes say."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from weighbridge.core import EMPTY, Contract, Fields, GateDecl, LaneError, SubjectError, dataclass, field, replace
from weighbridge.evaluation.binding import Binding, found, instances
from weighbridge.evaluation.runner import Evaluation, files_of
from weighbridge.evidence.statement import SubjectFiles
from weighbridge.lanes import lane_evidence
from weighbridge.lanes.lane_evidence import LaneEvidence, Unfit, Wanted, blocked_for
from weighbridge.lanes.lanes import Project
from weighbridge.ledger.store import Ledger
from weighbridge.quantities.base import record_of
from weighbridge.quantities.facts import Host
from weighbridge.verifiers import host


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One lane, and the evidence of the lanes that it accepts."""

    project: Project
    lane: str
    sealed: Fields
    others: LaneEvidence
    digested: dict[Binding, SubjectFiles] = field(default_factory=dict)

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
                last = self.others.bound_last(contract, instance)
                asked = Wanted(contract, gate, instance, by, last)
                try:
                    here = self._bound_here(gate, instance, evaluation)
                    decided = self.others.decide(replace(asked, files={**last, **here}))
                except SubjectError as unread:
                    decided = blocked_for(asked, Unfit.SUBJECT, f"{unread.where} cannot be read here: {unread.what}")
                findings.append(decided.finding)
                measured |= decided.lacking
                elsewhere[gate.id, instance] = "" if decided.lacking else decided.says
        order = [gate.id for gate in contract.gates]
        findings.sort(key=lambda finding: order.index(finding.gate))
        return replace(evaluation, findings=tuple(findings), measured=measured), elsewhere

    def _bound_here(self, gate: GateDecl, instance: str, evaluation: Evaluation) -> dict[str, SubjectFiles]:
        """Return the files of those subjects of a gate that are bound here, each digested once, or raise why not."""
        here = found(gate.subjects.values(), evaluation.bound, instance)
        for one in here:
            if one not in self.digested:
                stated = (item for found in self.others.causes.stated.values() for item in found.subjects)
                was = {name for item in stated if item.name == one.subject for name in item.digests}
                known = evaluation.files.get(one.key, SubjectFiles())
                enough = known.digests and known.digests.keys() >= was.intersection(known.beside)
                self.digested[one] = known if enough else files_of(one.open(), known.digests or None, was)
        return {one.subject: self.digested[one] for one in here}


def begin(project: Project, name: str, ledger: Path) -> Turn:
    """Return the turn of a lane on this host, or raise `lane-host` where that lacks what the lane requires."""
    lane = project.lane(name)
    if lane.requires:
        has = record_of(host.measure((), EMPTY), Host)
        assert has is not None
        for fact, needed in lane.requires.items():
            if getattr(has, fact) is not needed:
                what = f"lane {name} requires {fact}: {str(needed).lower()}, and this host has not ({has.why})"
                raise LaneError("lane-host", what, remedy="run it on a host that has it; nothing was measured")
    others = lane_evidence.lane_evidence(project, name, Ledger(ledger), dt.datetime.now(dt.UTC))
    return Turn(project=project, lane=name, sealed=lane_evidence.sealed(name, lane.trees()), others=others)
