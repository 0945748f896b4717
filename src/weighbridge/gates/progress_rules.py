"""Rules over how far a run got: passes over its corpus, tokens for its size, and steps that were asked for."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Requires, Whole
from weighbridge.clauses.kind import Evidence, Kind, Need, Numbers, record_of, settings, with_value
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, Offence, Outcome, Record, SubjectKind
from weighbridge.figures.progress import epochs, steps_off, tokens_per_parameter
from weighbridge.gates.families.levers import Moved
from weighbridge.gates.families.rule import BoundedFigure
from weighbridge.quantities.runs import CorpusProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRule(BoundedFigure):
    """A rule over the record of how far a run got: `levers` move fields of it, as in "tokens up"."""

    place: str
    levers: tuple[str, ...]
    unknown: str  # the code where the figure cannot be had

    def kind(self) -> Kind[Any]:
        """Return the kind that this rule is."""
        breaks = Breaks(need="record", row=CorpusProgress, blocked=(self.unknown,))

        def by(lever: str) -> Callable[[Any], Moved]:
            name, _, way = lever.partition(" ")

            def moved(evidence: Evidence, least: float) -> Evidence:
                record: Any = record_of(evidence, "record", CorpusProgress)
                value = getattr(record, name) + (least if way == "up" else -least)
                return with_value(evidence, "record", Record(dataclasses.replace(record, **{name: value})))

            return lambda _limits: moved

        levers = {lever: by(lever) for lever in self.levers}
        return Kind(
            name=self.name, version=self.version, roles={"run": SubjectKind.RUN}, check=self.check, figure=self.figure,
            needs={"record": Need("corpus_progress", of=("run",))},
            limits=self.limits(levers, lambda _, __: self.place),
            codes={self.code: Outcome.FAIL, self.unknown: Outcome.BLOCKED}, judge=ClauseJudge(self._clauses),
            mutations=tuple(
                breaks(f"{one} unknown", self.unknown, place="", **dict[str, Any]({one: None})) for one in self.fields),
        )  # fmt: skip

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields that the figure stands on."""
        return tuple(dict.fromkeys(lever.partition(" ")[0] for lever in self.levers))

    def inputs(self, evidence: Evidence, limits: Any) -> list[Any]:
        """Return the record."""
        return [record_of(evidence, "record", CorpusProgress)]

    def _clauses(self, limits: Any) -> Sequence[Clause]:
        must, bound = self.bound_of(limits)

        def lacking(evidence: Evidence) -> Fields | None:
            record: Any = record_of(evidence, "record", CorpusProgress)
            gone = [name for name in self.fields if record is None or not getattr(record, name)]
            return {"unknown": gone} if gone else None

        def read(evidence: Evidence) -> tuple[float, Fields]:
            found = self.figure(*self.inputs(evidence, limits), limits)
            return found.value, {"enough": found.value, "of": 1, **found.more}

        return Requires(code=self.unknown, lacking=lacking), Whole(
            code=self.code, place=lambda _: self.place, read=read, must=must, bound=bound
        )


OF_SIZE = settings(parameters=(int, Doc("parameters; `where: {parameters: …}` holds them to the run", ge=1, le=10**15)))
STEPS = ProgressRule(
    name="steps-asked", place="steps", figure=steps_off, code="other-steps", unknown="unknown-steps", bound=0, ge=0,
    must=("at most",), le=10**9, levers=("taken_steps up", "requested_steps up"),
    doc="the number of steps more, or fewer, than were asked for",
)  # fmt: skip
TOKENS = (
    ProgressRule(name="declared-epochs", place="tokens", figure=epochs, code="too-often", unknown="unknown-corpus",
                 must=("at most",), ge=0, levers=("tokens up", "corpus_tokens down"),
                 doc="the number of passes over the corpus"),
    ProgressRule(name="token-budget", place="tokens", figure=tokens_per_parameter, code="too-few", options=OF_SIZE,
                 unknown="unknown-tokens", must=("at least",), bound=20.0, ge=0.01, levers=("tokens down",),
                 doc="the number of tokens for each parameter"),
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class RunningSteps:
    """Steps beyond those that were asked for; fewer are known at the end."""

    most: float
    codes: tuple[str, ...] = (STEPS.code,)
    last: float = -math.inf
    taken: int = 0

    def row(self, step: float | None, _numbers: Numbers, _events: Sequence[Fields] = ()) -> Offence | None:
        """Return that this step is one too many."""
        if step is None or not step > self.last:
            return None
        self.last, self.taken = step, self.taken + 1
        over = self.taken > self.most
        return Offence(place=STEPS.place, code=STEPS.code, figures={"step": step}) if over else None


def tripwire(evidence: Evidence, limits: object, _measure: object) -> RunningSteps | None:
    """Begin to count the steps, where it is known how many were asked for."""
    record = record_of(evidence, "record", CorpusProgress)
    asked = record.requested_steps if record else None
    return RunningSteps(most=asked + STEPS.bound_of(limits)[1]) if asked else None


KIND = {rule.name: rule.kind() for rule in TOKENS} | {
    STEPS.name: dataclasses.replace(STEPS.kind(), final=(STEPS.code,), tripwire=tripwire)
}
