"""step-metrics: does every step have every required metric, finite, in order, self-consistent, and not invented?

A metric may be logged less often than the step, beside rows of evaluation and summary: it owes its own cadence. A run
that was resumed logs some steps again. A metric that is not logged, or that its logger keeps free of NaN, was not seen.
A constant column is a placeholder and one indistinguishable from noise is invented, required or not, unless the
contract allows it by name; a column derived from another is told, not failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import (
    At,
    Evidence,
    Kind,
    Mutated,
    Mutation,
    Need,
    as_asked,
    blocked,
    codes,
    failed,
    passed,
    rows_of,
    with_rows,
)
from weighbridge.clauses.mutations import Moves, Way, in_rows, row_moves
from weighbridge.core.limits import Doc, plain
from weighbridge.core.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict
from weighbridge.gates.families import column_basis
from weighbridge.gates.families.column_basis import ColumnBasis, basis_of
from weighbridge.gates.families.run_columns import speed_moves, telling_speed
from weighbridge.quantities.runs import StepColumn, StepOrder

STEP = "step"
NEED = "columns"
REGULAR = 3  # numbers; fewer have no cadence of their own, and owe that of the step


# --- How what a limit bounds is moved ---------------------------------------------------------------------------------


def _promised(rows: Sequence[StepColumn], limits: Limits) -> dict[str, str]:
    """Return the column of each required name: the standard one, else the first that is logged so."""
    columns = {row.logged_as: row.column for row in reversed(rows)} | {row.column: row.column for row in rows}
    return {name: columns[name] for name in limits.required if name in columns}


def _required(evidence: Evidence, limits: Limits, places: Sequence[str]) -> set[str]:
    return set(_promised(rows_of(evidence, NEED, StepColumn), limits).values()).intersection(places)


def _owing(evidence: Evidence, limits: Limits, places: Sequence[str]) -> set[str]:
    return _required(evidence, limits, places) | ({STEP} & set(places))


def _moves(*ways: Way, at: At = _owing) -> Moves:
    return row_moves(NEED, StepColumn, *ways, at=at)


def _in_cells(code: str, field: str) -> Way:
    def change(row: StepColumn, _limits: Any, value: Any) -> StepColumn | None:
        return None if row.column == STEP else replace(row, **{field: value})

    return Way("beyond", code, change)


def _in_order(code: str, field: str, outcome: Outcome = Outcome.FAIL) -> Way:
    return Way("beyond", code, lambda row, _limits, value: _reordered(row, **{field: value}), outcome)


def _reordered(row: StepColumn, **changed: Any) -> StepColumn | None:
    return None if row.order is None else replace(row, order=replace(row.order, **changed))


def _at_rate(way: str, sign: int) -> Way:
    def change(row: StepColumn, _limits: Any, value: float) -> StepColumn | None:
        off = math.nextafter(1 + sign * value, sign * math.inf)
        return None if row.rate is None else replace(row, rate=replace(row.rate, over_tokens=off))

    return Way(way, "inconsistent", change)


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
    allow_constant: Annotated[tuple[str, ...], Doc("globs of columns that may hold one value throughout")] = (
        "lr", "tokens", "epoch", "wraps", "*mem*",
    )  # fmt: skip
    allow_noise: Annotated[tuple[str, ...], Doc("globs of columns that may look like uniform noise")] = ()
    min_steps: Annotated[
        int,
        Doc("fewest different steps that show anything", ge=2, must="at least",
            moves=_moves(_in_order("too-few-steps", "steps", Outcome.BLOCKED))),
    ] = 2  # fmt: skip
    max_repeated_steps: Annotated[
        int,
        Doc("at how many steps a metric may be logged more than once, resumptions apart", ge=0, le=10_000,
            must="at most", moves=_moves(_in_cells("repeated-steps", "logged_twice"))),
    ] = 0  # fmt: skip
    max_backward_steps: Annotated[
        int,
        Doc("how often the step may fall, resumptions apart", ge=0, le=100, must="at most",
            moves=_moves(_in_order("backward-steps", "backward_steps"))),
    ] = 0  # fmt: skip
    max_gap: Annotated[
        int | None,
        Doc("most steps from one number of a metric to the next; less than two of its own intervals without it", ge=1,
            le=10_000, must="at most",
            moves=_moves(_in_cells("missing", "largest_hole"), _in_order("gap", "largest_gap"))),
    ] = None  # fmt: skip
    allow_filtered: Annotated[tuple[str, ...], Doc("globs of columns that the logger may keep free of NaN")] = ()
    allow_undecided: Annotated[
        tuple[str, ...], Doc("columns, each by its own name, that may be too short to tell from uniform noise")
    ] = ()
    max_flops_per_s: Annotated[
        float,
        Doc("most work that the median wall time may imply, 6 × parameters × tokens of a process", unit="1/s", ge=1e12,
            le=1e21, must="at most", moves=speed_moves(Outcome.FAIL)),
    ] = column_basis.MOST_FLOPS_PER_S  # fmt: skip
    rate_tolerance: Annotated[
        float,
        Doc("how far tokens_per_sec × wall_ms / 1000 may lie from tokens, as a share", gt=0, le=0.5, tight="down",
            moves=_moves(_at_rate("above", 1), _at_rate("below", -1), at=as_asked)),
    ] = 0.05  # fmt: skip


def check(limits: Limits, measure: Measure) -> list[str]:
    """Return what is wrong with limits that are each in order alone."""
    width = math.inf if measure.steps is None else measure.steps[1] - measure.steps[0] + 1
    narrow = f"steps: a window of {width} steps cannot hold min_steps: {limits.min_steps}"
    globs = [name for name in limits.allow_undecided if any(sign in name for sign in "*?[")]
    return [*([narrow] if width < limits.min_steps else []),
            *(f"allow_undecided: {name} is no column; name each by itself" for name in globs)]  # fmt: skip


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every required metric, the order of the steps and every column's basis against the contract."""
    rows = {row.column: row for row in rows_of(evidence, NEED, StepColumn)}
    order = rows[STEP].order if STEP in rows else None
    if order is None or order.steps < limits.min_steps:
        return blocked("too-few-steps", {"steps": order.steps if order else 0, "needed": limits.min_steps})
    steps, required = rows[STEP], {name: _find(name, rows) for name in limits.required}
    cadence = min((row.interval or math.inf for row in required.values() if row), default=math.inf)
    offences = list(_order(order, steps, limits, cadence))
    for row in rows.values():
        if row is steps or row in required.values():
            offences += _cells(row, steps, order, limits)
        offences += _basis(row, limits, rows)
    unseen = [Offence(place=name, code="absent") for name, row in required.items() if row is None]
    unseen += [
        Offence(place=row.column, code="nan-filtered", figures={"logged_as": row.logged_as, "finite": row.finite})
        for row in required.values()
        if row and row.nan_filtered and not _named(row, limits.allow_filtered)
    ]
    undecided = [row for row in required.values() if row and _is_undecided(row, limits)]
    figures: Fields = {
        "steps": order.steps, "rows": steps.rows, "resumptions": order.resumptions, "bases": _bases(rows)
    }  # fmt: skip
    looked = list(dict.fromkeys([STEP, *(row.column if row else name for name, row in required.items()), *rows]))
    if offences:
        return failed([*offences, *unseen], looked=looked, unit="columns", figures=figures)
    if unseen:
        return blocked(unseen[0].code, figures, offences=unseen, of=len(looked), unit="columns")
    if undecided:
        short: Fields = {"column": undecided[0].column, "samples": undecided[0].finite}
        return blocked("column-undecided", {**short, "columns": [row.column for row in undecided]})
    return passed(looked=looked, unit="columns", figures=figures)


def _find(name: str, rows: Mapping[str, StepColumn]) -> StepColumn | None:
    """Return a column by its standard name or by its name in the log."""
    return rows.get(name) or next((row for row in rows.values() if row.logged_as == name), None)


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


def _cells(row: StepColumn, steps: StepColumn, order: StepOrder, limits: Limits) -> Iterator[Offence]:
    """Yield what keeps a column from having one finite number wherever it owes one."""
    counted: Fields = {key: getattr(row, key) for key in ("rows", "steps_missing", "missing", "nan", "infinite")}
    most, hole = _most(row, steps, limits), row.largest_hole
    lost = steps.largest_hole > _most(steps, steps, limits) and row.hole_after_step == steps.hole_after_step  # a gap
    for code, broken, first in (
        ("unreadable", row.unreadable, row.first_unreadable_step),
        ("no-step", row is steps and row.missing, None),
        ("missing", hole > most and not lost, row.hole_after_step),
        ("non-finite", row.nan or row.infinite, row.first_non_finite_step),
        ("repeated-steps", row is not steps and row.logged_twice > limits.max_repeated_steps, row.first_logged_twice),
    ):
        if broken:
            more: dict[str, Json] = {"unreadable": row.unreadable, "found": row.logged_twice, "first_step": first}
            more |= {"limit": limits.max_repeated_steps, "steps": order.steps, "hole": hole, "most": most}
            yield Offence(place=row.column, code=code, figures={**counted, **more})


def _named(row: StepColumn, globs: Sequence[str]) -> bool:
    return any(listed(name, globs) for name in (row.column, row.logged_as))


def _is_undecided(row: StepColumn, limits: Limits) -> bool:
    return basis_of(row).basis is ColumnBasis.UNDECIDED and not _named(row, limits.allow_noise + limits.allow_undecided)


def _is_given_anew(row: StepColumn, limits: Limits) -> bool:
    """Return whether equal numbers in a row are suspicious: an accuracy, say, has few values, and repeats by itself."""
    return column_basis.of_a_step(row.column) or not {row.column, row.logged_as}.isdisjoint(limits.required)


def _basis(row: StepColumn, limits: Limits, rows: Mapping[str, StepColumn]) -> Iterator[Offence]:
    """Yield that a column is a placeholder, in part or throughout, or invented, and that its rate is another."""
    basis, constant = basis_of(row).basis, _named(row, limits.allow_constant)
    told: Fields = {key: getattr(row, key) for key in STATISTICS}
    if basis is ColumnBasis.CONSTANT and not constant:
        yield Offence(place=row.column, code="constant", figures=told)
    if basis is ColumnBasis.NOISE and not _named(row, limits.allow_noise):
        yield Offence(place=row.column, code="noise", figures=told)
    stretch = next(iter(column_basis.placeholders(row)), None)
    if stretch is not None and _is_given_anew(row, limits) and basis is not ColumnBasis.CONSTANT and not constant:
        yield Offence(place=row.column, code="placeholder", figures={**plain(stretch), "samples": row.finite})
    quick = column_basis.too_quick(row)
    if quick is not None and column_basis.tells_speed(row.column, rows):
        yield Offence(place=row.column, code="impossible-speed", figures=plain(quick))
    if row.flops_per_s is not None and row.flops_per_s > limits.max_flops_per_s:
        speed: Fields = {"flops_per_s": row.flops_per_s, "most": limits.max_flops_per_s}
        yield Offence(place=row.column, code="beyond-hardware", figures=speed)
    if wrong := column_basis.impossible(row):
        held: Fields = {"negative": row.negative, "zeros": row.zeros, "samples": row.finite}
        figures: Fields = {"wrong": wrong, **held, "step": row.first_not_positive_step}
        yield Offence(place=row.column, code="impossible", figures=figures)
    rate, tolerance = row.rate, limits.rate_tolerance
    if rate is not None and not 1 - tolerance <= rate.over_tokens <= 1 + tolerance:
        figures = {"ratio": rate.over_tokens, "rows": rate.rows, "tolerance": tolerance}
        yield Offence(place=row.column, code="inconsistent", figures=figures)


STATISTICS = (
    "finite", "commonest", "distinct", "min", "max", "lag1_root_n", "uniform_ks_root_n", "rank_correlation_root_n",
    "range_over_std",
)  # fmt: skip


def _bases(rows: Mapping[str, StepColumn]) -> Fields:
    told = {}
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
            told[name] = words.get(found.basis, str(found.basis)) + often + reported
    return told


# --- How what no limit bounds is broken -------------------------------------------------------------------------------


def _breaks(
    name: str, code: str, change: Callable[[StepColumn, Limits], StepColumn | None], *, why: str = "not required",
    at: At = as_asked, exempt: Sequence[str] = (), outcome: Outcome = Outcome.FAIL,
) -> Mutation[Limits]:  # fmt: skip
    """Return the mutation that changes rows, but for those that a limit of `exempt` names."""

    def changed(row: StepColumn, limits: Limits) -> StepColumn | None:
        allowed = any(_named(row, getattr(limits, globs)) for globs in exempt)
        return None if allowed else change(row, limits)

    return in_rows(name, code, NEED, StepColumn, changed, why=why, at=at, outcome=outcome)


def _unlogged(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, NEED, StepColumn)
    gone = {name: column for name, column in _promised(rows, limits).items() if column in set(places) - {STEP}}
    left = [row for row in rows if row.column not in gone.values() and row.logged_as not in gone]
    return Mutated(with_rows(evidence, NEED, left), frozenset(gone)) if gone else "not required"


def _left_out(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Leave one number out of each required column: twice its interval, or twice the step's where it has too few."""
    rows = rows_of(evidence, NEED, StepColumn)
    of_step = next((row.interval for row in rows if row.column == STEP), None)

    def left_out(row: StepColumn, _limits: Limits) -> StepColumn | None:
        own = row.interval if row.samples > 2 else None
        return None if row.column == STEP else replace(row, largest_hole=2 * (own or of_step or 1))

    if limits.max_gap is not None and _required(evidence, limits, places) - {STEP}:
        return "max_gap is declared"
    return _breaks("", "", left_out, at=_required)(evidence, limits, places)


def _row_lost(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Leave out a row where it shows in every column: twice the longest interval of any."""
    longest = max((row.interval or 1 for row in rows_of(evidence, NEED, StepColumn)), default=1)

    def lost(row: StepColumn, limits: Limits) -> StepColumn | None:
        return _reordered(row, largest_gap=2 * longest) if limits.max_gap is None else None

    return _breaks("", "", lost, why="max_gap is declared")(evidence, limits, places)


def _invented(name: str, code: str, globs: str, change: Callable[[StepColumn], StepColumn | None]) -> Mutation[Limits]:
    why = "the contract allows it of every column"
    return _breaks(name, code, lambda row, _: change(row), why=why, exempt=(globs,))


def _only_in_part(row: StepColumn, limits: Limits) -> StepColumn | None:
    still = row.min == row.max or row.order or _named(row, limits.allow_constant)
    return column_basis.as_stretch(row) if _is_given_anew(row, limits) and not still else None


def _impossible(name: str, columns: Sequence[str], change: Callable[[StepColumn], StepColumn]) -> Mutation[Limits]:
    why = "every column may hold that"
    return _breaks(name, "impossible", lambda row, _: change(row) if row.column in columns else None, why=why)


KIND = Kind(
    name="step-metrics",
    version=3,
    roles={"run": SubjectKind.RUN},
    needs={NEED: Need("step_columns", of=("run",), options=("steps",))},
    limits=Limits,
    measure=Measure,
    window=lambda _, measure: measure.steps,
    columns=lambda limits, _: limits.required,
    codes=codes(
        "missing", "no-step", "unreadable", "non-finite", "repeated-steps", "backward-steps", "gap", "fractional-steps",
        "constant", "noise", "placeholder", "impossible-speed", "beyond-hardware", "impossible", "inconsistent",
        blocked=("absent", "nan-filtered", "column-undecided", "too-few-steps"),
    ),
    judge=judge,
    check=check,
    mutations=(
        Mutation("a required metric is not logged", "absent", _unlogged, Outcome.BLOCKED),
        _breaks("a NaN would not be logged", "nan-filtered", lambda row, _: replace(row, nan_filtered=True),
                at=_required, exempt=("allow_filtered",), why="not required, or allowed by the contract",
                outcome=Outcome.BLOCKED),
        Mutation("one number left out", "missing", _left_out),
        _breaks("one cell is not a number", "unreadable", lambda row, _: replace(row, unreadable=1), at=_owing),
        _breaks("NaN at one step", "non-finite", lambda row, _: replace(row, nan=1), at=_owing),
        _breaks("infinite at one step", "non-finite", lambda row, _: replace(row, infinite=1), at=_owing),
        _breaks("a row without a step", "no-step", lambda row, _: replace(row, missing=1) if row.order else None,
                why="another column than the step"),
        Mutation("a row lost", "gap", _row_lost),
        _breaks("half a step", "fractional-steps", lambda row, _: _reordered(row, fractional=1),
                why="another column than the step"),
        _invented("a placeholder throughout", "constant", "allow_constant", column_basis.as_constant),
        _invented("one value on all but a few samples", "constant", "allow_constant", column_basis.as_nearly_constant),
        _breaks("a placeholder from one step to another", "placeholder", _only_in_part,
                why="no column that each step gives anew, or allowed by the contract"),
        _breaks("steps too quick to have trained", "impossible-speed", lambda row, _: column_basis.as_quick(row),
                why="no column of times", at=telling_speed),
        _impossible("a time below zero", column_basis.NOT_BELOW_ZERO, lambda row: replace(row, negative=1)),
        _impossible("a step without tokens, or in no time", column_basis.ABOVE_ZERO, lambda row: replace(row, zeros=1)),
        _impossible("a rate that was zero throughout", column_basis.NOT_ALL_ZERO,
                    lambda row: replace(row, zeros=row.finite)),
        _breaks("a required metric of too few samples to tell", "column-undecided",
                lambda row, _: column_basis.as_undecided(row), at=_required,
                exempt=("allow_noise", "allow_undecided"), why="none must be measured", outcome=Outcome.BLOCKED),
        _invented("uniform noise for telemetry", "noise", "allow_noise", column_basis.as_noise),
        _invented("noise that hardly moves", "noise", "allow_noise", column_basis.as_faint_noise),
    ),
)  # fmt: skip
