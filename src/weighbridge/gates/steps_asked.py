"""steps-asked: did the run take as many steps as it was asked for?"""

from weighbridge.figures.progress import steps_off
from weighbridge.gates.families.rule import RecordRule
from weighbridge.quantities.runs import CorpusProgress

KIND = RecordRule(
    name="steps-asked", quantity="corpus_progress", record=CorpusProgress, place="steps", figure=steps_off,
    code="other-steps", unknown="unknown-steps", must=("at most",), bound=0, ge=0, le=10**9,
    levers=("taken_steps up", "requested_steps up"), doc="the number of steps more, or fewer, than were asked for",
).kind()  # fmt: skip
