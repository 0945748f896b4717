"""steps-asked: did the run take as many steps as it was asked for?"""

import math
from collections.abc import Sequence

from weighbridge.clauses.kind import Evidence, Numbers, record_of
from weighbridge.core import Fields, Offence, dataclass, replace
from weighbridge.figures.progress import steps_off
from weighbridge.gates.families.rule import RecordRule
from weighbridge.quantities.runs import CorpusProgress

RULE = RecordRule(
    name="steps-asked", quantity="corpus_progress", record=CorpusProgress, place="steps", figure=steps_off,
    code="other-steps", unknown="unknown-steps", must=("at most",), bound=0, ge=0, le=10**9,
    levers=("taken_steps up", "requested_steps up"), doc="the number of steps more, or fewer, than were asked for",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class RunningSteps:
    """Steps beyond those that were asked for; fewer are known at the end."""

    most: float
    codes: tuple[str, ...] = (RULE.code,)
    last: float = -math.inf
    taken: int = 0

    def row(self, step: float | None, _numbers: Numbers, _events: Sequence[Fields] = ()) -> Offence | None:
        """Return that this step is one too many."""
        if step is None or not step > self.last:
            return None
        self.last, self.taken = step, self.taken + 1
        over = self.taken > self.most
        return Offence(place=RULE.place, code=RULE.code, figures={"step": step}) if over else None


def tripwire(evidence: Evidence, limits: object, _measure: object) -> RunningSteps | None:
    """Begin to count the steps, where it is known how many were asked for."""
    record = record_of(evidence, "record", CorpusProgress)
    asked = record.requested_steps if record else None
    return RunningSteps(most=asked + RULE.bound_of(limits)[1]) if asked else None


KIND = replace(RULE.kind(), final=(RULE.code,), tripwire=tripwire)
