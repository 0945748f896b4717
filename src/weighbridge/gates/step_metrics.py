"""step-metrics: does every step have every required metric, finite, in order, self-consistent, and not invented?

A constant column is a placeholder and one indistinguishable from noise is invented, required or not, unless the
contract allows it by name; a column derived from another is told, not failed.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses import column_basis
from weighbridge.clauses.column_basis import ColumnBasis, Found, basis_of
from weighbridge.clauses.kind import (
    Damage,
    Evidence,
    Falsifier,
    Kind,
    Need,
    NotApplicable,
    blocked,
    each_row,
    failed,
    passed,
    rows_of,
    with_value,
)
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, Rows, SubjectKind, Verdict

STEP = "step"


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
        "lr",
        "tokens",
        "epoch",
        "wraps",
        "*mem*",
    )
    allow_noise: Annotated[tuple[str, ...], Doc("globs of columns that may look like uniform noise")] = ()
    min_steps: Annotated[int, Doc("fewest different steps that show anything", ge=2, tight="up")] = 2
    max_repeated_steps: Annotated[int, Doc("how many steps may be logged more than once", ge=0, tight="down")] = 0
    max_backward_steps: Annotated[int, Doc("how often the step may fall", ge=0, tight="down")] = 0
    max_gap: Annotated[int, Doc("largest distance from one logged step to the next", ge=1, tight="down")] = 1
    rate_tolerance: Annotated[
        float, Doc("how far tokens_per_sec × wall_ms / 1000 may lie from tokens, as a share", gt=0, lt=1, tight="down")
    ] = 0.05


def check(limits: Limits, measure: Measure) -> list[str]:
    """Find what is wrong with limits that are each in order alone."""
    if measure.steps is None:
        return []
    width = measure.steps[1] - measure.steps[0] + 1
    if width < limits.min_steps:
        return [f"steps: a window of {width} steps cannot hold min_steps: {limits.min_steps}"]
    return []


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every required metric, the order of the steps and every column's basis against the contract."""
    rows = {str(row["column"]): row for row in rows_of(evidence, "columns")}
    steps = rows.get(STEP)
    order = steps["order"] if steps is not None else None
    if steps is None or order is None or order["steps"] < limits.min_steps:
        found = order["steps"] if order else 0
        return blocked("too-few-steps", {"steps": found, "needed": limits.min_steps})
    required = {name: _find(name, rows) for name in limits.required}
    named = (str(row["column"]) if row else name for name, row in required.items())
    looked = list(dict.fromkeys([STEP, *named, *rows]))
    offences = [*_absent(required), *_order(order, limits)]
    for column, row in rows.items():
        offences.extend(_cells(row, steps) if column == STEP or row in required.values() else ())
        offences.extend(_basis(row, limits))
        offences.extend(_rate(row, limits))
    figures: Fields = {"steps": order["steps"], "rows": steps["rows"], "bases": _told(rows)}
    if offences:
        return failed(offences, looked=looked, unit="columns", figures=figures)
    return passed(looked=looked, unit="columns", figures=figures)


def _find(name: str, rows: Mapping[str, Fields]) -> Fields | None:
    """Find a column by its standard name or by its name in the log."""
    return rows.get(name) or next((row for row in rows.values() if row["logged_as"] == name), None)


def _absent(required: Mapping[str, Fields | None]) -> Iterator[Offence]:
    for name, row in required.items():
        if row is None:
            yield Offence(place=name, code="absent")


def _cells(row: Fields, steps: Fields) -> Iterator[Offence]:
    """Demand a finite number of every step."""
    place = str(row["column"])
    counted = {key: row[key] for key in ("rows", "steps_missing", "unreadable", "nan", "infinite")}
    kept: Fields = {"steps": steps["order"]["steps"], **counted}
    if _count(row, "unreadable"):
        yield Offence(place=place, code="unreadable", figures={**kept, "first_step": row["first_unreadable_step"]})
    if _count(row, "steps_missing") or (row is steps and _count(row, "missing")):
        figures = {**kept, "missing": row["missing"], "first_step": row["first_missing_step"]}
        yield Offence(place=place, code="missing", figures=figures)
    if _count(row, "nan") or _count(row, "infinite"):
        yield Offence(place=place, code="non-finite", figures={**kept, "first_step": row["first_non_finite_step"]})


def _order(order: Fields, limits: Limits) -> Iterator[Offence]:
    checks = (
        ("repeated-steps", "repeated_steps", limits.max_repeated_steps, "first_repeated_step"),
        ("backward-steps", "backward_steps", limits.max_backward_steps, "first_backward_step"),
        ("gap", "largest_gap", limits.max_gap, "largest_gap_after_step"),
        ("fractional-steps", "fractional", 0, "first_step"),
    )
    for code, key, limit, where in checks:
        if _count(order, key) > limit:
            yield Offence(place=STEP, code=code, figures={"found": order[key], "limit": limit, "step": order[where]})


def _basis(row: Fields, limits: Limits) -> Iterator[Offence]:
    column, found = str(row["column"]), basis_of(row)
    statistics = ("finite", "min", "max", "lag1_root_n", "uniform_ks_root_n", "rank_correlation_root_n")
    figures = {key: row[key] for key in (*statistics, "range_over_std")}
    figures |= {"first_step": row["order"]["first_step"]} if row["order"] else {}
    if found.basis is ColumnBasis.CONSTANT and not _allowed(row, limits.allow_constant):
        yield Offence(place=column, code="constant", figures=figures)
    if found.basis is ColumnBasis.NOISE and not _allowed(row, limits.allow_noise):
        yield Offence(place=column, code="noise", figures=figures)


def _rate(row: Fields, limits: Limits) -> Iterator[Offence]:
    rate = row["rate"]
    if rate and not _agrees(rate["over_tokens"], limits):
        figures = {"ratio": rate["over_tokens"], "rows": rate["rows"], "tolerance": limits.rate_tolerance}
        yield Offence(place=str(row["column"]), code="inconsistent", figures=figures)


def _agrees(ratio: object, limits: Limits) -> bool:
    assert isinstance(ratio, float)
    return 1 - limits.rate_tolerance <= ratio <= 1 + limits.rate_tolerance


def _allowed(row: Fields, globs: tuple[str, ...]) -> bool:
    names = (str(row["column"]), str(row["logged_as"]))
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def _told(rows: Mapping[str, Fields]) -> Fields:
    return {name: _words(basis_of(row), row) for name, row in rows.items() if name != STEP}


def _words(found: Found, row: Fields) -> str:
    if found.basis is ColumnBasis.DERIVED:
        return f"derived from {found.partner} ({found.how})"
    if found.basis is ColumnBasis.UNTESTED:
        return f"measured, too few samples to tell from noise ({row['finite']})"
    return str(found.basis)


def _count(row: Fields, key: str) -> int:
    value = row[key]
    assert isinstance(value, int)
    return value


# --- Falsifiers -------------------------------------------------------------------------------------------------------


def _in_required(name: str, code: str, change: Callable[[Fields], Fields]) -> Falsifier[Limits]:
    """Break a clause in each required column's row and in the step's."""

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
        rows = {str(row["column"]): row for row in rows_of(evidence, "columns")}
        names = {str(row["column"]) for wanted in limits.required if (row := _find(wanted, rows)) is not None}
        inner: Falsifier[Limits] = each_row(name, code, "columns", lambda row, _: change(row), why="not required")
        return inner.damage(evidence, limits, tuple(place for place in places if place in names | {STEP}))

    return Falsifier(name, code, damage)


def _dropped(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    rows = {str(row["column"]): row for row in rows_of(evidence, "columns")}
    wanted = {name: row for name in limits.required if (row := _find(name, rows)) is not None}
    gone = {name: str(row["column"]) for name, row in wanted.items() if str(row["column"]) in set(places) - {STEP}}
    if not gone:
        return NotApplicable("no required column is among these")
    left = tuple(row for column, row in rows.items() if column not in gone.values())
    return Damage(with_value(evidence, "columns", Rows("column", left)), frozenset(gone))


def _at_step(
    name: str, code: str, change: Callable[[Fields, Limits], Fields], outcome: Outcome = Outcome.FAIL
) -> Falsifier[Limits]:
    rows = each_row(name, code, "columns", change, why="no steps", outcome=outcome)

    def damage(evidence: Evidence, limits: Limits, _places: tuple[str, ...]) -> Damage | NotApplicable:
        return rows.damage(evidence, limits, (STEP,))

    return Falsifier(name, code, damage, outcome)


def _ordered(row: Any, **changed: int) -> Fields:
    return {**row, "order": {**row["order"], **changed}}


def _rate_off(sign: int) -> Callable[[Fields, Limits], Fields | None]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        ratio = math.nextafter(1 + sign * limits.rate_tolerance, sign * math.inf)
        return {**row, "rate": {**row["rate"], "over_tokens": ratio}} if row["rate"] else None

    return change


def _unless(globs: str, change: Callable[[Fields], Fields]) -> Callable[[Fields, Limits], Fields | None]:
    def changed(row: Fields, limits: Limits) -> Fields | None:
        return None if _allowed(row, getattr(limits, globs)) else change(row)

    return changed


KIND = Kind(
    name="step-metrics",
    version=1,
    roles={"run": SubjectKind.RUN},
    needs={"columns": Need("step_columns", of=("run",), options=("steps",))},
    limits=Limits,
    measure=Measure,
    codes={
        "absent": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "unreadable": Outcome.FAIL,
        "non-finite": Outcome.FAIL,
        "repeated-steps": Outcome.FAIL,
        "backward-steps": Outcome.FAIL,
        "gap": Outcome.FAIL,
        "fractional-steps": Outcome.FAIL,
        "constant": Outcome.FAIL,
        "noise": Outcome.FAIL,
        "inconsistent": Outcome.FAIL,
        "too-few-steps": Outcome.BLOCKED,
    },
    judge=judge,
    check=check,
    falsifiers=(
        Falsifier("a required metric is not logged", "absent", _dropped),
        _in_required("one step without it", "missing", lambda row: {**row, "steps_missing": 1, "missing": 1}),
        _in_required("one cell is not a number", "unreadable", lambda row: {**row, "unreadable": 1}),
        _in_required("NaN at one step", "non-finite", lambda row: {**row, "nan": 1}),
        _in_required("infinite at one step", "non-finite", lambda row: {**row, "infinite": 1}),
        _at_step("a step without a number", "missing", lambda row, _: {**row, "missing": 1}),
        _at_step(
            "a step logged twice",
            "repeated-steps",
            lambda row, limits: _ordered(row, repeated_steps=limits.max_repeated_steps + 1),
        ),
        _at_step(
            "the step falls",
            "backward-steps",
            lambda row, limits: _ordered(row, backward_steps=limits.max_backward_steps + 1),
        ),
        _at_step("steps left out", "gap", lambda row, limits: _ordered(row, largest_gap=limits.max_gap + 1)),
        _at_step("half a step", "fractional-steps", lambda row, _: _ordered(row, fractional=1)),
        each_row(
            "a placeholder throughout",
            "constant",
            "columns",
            _unless("allow_constant", column_basis.as_constant),
            why="the contract lets every column be constant",
        ),
        *(
            each_row(
                name, "noise", "columns", _unless("allow_noise", change), why="the contract lets every column be noise"
            )
            for name, change in (
                ("uniform noise for telemetry", column_basis.as_noise),
                ("noise that hardly moves", column_basis.as_faint_noise),
            )
        ),
        each_row(
            "a rate above what was measured",
            "inconsistent",
            "columns",
            _rate_off(1),
            why="tokens, wall_ms and tokens_per_sec are not all logged",
        ),
        each_row(
            "a rate below what was measured",
            "inconsistent",
            "columns",
            _rate_off(-1),
            why="tokens, wall_ms and tokens_per_sec are not all logged",
        ),
        _at_step(
            "one step too few",
            "too-few-steps",
            lambda row, limits: _ordered(row, steps=limits.min_steps - 1),
            Outcome.BLOCKED,
        ),
    ),
)
