"""tensor-coverage: is every tensor that the contract expects there, with values, and are tied ones really the same?"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from weighbridge.clauses.clause import listed
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

RANGE = re.compile(r"\{(\d{1,6})\.\.(\d{1,6})\}")
MOST = 1_000_000  # names that a contract may expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What must be there."""

    expected: Annotated[
        tuple[str, ...], Doc("names; {0..31} stands for every number between, both included", min_items=1, tight="up")
    ]
    tied: Annotated[
        Mapping[str, str], Doc("name: another one; it may be absent where the other is there, and must equal it")
    ] = field(default_factory=dict)
    may_be_zero: Annotated[tuple[str, ...], Doc("globs of tensors that may be all zero", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of tensors beyond those expected", tight="down")] = ()


def spelled(expected: Iterable[str]) -> Iterator[str]:
    """Write out every name that is expected."""
    for name in expected:
        parts = RANGE.split(name)
        spans = [range(int(low), int(high) + 1) for low, high in zip(parts[1::3], parts[2::3], strict=True)]
        for numbers in itertools.product(*spans):
            yield "".join(itertools.chain(*itertools.zip_longest(parts[::3], map(str, numbers), fillvalue="")))


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand every expected tensor, with elements that are not all zero, and no other."""
    rows = {str(row["name"]): row for row in rows_of(evidence, "tensors")}
    names = dict.fromkeys(spelled(limits.expected))
    codes = {name: _code(name, rows, limits) for name in names}
    codes |= {name: "extra" for name in rows if name not in names and not listed(name, limits.allow_extra)}
    offences = [
        Offence(place=name, code=code, figures=_figures(name, rows, limits)) for name, code in codes.items() if code
    ]
    absent = sum(name not in rows for name in names)
    if not rows:
        return blocked("nothing-there", {"expected": len(names)})
    if offences:
        return failed(offences, looked=tuple(codes), unit="tensors", figures={"expected": len(names)})
    return passed(looked=tuple(codes), unit="tensors", figures={"expected": len(names), "tied_absent": absent})


def _code(name: str, rows: Mapping[str, Fields], limits: Limits) -> str:
    """Hold one expected name against what is there."""
    other = limits.tied.get(name)
    if name not in rows:
        return "" if other in rows else "missing"
    row = rows[name]
    if not row["elements"] or (row["all_zero"] and not listed(name, limits.may_be_zero)):
        return "empty"
    untied = other in rows and _first(rows[name]) != _first(rows[str(other)])
    return "untied" if untied else ""


def _first(row: Fields) -> object:
    """Name the first tensor with these bytes."""
    return row["repeats"] or row["name"]


def _figures(name: str, rows: Mapping[str, Fields], limits: Limits) -> Fields:
    row = rows.get(name, {})
    return {
        "dtype": row.get("dtype", ""),
        "shape": row.get("shape", []),
        "elements": row.get("elements", 0),
        "tied_to": limits.tied.get(name, ""),
        "there": len(rows),
    }


def check(limits: Limits, _measure: object) -> list[str]:
    """Say which limits cannot be held."""
    if sum(1 for _ in itertools.islice(spelled(limits.expected), MOST + 1)) > MOST:
        return [f"expected stands for more than {MOST} names"]
    names = set(spelled(limits.expected))
    none = [f"expected: {name!r} stands for no name" for name in limits.expected if not any(spelled((name,)))]
    return none + [f"tied: {name!r} is not expected" for name in limits.tied if name not in names]


# --- Falsifiers -------------------------------------------------------------------------------------------------------


def _laid(evidence: Evidence, rows: Sequence[Fields], places: Iterable[str]) -> Damage:
    return Damage(with_value(evidence, "tensors", Rows("name", tuple(rows))), frozenset(places))


def _dropped(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Take expected tensors away, one at least staying behind."""
    rows, expected = rows_of(evidence, "tensors"), set(spelled(limits.expected))
    gone = {str(row["name"]) for row in rows if row["name"] in places and row["name"] in expected - set(limits.tied)}
    if len(gone) == len(rows):
        gone.discard(str(rows[0]["name"]))
    if not gone:
        return NotApplicable("nothing can be taken away and leave something")
    return _laid(evidence, [row for row in rows if row["name"] not in gone], gone)


def _dropped_elsewhere(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Take expected tensors away where the judge did not say that it looked; it must object there all the same."""
    others = tuple(name for name in dict.fromkeys(spelled(limits.expected)) if name not in places)
    return _dropped(evidence, limits, others)


def _both_gone(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Take tied tensors away together with what they are tied to."""
    rows = rows_of(evidence, "tensors")
    pairs = {name: other for name, other in limits.tied.items() if name in places}
    gone = {*pairs, *pairs.values()}
    left = [row for row in rows if row["name"] not in gone]
    if not pairs or not left:
        return NotApplicable("nothing is tied, or nothing would stay behind")
    return _laid(evidence, left, pairs)


def _emptied(row: Fields, limits: Limits) -> Fields | None:
    return {**row, "elements": 0, "all_zero": False} if row["name"] in set(spelled(limits.expected)) else None


def _zeroed(row: Fields, limits: Limits) -> Fields | None:
    free = not any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.may_be_zero)
    return {**row, "all_zero": True} if free and row["name"] in set(spelled(limits.expected)) else None


def _added(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Add a tensor beside each place."""
    rows = rows_of(evidence, "tensors")
    kept = {str(row["name"]) for row in rows} | set(spelled(limits.expected))
    new = [{**row, "name": f"{row['name']}~"} for row in rows if row["name"] in places]
    new = [row for row in new if row["name"] not in kept and not any(
        fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_extra)]  # fmt: skip
    if not new:
        return NotApplicable("every name may be extra")
    return _laid(evidence, (*new[:1], *rows, *new[1:]), (str(row["name"]) for row in new))


def _untied(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Give tied tensors bytes of their own."""
    rows = rows_of(evidence, "tensors")
    there = {str(row["name"]) for row in rows}
    pairs = {name: other for name, other in limits.tied.items() if {name, other} <= there and name in places}
    if not pairs:
        return NotApplicable("no tensor is there beside the one that it is tied to")
    apart = {*pairs, *pairs.values()}
    return _laid(evidence, [{**row, "repeats": None} if row["name"] in apart else row for row in rows], pairs)


def _all_gone(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Damage:
    return _laid(evidence, (), ())


KIND = Kind(
    name="tensor-coverage",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"tensors": Need("tensor_health", of=("candidate",))},
    limits=Limits,
    codes={
        "missing": Outcome.FAIL,
        "empty": Outcome.FAIL,
        "untied": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "nothing-there": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        Falsifier("dropped", "missing", _dropped),
        Falsifier("dropped elsewhere", "missing", _dropped_elsewhere),
        Falsifier("dropped with what it is tied to", "missing", _both_gone),
        each_row("without elements", "empty", "tensors", _emptied, why="nothing that is expected is there"),
        each_row("all zero", "empty", "tensors", _zeroed, why="everything that is there may be zero"),
        Falsifier("added", "extra", _added),
        Falsifier("tied, and of other bytes", "untied", _untied),
        Falsifier("everything taken away", "nothing-there", _all_gone, Outcome.BLOCKED),
    ),
    check=check,
)
