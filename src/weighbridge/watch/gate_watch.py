"""One gate of a run that goes on: judged row by row where it can be, and by the whole judge before anything counts."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from weighbridge.clauses.kind import Kind, Tripwire
from weighbridge.core import FAULTS, Fields, Offence, Outcome, dataclass, field, loads, model, read
from weighbridge.evaluation.binding import Binding
from weighbridge.evaluation.runner import EvaluationSession
from weighbridge.figures.waiting import silence
from weighbridge.gates import KINDS
from weighbridge.judging.requests import request_for
from weighbridge.verifiers import VERIFIERS
from weighbridge.views.run import RunView
from weighbridge.watch.following import FollowedRun

LAST_STEP = 10**9  # a window that ends later never does: it is due at the run's end
WITHOUT_VERDICT = (Outcome.BLOCKED, Outcome.NOT_APPLICABLE, Outcome.ERROR)


@dataclass(slots=True, kw_only=True)
class GateWatch:
    """A gate on one instance of the run that is watched; `run` is None where it is judged at the end alone."""

    contract: model.Contract  # with this gate alone
    gate: model.GateDecl
    instance: str
    bound: tuple[Binding, ...]
    run: FollowedRun | None
    kind: Kind[Any]
    limits: Any
    measure: Any
    due_step: float = math.inf  # with which the whole judge is asked
    due_s: float = math.inf  # since the run began
    silent_s: float = math.inf  # without a row, which break it
    tripwire: Tripwire | None = None
    broken: Offence | None = None  # what was found, while the whole judge cannot say it yet
    again: int = 0  # the rows at which it is asked once more
    delay: int = 1
    judged: model.Verdict | None = None  # once it was due
    done: bool = False
    raised: str = ""  # by a judge of rows, which is then given up
    others: dict[tuple[str, str], Any] = field(default_factory=dict)  # the views of its other subjects

    @property
    def required(self) -> bool:
        """Return whether it may stop the run."""
        return self.gate.severity is model.Severity.REQUIRED

    @property
    def is_late(self) -> bool:
        """Return whether no row, no length of the log and no silence can break it before it is due."""
        return self.run is None or not (self.kind.tripwire or self.kind.final or self.silent_s < math.inf)

    @property
    def due_in_words(self) -> str:
        """Return when it is due."""
        found = f"step {self.due_step:g}" if self.due_step < math.inf else f"{self.due_s:g} s after the start"
        return "the run's end" if self.due_step == self.due_s == math.inf else found

    def measured(self, view: RunView, known: dict[Any, Any]) -> dict[str, model.Measurement] | None:
        """Measure what the judge needs, without canaries; None where something of it is not there (yet)."""
        evidence = {}
        for name, need in self.kind.needed(self.gate.limits).items():
            item = request_for(self.gate, need, self.instance)
            key = self.contract.id, item.key
            if key not in known:
                try:  # a subject that nobody bound is no subject
                    mine = [next(one for one in self.bound if one.subject == subject) for subject in item.subjects]
                    verifier = VERIFIERS[item.quantity, tuple(one.looked_at_as for one in mine)]
                    views = tuple(view if self._is_watched(one) else self._other(one) for one in mine)
                    known[key] = verifier.measure(views, loads(item.options))
                except FAULTS:  # whatever it is, the whole judge says it by its code
                    known[key] = None
            if isinstance(known[key], model.Measurement):
                evidence[name] = known[key]
            elif not need.optional:
                return None
        return evidence

    def _is_watched(self, one: Binding) -> bool:
        return self.run is not None and Path(one.target) == self.run.path

    def _other(self, one: Binding) -> Any:
        if one.key not in self.others:
            self.others[one.key] = one.open()
        return self.others[one.key]

    def begin(self, view: RunView, known: dict[Any, Any]) -> None:
        """Begin to judge row by row, where what is logged is known by a few rows."""
        evidence = self.measured(view, known) if self.kind.tripwire else None
        self.tripwire = self.kind.tripwire(evidence, self.limits, self.measure) if evidence else None  # type: ignore[misc]

    def row(self, step: float | None, numbers: Mapping[str, float], events: Sequence[Fields]) -> bool:
        """Return whether this row, or one before it, breaks the gate; each breach is found once."""
        if self.tripwire is None or self.broken is not None or self.done:
            return False
        try:
            self.broken = self.tripwire.row(step, numbers, events)
        except FAULTS as problem:  # a fault of ours never ends the run, nor the watch
            self.raised, self.tripwire = f"{self.gate.id}: its judge of rows raised {type(problem).__name__}", None
        return self.broken is not None

    @property
    def of_rows(self) -> bool:
        """Return whether rows are judged, and not events alone, each by itself."""
        return any(need.of_rows for need in self.kind.needs.values())

    def whole(self, view: RunView) -> model.Finding:
        """Judge as `verify` does, with trials and canaries, what a view of the run holds."""
        views = {one.key: view for one in self.bound if self._is_watched(one)}
        on = {self.gate.id: (self.instance,)}
        return EvaluationSession(contract=self.contract, bound=self.bound, on=on, views=views).evaluate().findings[0]

    def confirmed(self, view: RunView, rows: int) -> model.Finding | str | None:
        """Return the whole judge's FAIL for what was found; None while it cannot say, or in words that it denies it."""
        assert self.broken
        finding = self.whole(view)
        verdict = finding.verdict
        if verdict.outcome is Outcome.FAIL and self.broken.code in {one.code for one in verdict.offences}:
            self.done = True
            return finding
        said = finding.uncounted or verdict  # that it is not known how the run ended takes back no PASS
        if verdict.outcome in WITHOUT_VERDICT and said.outcome is not Outcome.PASS:
            self.again, self.delay = rows + self.delay, 2 * self.delay
            return None
        offence, self.broken, self.tripwire = self.broken, None, None
        found = f"`{offence.code}` at {offence.place} of {view.rows} rows, found row by row"
        return f"{self.gate.id} on {self.instance}: {found}, is `{said.code}` of all of them"

    def when_due(self, view: RunView) -> model.Finding | None:
        """Judge a gate that is due, and return a FAIL; what it lacks to be a PASS is shown by its code."""
        finding = self.whole(view)
        self.judged = finding.verdict
        if finding.verdict.code == "not-ended" and finding.uncounted:
            self.judged = finding.uncounted
        self.done = finding.verdict.outcome is Outcome.FAIL
        return finding if self.done else None

    def of_all(self, known: dict[Any, Any], view: RunView) -> Offence | None:
        """Judge what a view holds without trials, and return what no later row mends and no tripwire looks for."""
        final = {*self.kind.final} - {*(self.tripwire.codes if self.tripwire else ())}
        evidence = self.measured(view, known) if final else None
        verdict = self.kind.judge(evidence, self.limits) if evidence else None
        broken = verdict.offences if verdict and verdict.outcome is Outcome.FAIL else ()
        return next((one for one in broken if one.code in final), None)


def watch(contract: model.Contract, instance: str, bound: tuple[Binding, ...], run: FollowedRun | None) -> GateWatch:
    """Return the watch of a contract's only gate on one instance: due as it says, else with the end of its window."""
    (gate,) = contract.gates
    kind = KINDS[gate.kind]
    limits, measure = read(kind.limits, gate.limits), read(cast(type[Any], kind.measure), gate.measure)
    window = kind.window(limits, measure)
    ends: Mapping[str, float] = {"step": window[1]} if window and window[1] < LAST_STEP else {}
    due = gate.due or ends
    return GateWatch(
        contract=contract, gate=gate, instance=instance, bound=bound, run=run, kind=kind, limits=limits,
        measure=measure, due_step=due.get("step", math.inf), due_s=due.get("after_s", math.inf),
        silent_s=limits.at_most_s if kind.figure is silence else math.inf,
    )  # fmt: skip
