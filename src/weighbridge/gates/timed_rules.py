"""Rules over step wall times: a declared statistic under a budget, and no more computed than devices can.

Of a window of steps is asked that there are enough times, of different steps, real, and none a placeholder.
"""

from __future__ import annotations

import enum
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, Requires
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, series_of, settings, with_rows
from weighbridge.core import Doc, Fields, Outcome, replace
from weighbridge.figures.peaks import PEAKS, share_of_peak
from weighbridge.figures.whole import STATISTICS, between, in_window, statistic
from weighbridge.gates.families import run_columns
from weighbridge.gates.families.column_basis import MOST_FLOPS_PER_S
from weighbridge.gates.families.levers import Lever, divide
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import COLUMNS, FINITE, RISING, SAMPLES, THERE, ColumnGuard, changed
from weighbridge.quantities.runs import StepColumn

Repeated = enum.StrEnum("Repeated", ("FIRST", "LAST"))  # which row of a step counts that is logged more than once
STEP: Any = Annotated[int, Doc(ge=0)]
SAID_TWICE = "which row counts of a step that is logged again, by a resumed run, say; without it none may be"
TIMED = settings(
    steps=(tuple[STEP, STEP], Doc("first and last step")),
    min_samples=(
        int | None,
        Doc("how many different steps of the window must have a time; all without it", ge=1, tight="up"),
        None,
    ),
    repeated=(Repeated | None, Doc(SAID_TWICE), None),
    max_flops_per_s=(float, run_columns.at_most_speed(Outcome.BLOCKED), MOST_FLOPS_PER_S),
    statistic=(str, Doc("what of the samples is compared with the budget", choices=tuple(STATISTICS)), "median"),
)


def check(limits: Any) -> list[str]:
    """Return what is wrong with a window and the samples that it must have."""
    if (width := limits.steps[1] - limits.steps[0] + 1) < 1:
        return [f"steps: the window ends at {limits.steps[1]}, before it begins at {limits.steps[0]}"]
    few = limits.min_samples is not None and limits.min_samples > width
    return [f"min_samples: {limits.min_samples} samples cannot come from a window of {width} steps"] if few else []


def needed(limits: Any) -> int:
    """Return how many steps of the window must have a time: all of them, where the contract names no number."""
    width: int = limits.steps[1] - limits.steps[0] + 1
    return width if limits.min_samples is None else limits.min_samples


def _clauses(limits: Any) -> Iterator[Clause]:
    asked: Fields = {"needed": needed(limits), "steps": list(limits.steps)}

    def too_fast(evidence: Evidence) -> Fields | None:
        speeds = (row.flops_per_s for row in rows_of(evidence, COLUMNS, StepColumn) if row.flops_per_s is not None)
        fastest, most = max(speeds, default=0.0), limits.max_flops_per_s
        return {"flops_per_s": fastest, "most": most} if fastest > most else None

    def too_few(evidence: Evidence) -> Fields | None:
        distinct = len(set(between(series_of(evidence, SAMPLES), limits.steps).step))
        return {**asked, "samples": distinct} if distinct < needed(limits) else None

    def repeats(evidence: Evidence) -> Fields | None:
        steps = Counter(between(series_of(evidence, SAMPLES), limits.steps).step)
        again = sorted(step for step, times in steps.items() if times > 1)
        some = again and limits.repeated is None
        return {**asked, "again": len(again), "first_step": again[0], "rows": steps.total()} if some else None

    def not_times(evidence: Evidence) -> Fields | None:
        window = in_window(series_of(evidence, SAMPLES), limits)
        bad = [step for step, value in zip(window.step, window.value, strict=True) if not 0.0 < value < math.inf]
        return {**asked, "bad": len(bad), "first_step": bad[0], "samples": len(set(window.step))} if bad else None

    def constant(evidence: Evidence) -> Fields | None:
        values = in_window(series_of(evidence, SAMPLES), limits).value
        return {**asked, "value": values[0]} if len(values) > 1 and min(values) == max(values) else None

    yield Requires(code="beyond-hardware", lacking=too_fast)
    yield Requires(code="placeholder-rows", lacking=lambda of: run_columns.placeholder_rows(of, limits.steps))
    yield Requires(code="too-few-samples", lacking=too_few)
    yield Requires(code="repeated-steps", lacking=repeats)
    yield Requires(code="not-a-time", lacking=not_times)
    yield Requires(code="constant-window", lacking=constant)


# --- How it is broken: each change takes steps, times, and the indices of the window's rows ---------------------------

Change = Callable[["array[int]", "array[float]", Sequence[int], Any], None]


def rows_that_count(steps: Sequence[int], limits: Any, which: str | None) -> list[int]:
    """Return the indices of the window's rows; of a repeated step the first or the last alone, where it is said."""
    at = [index for index, step in enumerate(steps) if limits.steps[0] <= step <= limits.steps[1]]
    if which is None:
        return at
    return sorted({steps[index]: index for index in (at if which == "last" else at[::-1])}.values())


def middle_up(*, at_the_end: bool) -> Lever:
    """Return the lever that moves up as few times of the window as move its statistic."""

    def move(steps: array[int], values: array[float], amount: float, limits: Any) -> None:
        at = rows_that_count(steps, limits, limits.repeated)
        many = (len(at) + 1) // 2 if limits.statistic == "median" else 1
        for index in at[-many:] if at_the_end else at[:many]:
            values[index] += amount

    return move


def _breaks(name: str, code: str, change: Change, least: int = 1) -> Mutation[Any]:
    def apply(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
        if code == "repeated-steps" and limits.repeated is not None:
            return "the contract says which row of a repeated step counts"
        which = limits.repeated if code in ("not-a-time", "constant-window") else None
        at = rows_that_count(series_of(evidence, SAMPLES).step, limits, which)
        if len(at) < least or needed(limits) < least:
            return "one sample is enough for this contract"
        return Mutated(changed(evidence, lambda steps, times: change(steps, times, at, limits)))

    return Mutation(name, code, apply, Outcome.BLOCKED)


def _push_out(steps: array[int], _times: array[float], at: Sequence[int], limits: Any) -> None:
    """Leave one step too few in the window, and put the others right before and right after it."""
    kept = set(sorted({steps[index] for index in at})[: needed(limits) - 1])
    for turn, index in enumerate(index for index in at if steps[index] not in kept):
        steps[index] = limits.steps[0] - 1 if turn % 2 else limits.steps[1] + 1


def _twice(steps: array[int], times: array[float], at: Sequence[int], _limits: Any) -> None:
    steps.append(steps[at[-1]])
    times.append(times[at[-1]])


def _level(numbers: array[Any], at: Sequence[int]) -> None:
    for index in at:
        numbers[index] = numbers[at[0]]


def _one(which: int, value: float) -> Change:
    return lambda _steps, times, at, _limits: times.__setitem__(at[which], value)


def _not_in_ms(evidence: Evidence) -> Fields | None:
    return None if run_columns.place(evidence).endswith("_ms") else {"column": run_columns.place(evidence)}


def _of_another_unit(evidence: Evidence, _limits: Any, _places: tuple[str, ...]) -> Mutated:
    judged, other = run_columns.place(evidence), "val_loss"
    rows = [replace(row, column=other) for row in rows_of(evidence, COLUMNS, StepColumn) if row.column == judged]
    return Mutated({**with_rows(evidence, COLUMNS, rows), SAMPLES: replace(evidence[SAMPLES], at=other)})


# A standard name that ends in `_ms` promises milliseconds, and the reader converts to it.
IN_MS = ColumnGuard(
    clauses=lambda _limits: [Requires(code="not-in-ms", lacking=_not_in_ms)],
    codes={"not-in-ms": Outcome.BLOCKED},
    mutations=(Mutation("a column of another quantity", "not-in-ms", _of_another_unit, Outcome.BLOCKED),),
    family="timed-window",
)
_CODES = ("beyond-hardware", "placeholder-rows", "too-few-samples", "repeated-steps", "not-a-time", "constant-window")
TIMES = ColumnGuard(
    clauses=_clauses,
    codes=dict.fromkeys(_CODES, Outcome.BLOCKED),
    mutations=(
        _breaks("one step too few", "too-few-samples", _push_out),
        _breaks("one step again and again", "too-few-samples", lambda steps, _, at, __: _level(steps, at), least=2),
        _breaks("one step twice", "repeated-steps", _twice),
        *run_columns.NO_PLACEHOLDERS,
        _breaks("the last time is NaN", "not-a-time", _one(-1, math.nan)),
        _breaks("the last time is infinite", "not-a-time", _one(-1, math.inf)),
        _breaks("the first time is zero", "not-a-time", _one(0, 0.0)),
        _breaks("one time throughout the window", "constant-window", lambda _, ms, at, __: _level(ms, at), least=2),
    ),
    family="timed-window",
)

# --- The rules --------------------------------------------------------------------------------------------------------

DTYPES = tuple(dict.fromkeys(name for row in PEAKS.values() for name in row if name != "source"))
MEANS = "the column of step wall times in milliseconds"
COMPUTED = settings(
    device=(str, Doc("the device, as `figures/device_peaks.yaml` calls it", choices=tuple(PEAKS))),
    dtype=(str, Doc("in which its products are", choices=DTYPES)),
    devices=(int, Doc("how many the tokens of a step were spread over", ge=1, le=10**6), 1),
    parameters=(int, Doc("that a token goes through; `where: {parameters: …}` holds them to the run", ge=1)),
    tokens_per_step=(int, Doc("`where: {tokens_per_step: …}` holds them to the run", ge=1)),
    flops_per_parameter=(float, Doc("and token: 6, or 4 where weights are frozen", gt=0, le=16), 6.0),
)
RULES = (
    Rule(name="wall-time-budget", version=7, column="wall_ms", means=MEANS, figure=statistic, code="over-budget",
         must=("below", "at most"), gt=0, ge=None, le=1e7, doc="the statistic of the window", options=TIMED,
         window=False, min_samples=None, guards=(IN_MS, *THERE, TIMES), checks=check,
         own_levers={"at the end": middle_up(at_the_end=True), "at the beginning": middle_up(at_the_end=False)},
         place=lambda _, limits: f"steps {limits.steps[0]}..{limits.steps[1]}",
         reach=lambda limits: (limits.steps[0], limits.min_samples or 0)),
    Rule(name="peak-share", column="wall_ms", means=MEANS, figure=share_of_peak, code="impossible", must=("at most",),
         bound=1.0, gt=0, ge=None, le=1.0, min_samples=20, options=COMPUTED, version=2,
         guards=(IN_MS, *THERE, RISING, FINITE),
         doc="the share of its devices' peak that the fastest step needed",
         checks=lambda of: (
             [] if of.dtype in PEAKS[of.device] else [f"dtype: no peak of {of.device} in {of.dtype} is known"]),
         own_levers={"the last shorter": divide(-1), "the first shorter": divide(0)}),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
