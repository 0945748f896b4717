"""new-kind: is every sample of a logged column at most what the contract allows?

A whole kind, to be replaced: each limit says what it bounds and how trials break it, each clause what is promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.clause import Clause, Whole
from weighbridge.clauses.kind import Evidence, series_of
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Outcome
from weighbridge.gates.families import run_columns

HIGHEST = run_columns.SamplesFault(
    code="too-high",
    ways={
        "the first sample": lambda _steps, samples, value: samples.__setitem__(0, value),
        "the last sample": lambda _steps, samples, value: samples.__setitem__(-1, value),
    },
)
ENDS = run_columns.SamplesFault(
    code="too-few-samples",
    ways={"the run ends too early": run_columns.end},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How high a sample may be, and how many samples there must be."""

    at_most: Annotated[
        float,
        Doc("no sample is more than this", ge=-1e308, le=1e308, tight="down", must="at most", fault=HIGHEST),
    ]
    min_samples: Annotated[
        int,
        Doc("samples that there must be", ge=1, tight="up", must="at least", fault=ENDS, comes_to="BLOCKED"),
    ] = 100


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that there are enough samples, and that none is too high."""

    def samples(evidence: Evidence) -> tuple[float, Fields]:
        found = len(series_of(evidence, run_columns.SAMPLES).value)
        return found, {"samples": found, "needed": limits.min_samples}

    def highest(evidence: Evidence) -> tuple[float, Fields]:
        series = series_of(evidence, run_columns.SAMPLES)
        over = sum(value > limits.at_most for value in series.value)
        value = max(series.value)
        step = series.step[series.value.index(value)]
        return value, {"step": step, "over": over, "of": len(series.value), "enough": value}

    return (
        Whole(
            code="too-few-samples",
            place=run_columns.place,
            read=samples,
            must="at least",
            bound=limits.min_samples,
            outcome=Outcome.BLOCKED,
        ),
        Whole(code="too-high", place=run_columns.place, read=highest, must="at most", bound=limits.at_most),
    )


KIND = run_columns.kind_of_column(
    "new-kind",
    version=1,
    column="loss",
    asks=(run_columns.GENUINE, run_columns.RISING, run_columns.FINITE),
    limits=Limits,
    clauses=clauses,
    codes={"too-high": Outcome.FAIL, "too-few-samples": Outcome.BLOCKED},
)
