"""step-metrics: does every step have every required metric, finite, in order, self-consistent, and not invented?

A metric owes its own cadence, which may be slower than the step's. One that its logger keeps free of NaN was not seen.
A loss or rate that is not required owes finite numbers where it holds any; any other metric, that some are no NaN.
A constant column is a placeholder and one like noise is invented, required or not, unless the contract allows it.
What the recorder saw as it looked is judged here only where it is required: it has rules of its own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Kind, Need, Numbers, blocked, codes, failed, passed, rows_of
from weighbridge.core import Doc, Fields, Json, Offence, Outcome, SubjectKind, Verdict, dataclass, plain
from weighbridge.gates.families import column_basis
from weighbridge.gates.families.column_basis import LOOKED_AT, ColumnBasis, basis_of, must_be_finite, stands_for_absent
from weighbridge.gates.families.run_columns import at_most_speed
from weighbridge.gates.trials import column_trials as trials
from weighbridge.gates.trials.column_trials import NEED, STEP
from weighbridge.quantities.runs import StepColumn, StepOrder

REGULAR = 3  # numbers; fewer have no cadence of their own, and owe that of the step

CONSTANT = ("lr", "tokens", "epoch", "wraps", "*mem*")  # columns that may well be, unless a contract says otherwise
NO_CASE = ("AP*", "*/AP*")  # COCO's precision of a size or class that no object has
LEAST_NAN, NAN_SHARE = 5, 0.9  # of the samples, behind the last finite one
REPEATED = "at how many steps a metric may be logged more than once, resumptions apart"
GAP = "most steps from one number of a metric to the next; less than two of its own intervals without it"
TOLERANCE = "how far tokens_per_sec × wall_ms / 1000 may lie from tokens, as a share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which rows are described."""

    steps: Annotated[
        tuple[Annotated[int, Doc(ge=0)], Annotated[int, Doc(ge=0)]] | None, Doc("first and last step; all without it")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which metrics every step must have, and what may be out of the ordinary."""

    required: Annotated[tuple[str, ...], Doc("columns that every step must have", min_items=1)]
    allow_constant: Annotated[tuple[str, ...], Doc("globs of columns that may hold one value throughout")] = CONSTANT
    allow_noise: Annotated[tuple[str, ...], Doc("globs of columns that may look like uniform noise")] = ()
    min_steps: Annotated[
        int, Doc("fewest different steps that show anything", ge=2, must="at least", moves=trials.FEW_STEPS)
    ] = 2
    max_repeated_steps: Annotated[int, Doc(REPEATED, ge=0, le=10_000, must="at most", moves=trials.TWICE)] = 0
    max_backward_steps: Annotated[
        int, Doc("how often the step may fall, resumptions apart", ge=0, le=100, must="at most", moves=trials.BACKWARD)
    ] = 0
    max_gap: Annotated[int | None, Doc(GAP, ge=1, le=10_000, must="at most", moves=trials.HOLES)] = None
    allow_filtered: Annotated[tuple[str, ...], Doc("globs of columns that the logger may keep free of NaN")] = ()
    allow_nan: Annotated[tuple[str, ...], Doc("globs of columns, required ones apart, that may be all NaN")] = NO_CASE
    allow_undecided: Annotated[
        tuple[str, ...], Doc("columns, each by its own name, that may be too short to tell from uniform noise")
    ] = ()
    max_flops_per_s: Annotated[float, at_most_speed(Outcome.FAIL)] = column_basis.MOST_FLOPS_PER_S
    rate_tolerance: Annotated[float, Doc(TOLERANCE, gt=0, le=0.5, tight="down", moves=trials.RATE)] = 0.05


def check(limits: Limits, measure: Measure) -> list[str]:
    """Return what is wrong with limits that are each in order alone."""
    width = math.inf if measure.steps is None else measure.steps[1] - measure.steps[0] + 1
    narrow = f"steps: a window of {width} steps cannot hold min_steps: {limits.min_steps}"
    globs = [name for name in limits.allow_undecided if any(sign in name for sign in "*?[")]
    unnamed = [f"allow_undecided: {name} is no column; name each by itself" for name in globs]
    return [*([narrow] if width < limits.min_steps else []), *unnamed]


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare every required metric, the order of the steps and every column's basis with the contract."""
    every, named = rows_of(evidence, NEED, StepColumn), {*limits.required}
    rows = {row.column: row for row in every if row.column not in LOOKED_AT or named & {row.column, row.logged_as}}
    order = rows[STEP].order if STEP in rows else None
    few: Fields = {"steps": order.steps if order else 0, "needed": limits.min_steps}
    if order is None:
        return blocked("too-few-steps", few)
    by_name = {row.logged_as: row for row in reversed(rows.values())} | rows  # the standard name, or that in the log
    steps, required = rows[STEP], {name: by_name.get(name) for name in limits.required}
    cadence = min((row.interval or math.inf for row in required.values() if row), default=math.inf)
    offences = list(_order(order, steps, limits, cadence))
    for row in sorted(rows.values(), key=_first_break):
        offences += _cells(row, steps, order, limits, owed=row is steps or row in required.values())
        offences += _basis(row, limits, rows)
    if order.steps < limits.min_steps and not (offences := [one for one in offences if one.code in FINAL]):
        return blocked("too-few-steps", few)
    unseen = [Offence(place=name, code="absent") for name, row in required.items() if row is None]
    unseen += [
        Offence(place=row.column, code="nan-filtered", figures={"logged_as": row.logged_as, "finite": row.finite})
        for row in required.values()
        if row and row.nan_filtered and not _named(row, limits.allow_filtered)
    ]
    unclear = [row for row in required.values() if row and basis_of(row).basis is ColumnBasis.UNDECIDED]
    undecided = [row for row in unclear if not _named(row, limits.allow_noise + limits.allow_undecided)]
    figures: Fields = {"steps": order.steps, "rows": steps.rows, "resumptions": order.resumptions}
    figures = {**figures, "bases": _bases(rows)}
    looked = list(dict.fromkeys([STEP, *(row.column if row else name for name, row in required.items()), *rows]))
    if offences:
        return failed([*offences, *unseen], looked=looked, unit="columns", figures=figures)
    if unseen:
        return blocked(unseen[0].code, figures, offences=unseen, of=len(looked), unit="columns")
    if undecided:
        short: Fields = {"column": undecided[0].column, "samples": undecided[0].finite}
        return blocked("column-undecided", {**short, "columns": [row.column for row in undecided]})
    return passed(looked=looked, unit="columns", figures=figures)


def _first_break(row: StepColumn) -> float:
    return math.inf if row.first_non_finite_step is None else row.first_non_finite_step


def _order(order: StepOrder, steps: StepColumn, limits: Limits, cadence: float) -> Iterator[Offence]:
    """Yield what is wrong with the steps; the most frequent of the required columns comes every `cadence` steps.

    Where two are logged at other intervals, rows of one lie between those of the other, and the step's own is shorter.
    """
    most = max(_most(steps, steps, limits), 0 if limits.max_gap is not None else cadence)
    for code, found, limit, step in (
        ("backward-steps", order.backward_steps, limits.max_backward_steps, order.first_backward_step),
        ("gap", order.largest_gap, most, order.largest_gap_after_step),
        ("fractional-steps", order.fractional, 0, order.first_step),
    ):
        if found > limit:
            yield Offence(place=STEP, code=code, figures={"found": found, "limit": limit, "step": step})


def _most(row: StepColumn, steps: StepColumn, limits: Limits) -> float:
    """Return the most steps that a column may be without a number: as declared, or what leaves out none of its own."""
    if limits.max_gap is not None:
        return limits.max_gap
    interval = row.interval if row.samples >= REGULAR else steps.interval
    return math.ceil(2 * (interval or 1)) - 1


def _cells(row: StepColumn, steps: StepColumn, order: StepOrder, limits: Limits, *, owed: bool) -> Iterator[Offence]:
    counted: Fields = {key: getattr(row, key) for key in COUNTED}
    beside = not owed and (row.nan or row.infinite) and must_be_finite(row) and not stands_for_absent(row)
    shows = row.nan < LEAST_NAN or row.ends_not_finite < NAN_SHARE * row.samples or _named(row, limits.allow_nan)
    most, hole = _most(row, steps, limits), row.largest_hole
    lost = steps.largest_hole > _most(steps, steps, limits) and row.hole_after_step == steps.hole_after_step  # a gap
    lost |= 0 < row.samples < REGULAR and order.steps < column_basis.LEAST_SAMPLES  # two of a handful have no interval
    for code, broken, first in (
        ("unreadable", row.unreadable, row.first_unreadable_step),
        ("no-step", row is steps and row.missing, None),
        ("missing", hole > most and not lost, row.hole_after_step),
        ("non-finite", row.nan or row.infinite, row.first_non_finite_step),
        ("non-finite-beside", beside, row.first_non_finite_step),
        ("all-nan", not (owed or beside or shows), row.first_nan_step),
        ("repeated-steps", row is not steps and row.logged_twice > limits.max_repeated_steps, row.first_logged_twice),
    ):
        if broken and (owed or code in ("non-finite-beside", "all-nan")):
            more: dict[str, Json] = {"unreadable": row.unreadable, "found": row.logged_twice, "first_step": first}
            more |= {"limit": limits.max_repeated_steps, "steps": order.steps, "hole": hole, "most": most}
            yield Offence(place=row.column, code=code, figures={**counted, **more})


def _named(row: StepColumn, globs: Sequence[str]) -> bool:
    return any(listed(name, globs) for name in (row.column, row.logged_as))


def _basis(row: StepColumn, limits: Limits, rows: Mapping[str, StepColumn]) -> Iterator[Offence]:
    """Yield that a column is a placeholder, in part or throughout, or invented, and that its rate is another."""
    found, constant = basis_of(row), _named(row, limits.allow_constant)
    basis = found.basis
    shape: Fields = {key: getattr(row, key) for key in STATISTICS}
    if basis is ColumnBasis.CONSTANT and not constant and not row.whole_passes:
        yield Offence(place=row.column, code="constant", figures=shape)
    if basis is ColumnBasis.NOISE and not _named(row, limits.allow_noise):
        yield Offence(place=row.column, code="noise", figures=shape)
    if basis is ColumnBasis.DERIVED and row.column in column_basis.OF_A_STEP:
        yield Offence(place=row.column, code="derived", figures={**shape, "how": found.how, "partner": found.partner})
    stretch = next(iter(column_basis.placeholders(row)), None)
    # Equal numbers in a row are suspicious of these alone: an accuracy, say, has few values, and repeats by itself.
    anew = column_basis.of_a_step(row.column) or not {row.column, row.logged_as}.isdisjoint(limits.required)
    if stretch is not None and anew and basis is not ColumnBasis.CONSTANT and not constant:
        yield Offence(place=row.column, code="placeholder", figures={**plain(stretch), "samples": row.finite})
    if (often := column_basis.recurring(row)) is not None and basis is not ColumnBasis.CONSTANT and not constant:
        yield Offence(place=row.column, code="recurring", figures={**plain(often), "samples": row.finite})
    quick = column_basis.too_quick(row)
    if quick is not None and column_basis.tells_speed(row.column, rows):
        yield Offence(place=row.column, code="impossible-speed", figures=plain(quick))
    if row.flops_per_s is not None and row.flops_per_s > limits.max_flops_per_s:
        speed: Fields = {"flops_per_s": row.flops_per_s, "most": limits.max_flops_per_s}
        yield Offence(place=row.column, code="beyond-hardware", figures=speed)
    if wrong := column_basis.impossible(row):
        figures: Fields = {"negative": row.negative, "zeros": row.zeros, "samples": row.finite}
        step: Fields = {} if row.first_not_positive_step is None else {"step": row.first_not_positive_step}
        figures = {"wrong": wrong, **figures, "largest": row.max, **step}
        yield Offence(place=row.column, code="impossible", figures=figures)
    rate, tolerance = row.rate, limits.rate_tolerance
    if rate is not None and not 1 - tolerance <= rate.over_tokens <= 1 + tolerance:
        figures = {"ratio": rate.over_tokens, "rows": rate.rows, "tolerance": tolerance}
        yield Offence(place=row.column, code="inconsistent", figures=figures)


FINAL = ("non-finite", "fractional-steps")  # what no later row mends
COUNTED = ("rows", "samples", "steps_missing", "missing", "nan", "infinite", "ends_not_finite")


@dataclass(slots=True, kw_only=True)
class RunningMetrics:
    """What no later row mends of the required metrics and of the steps."""

    columns: tuple[str, ...]
    codes: tuple[str, ...] = FINAL
    window: tuple[float, float] = (-math.inf, math.inf)

    def row(self, step: float | None, numbers: Numbers, _events: Sequence[Fields] = ()) -> Offence | None:
        """Return a required metric that is no number, or a step that is no whole one."""
        if step is None or not self.window[0] <= step <= self.window[1]:
            return None
        if not step.is_integer():
            return Offence(place=STEP, code="fractional-steps", figures={"step": step})
        broken = (name for name in self.columns if name in numbers and not math.isfinite(numbers[name]))
        return next((Offence(place=name, code="non-finite", figures={"step": step}) for name in broken), None)


def tripwire(evidence: Evidence, limits: Limits, measure: Measure) -> RunningMetrics:
    """Begin to judge the required metrics row by row."""
    names = {row.logged_as: row.column for row in rows_of(evidence, NEED, StepColumn)}
    columns = tuple(names.get(name, name) for name in limits.required)
    return RunningMetrics(columns=columns, window=measure.steps or (-math.inf, math.inf))


STATISTICS = (
    *("finite", "commonest", "distinct", "min", "max", "lag1_root_n", "uniform_ks_root_n", "rank_correlation_root_n"),
    "range_over_std",
)


def _bases(rows: Mapping[str, StepColumn]) -> Fields:
    bases = {}
    for name, row in rows.items():
        found = basis_of(row)
        words = {
            ColumnBasis.DERIVED: f"derived from {found.partner} ({found.how})",
            ColumnBasis.MEASURED: f"not uniform noise ({found.how})",
            ColumnBasis.UNDECIDED: f"undecided, too few samples to tell from noise ({row.finite})",
        }
        if name != STEP:
            often = f", every {row.interval:g} steps" if row.interval is not None and row.interval > 1 else ""
            reported = ", as its logger lets through what is finite" if row.nan_filtered else ""
            bases[name] = words.get(found.basis, str(found.basis)) + often + reported
    return bases


KIND = Kind(
    name="step-metrics", version=9, roles={"run": SubjectKind.RUN},
    needs={NEED: Need("step_columns", of=("run",), options=("steps",))}, limits=Limits, measure=Measure,
    window=lambda _, measure: measure.steps, columns=lambda limits, _: limits.required,
    codes=codes(*trials.FAILS, blocked=trials.BLOCKED), judge=judge, check=check, mutations=trials.MUTATIONS,
    final=FINAL, tripwire=tripwire,
)  # fmt: skip
