"""wall-time-budget: is a declared statistic of step wall time, over declared steps, under the budget?"""

from __future__ import annotations

import enum
from array import array
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.core import Doc, Outcome
from weighbridge.figures.whole import statistic
from weighbridge.gates.families.column_basis import MOST_FLOPS_PER_S
from weighbridge.gates.families.rule import Lever, Rule
from weighbridge.gates.families.run_columns import GENUINE, speed_moves, window_place
from weighbridge.gates.families.timed_window import IN_MS, TIMES, rows_that_count


class Repeated(enum.StrEnum):
    """Which row of a step counts that is logged more than once."""

    FIRST = "first"
    LAST = "last"


class Statistic(enum.StrEnum):
    """What of the samples is compared with the budget."""

    MEDIAN = "median"
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which times the statistic is of."""

    statistic: Annotated[Statistic, Doc("what of the samples is compared with the budget")] = Statistic.MEDIAN
    steps: Annotated[tuple[Annotated[int, Doc(ge=0)], Annotated[int, Doc(ge=0)]], Doc("first and last step")]
    min_samples: Annotated[
        int | None, Doc("how many different steps of the window must have a time; all without it", ge=1, tight="up")
    ] = None
    repeated: Annotated[
        Repeated | None,
        Doc("which row counts of a step that is logged again, by a resumed run, say; without it none may be"),
    ] = None
    max_flops_per_s: Annotated[
        float,
        Doc("most work that the median wall time may imply, 6 × parameters × tokens of a process", unit="1/s", ge=1e12,
            le=1e21, must="at most", moves=speed_moves(Outcome.BLOCKED)),
    ] = MOST_FLOPS_PER_S  # fmt: skip


def _up(*, at_the_end: bool) -> Lever:
    def move(steps: array[int], values: array[float], amount: float, limits: Any) -> None:
        """Move as few times of the window up as move its statistic."""
        at = rows_that_count(steps, limits, limits.repeated)
        many = (len(at) + 1) // 2 if limits.statistic is Statistic.MEDIAN else 1
        for index in at[-many:] if at_the_end else at[:many]:
            values[index] += amount

    return move


def check(limits: Any) -> list[str]:
    """Return what is wrong with a window and the samples that it must have."""
    width = limits.steps[1] - limits.steps[0] + 1
    if width < 1:
        return [f"steps: the window ends at {limits.steps[1]}, before it begins at {limits.steps[0]}"]
    few = limits.min_samples is not None and limits.min_samples > width
    return [f"min_samples: {limits.min_samples} samples cannot come from a window of {width} steps"] if few else []


KIND = Rule(
    name="wall-time-budget", version=5, column="wall_ms", means="the column of step wall times in milliseconds",
    figure=statistic, code="over-budget", must=("below", "at most"), gt=0, ge=None, le=1e7,
    doc="the statistic of the window", options=Options, window=False, min_samples=None, guards=(IN_MS, GENUINE, TIMES),
    checks=check, own_levers={"at the end": _up(at_the_end=True), "at the beginning": _up(at_the_end=False)},
    place=lambda _, limits: window_place(limits.steps), reach=lambda limits: (limits.steps[0], limits.min_samples or 0),
).kind()  # fmt: skip
