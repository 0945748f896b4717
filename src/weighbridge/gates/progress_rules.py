"""Rules over how far a run got: passes over its corpus, tokens for its size, and steps that were asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weighbridge.clauses.kind import Evidence, Numbers, record_of, settings
from weighbridge.core import Doc, Fields, Offence
from weighbridge.figures.whole import epochs, steps_off, tokens_per_parameter
from weighbridge.gates.families.rule import ProgressRule
from weighbridge.quantities.runs import CorpusProgress

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


KIND = {rule.name: rule.kind() for rule in TOKENS}
KIND |= {STEPS.name: replace(STEPS.kind(), final=(STEPS.code,), tripwire=tripwire)}
