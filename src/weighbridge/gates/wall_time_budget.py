"""wall-time-budget: is a declared statistic of step wall time, over declared steps, under the budget?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.whole import STATISTICS, statistic
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import GENUINE, window_place
from weighbridge.gates.families.timed_window import IN_MS, TIMES, Window, check, middle_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Window):
    """Which times the statistic is of."""

    statistic: Annotated[str, Doc("what of the samples is compared with the budget", choices=tuple(STATISTICS))] = (
        "median"
    )


KIND = Rule(
    name="wall-time-budget", version=6, column="wall_ms", means="the column of step wall times in milliseconds",
    figure=statistic, code="over-budget", must=("below", "at most"), gt=0, ge=None, le=1e7,
    doc="the statistic of the window", options=Options, window=False, min_samples=None, guards=(IN_MS, GENUINE, TIMES),
    own_levers={"at the end": middle_up(at_the_end=True), "at the beginning": middle_up(at_the_end=False)},
    checks=check, place=lambda _, limits: window_place(limits.steps),
    reach=lambda limits: (limits.steps[0], limits.min_samples or 0),
).kind()  # fmt: skip
