"""How trials break a promise. What a limit bounds is broken by rules of its own, never by the judge's clauses.

So a weakened judge cannot weaken its own trials: a fault reads the limits as the contract gave them, and no clause.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from weighbridge.clauses.kind import (
    Damage,
    Evidence,
    Falsifier,
    NotApplicable,
    record_of,
    rows_of,
    table_of,
    with_rows,
    with_value,
)
from weighbridge.core.limits import Doc, fields
from weighbridge.core.model import Outcome, Record, Rows

L = TypeVar("L")
R = TypeVar("R")


class Injected(NamedTuple):
    """Evidence with a fault in it: in which way, what the judge must now answer, and where it must object."""

    way: str
    code: str
    evidence: Evidence
    places: frozenset[str] = frozenset()
    outcome: Outcome | None = None  # None: what a figure beyond the limit comes to


class Fault(Protocol):
    """How to move the figure that a limit bounds; `held` is the dataclass that the limit is a field of."""

    def inject(
        self, evidence: Evidence, held: Any, limits: Any, value: Any, places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield evidence whose figure is `value`, the nearest one that breaks the limit, in each way that there is."""


def beyond(must: str, limit: float) -> float:
    """Return the value nearest to a limit that breaks it."""
    if must in ("below", "above"):
        return limit
    away = 1 if must == "at most" else -1
    return limit + away if isinstance(limit, int) else math.nextafter(limit, away * math.inf)


def derived(evidence: Evidence, limits: Any) -> Iterator[Falsifier[Any]]:
    """Yield the falsifiers of every limit that the contract set and that says what it bounds."""
    for at, bound in enumerate(bounding(limits)):
        yield from _of_limit(f"{bound[1]} {at}" if at else bound[1], bound, evidence, limits)


def bounding(limits: Any) -> Iterator[tuple[Doc, str, Any]]:
    """Yield every limit that is set and names a fault, however deep: its doc, its field, and what it is a field of."""
    cls: type = type(limits)
    for item in fields(cls):
        value = getattr(limits, item.name)
        if item.doc.fault is not None and value is not None:
            yield item.doc, item.name, limits
        for one in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(one):
                yield from bounding(one)


def nudged(limits: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield these limits with one bound of this name moved.

    "on": to the next value, tighter where the bound is inclusive, looser where it is strict, so that only a figure on
    the limit is judged otherwise. "beyond": looser by a little, so that only a figure on or just beyond it is.
    """
    cls: type = type(limits)
    for item in fields(cls):
        value = getattr(limits, item.name)
        if item.name == name and item.doc.fault is not None and item.doc.must and value is not None:
            up = 1 if item.doc.must in ("at most", "below") else -1  # the direction in which it loosens
            next_one = up if item.doc.must in ("below", "above") else -up
            step = 1 if isinstance(value, int) else max(abs(value), 1e-6) * LOOSER
            on = value + next_one if isinstance(value, int) else math.nextafter(value, next_one * math.inf)
            yield "on", dataclasses.replace(limits, **{name: on})
            yield "beyond", dataclasses.replace(limits, **{name: value + up * step})
        for at, one in enumerate(value if isinstance(value, tuple) else ()):
            if dataclasses.is_dataclass(one):
                for where, changed in nudged(one, name):
                    yield where, dataclasses.replace(limits, **{item.name: (*value[:at], changed, *value[at + 1 :])})


LOOSER = 0.01  # of a limit: an example that this does not heal lies far beyond it


def _of_limit(label: str, bound: tuple[Doc, str, Any], evidence: Evidence, limits: Any) -> Iterator[Falsifier[Any]]:
    doc, name, held = bound
    limit = getattr(held, name)
    value = beyond(doc.must, limit) if doc.must else limit
    tables = [item.value for item in evidence.values() if isinstance(item.value, Rows)]
    everywhere = tuple(place for table in tables for place in table.places())

    def injected(evidence: Evidence, places: Sequence[str]) -> dict[tuple[str, str, Outcome], Injected]:
        found = doc.fault.inject(evidence, held, limits, value, places)
        return {(one.way, one.code, one.outcome or Outcome(doc.comes_to)): one for one in found}

    for way, code, outcome in injected(evidence, everywhere):

        def damage(
            evidence: Evidence, _limits: object, places: tuple[str, ...], key: Any = (way, code, outcome)
        ) -> Damage | NotApplicable:
            found = injected(evidence, places).get(key)
            return Damage(found.evidence, found.places) if found else NotApplicable("not at these places")

        yield Falsifier(f"{label}: {way}", code, damage, outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFault:
    """Move a column of the rows that a glob names.

    `names`, `column` and `exempt` may name a field of the limits; `unknown` is the code of a figure that is no number,
    `idle` that of a glob that names nothing.
    """

    code: str
    need: str
    column: str
    names: str = ""
    exempt: str = ""
    unknown: str = ""
    idle: str = ""

    def _mine(self, evidence: Evidence, held: Any) -> list[str]:
        globs, exempt = getattr(held, self.names, "*"), getattr(held, self.exempt, ())
        globs = (globs,) if isinstance(globs, str) else globs
        return [
            place
            for place in table_of(evidence, self.need, object).places()
            if any(fnmatchcase(place, glob) for glob in globs) and not any(fnmatchcase(place, glob) for glob in exempt)
        ]

    def inject(
        self, evidence: Evidence, held: Any, _limits: Any, value: Any, places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield these rows with the column moved, absent and NaN, and the table without all that the glob names."""
        column = getattr(held, self.column, self.column)
        table, mine = table_of(evidence, self.need, object), self._mine(evidence, held)
        wanted = set(places).intersection(mine)
        figures: list[tuple[str, str, Any, Outcome | None]] = [("beyond", self.code, value, None)]
        if self.unknown:
            figures += [
                (way, self.unknown, none, Outcome.BLOCKED) for way, none in (("absent", None), ("NaN", math.nan))
            ]
        for way, code, figure, outcome in figures if wanted else ():
            moved = [
                dataclasses.replace(row, **{column: figure}) if place in wanted else row  # type: ignore[type-var]
                for place, row in zip(table.places(), table.rows, strict=True)
            ]
            yield Injected(way, code, with_rows(evidence, self.need, moved), frozenset(wanted), outcome)
        if self.idle:
            left = [row for place, row in zip(table.places(), table.rows, strict=True) if place not in mine]
            yield Injected("nothing named", self.idle, with_rows(evidence, self.need, left), outcome=Outcome.BLOCKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsFault:
    """Change several columns of each row that `exempt`, a field of the limits, does not name.

    Each of `ways` returns the columns that make up the figure which the limit bounds.
    """

    code: str
    need: str
    ways: Mapping[str, Callable[[Any], Mapping[str, Any]]]
    exempt: str = ""

    def inject(
        self, evidence: Evidence, held: Any, _limits: Any, value: Any, places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield these rows changed, in each way."""
        table, exempt = table_of(evidence, self.need, object), getattr(held, self.exempt, ())
        mine = {
            place
            for place in set(places).intersection(table.places())
            if not any(fnmatchcase(place, glob) for glob in exempt)
        }
        for way, columns in self.ways.items() if mine else ():
            changed = [
                dataclasses.replace(row, **columns(value)) if place in mine else row  # type: ignore[type-var]
                for place, row in zip(table.places(), table.rows, strict=True)
            ]
            yield Injected(way, self.code, with_rows(evidence, self.need, changed), frozenset(mine))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFault:
    """Move a field of a record; the judge must object at `place`."""

    code: str
    need: str
    field: str
    place: str = ""

    def inject(
        self, evidence: Evidence, _held: Any, _limits: Any, value: Any, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield the record with the field moved."""
        record: Any = record_of(evidence, self.need, object)
        moved = Record(dataclasses.replace(record, **{self.field: value}))
        yield Injected("beyond", self.code, with_value(evidence, self.need, moved), frozenset({self.place}))


At: TypeAlias = Callable[[Evidence, Any, Sequence[str]], Collection[str]]  # where to break: of all limits and places


def as_asked(_evidence: Evidence, _limits: object, places: Sequence[str]) -> Collection[str]:
    """Return all of the places that a trial asks for."""
    return places


class Way(NamedTuple, Generic[R]):
    """One way to move a figure in a row; `change` returns None where the row has no such figure."""

    name: str
    code: str
    change: Callable[[R, Any, Any], R | None]  # the row, all limits, and the value that the figure must come to
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFault(Generic[R]):
    """Move a figure that is not one column of a row, in each of several ways, in the rows that `at` names."""

    need: str
    row: type[R]
    ways: tuple[Way[R], ...]
    at: At = as_asked

    def inject(
        self, evidence: Evidence, _held: Any, limits: Any, value: Any, places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield the rows at these places with the figure moved, once for each way."""
        for way in self.ways:

            def change(row: R, _limits: Any, way: Way[R] = way) -> R | None:
                return way.change(row, limits, value)

            falsifier = in_rows(way.name, way.code, self.need, self.row, change, why="", at=self.at)
            moved = falsifier.damage(evidence, limits, tuple(places))
            if isinstance(moved, Damage):
                yield Injected(way.name, way.code, moved.evidence, moved.places, way.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFault(Generic[R]):
    """Change all rows of a need at once; `change` takes them and the value that the figure must come to.

    It returns None where that value cannot be come to.
    """

    way: str
    code: str
    need: str
    row: type[R]
    change: Callable[[Sequence[R], Any], Sequence[R] | None]

    def inject(
        self, evidence: Evidence, _held: Any, _limits: Any, value: Any, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield the table changed."""
        changed = self.change(rows_of(evidence, self.need, self.row), value)
        if changed is not None:
            yield Injected(self.way, self.code, with_rows(evidence, self.need, changed))


# --- What no limit bounds ---------------------------------------------------------------------------------------------


def in_rows(
    name: str, code: str, need: str, row: type[R], change: Callable[[R, L], R | None], *, why: str,
    outcome: Outcome = Outcome.FAIL, at: At = as_asked,
) -> Falsifier[L]:  # fmt: skip
    """Return the falsifier that changes the rows that `at` names; `change` returns None where nothing is to break."""

    def damage(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Damage | NotApplicable:
        table, wanted = table_of(evidence, need, row), set(at(evidence, limits, places))
        changed = {
            place: new
            for place, one in zip(table.places(), table.rows, strict=True)
            if place in wanted and (new := change(one, limits)) is not None
        }
        if not changed:
            return NotApplicable(why)
        rows = [changed.get(place, one) for place, one in zip(table.places(), table.rows, strict=True)]
        return Damage(with_rows(evidence, need, rows), frozenset(changed))

    return Falsifier(name, code, damage, outcome)


def in_record(
    name: str, code: str, need: str, record: type[R], change: Callable[[R, L], R | None], *, place: str,
    why: str = "nothing to break", outcome: Outcome = Outcome.FAIL,
) -> Falsifier[L]:  # fmt: skip
    """Return the falsifier that changes a record; the judge must object at `place`."""

    def damage(evidence: Evidence, limits: L, _places: tuple[str, ...]) -> Damage | NotApplicable:
        found = record_of(evidence, need, record)
        changed = change(found, limits) if found is not None else None
        if changed is None:
            return NotApplicable(why)
        return Damage(with_value(evidence, need, Record(changed)), frozenset({place}))

    return Falsifier(name, code, damage, outcome)


def only_rows(
    name: str, code: str, need: str, row: type[R], change: Callable[[R, L], R | None], *, why: str
) -> Falsifier[L]:
    """Return the falsifier that leaves only the rows that `change` returns; the judge must answer BLOCKED, `code`."""

    def damage(evidence: Evidence, limits: L, _places: tuple[str, ...]) -> Damage | NotApplicable:
        left = [new for one in rows_of(evidence, need, row) if (new := change(one, limits)) is not None]
        return Damage(with_rows(evidence, need, left), frozenset()) if left else NotApplicable(why)

    return Falsifier(name, code, damage, Outcome.BLOCKED)


def without_all_of_a_glob(
    code: str, need: str, row: type[R], globs: Callable[[L], Sequence[str]],
    kept: Callable[[R, L], R | None] = lambda one, _limits: one,
) -> Falsifier[L]:  # fmt: skip
    """Return the falsifier that takes away all that a glob names, while others still name something.

    The glob is the one that names the first of the places, where it can be: trials at several places try several globs.
    `kept` returns what stays of a row that others name, for a judge that would not look at it as it is.
    """

    def damage(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Damage | NotApplicable:
        table = table_of(evidence, need, row)
        for gone in sorted(globs(limits), key=lambda glob: not any(fnmatchcase(place, glob) for place in places[:1])):
            left = [
                new
                for place, one in zip(table.places(), table.rows, strict=True)
                if not fnmatchcase(place, gone) and any(fnmatchcase(place, glob) for glob in globs(limits))
                and (new := kept(one, limits)) is not None
            ]  # fmt: skip
            if left:
                return Damage(with_rows(evidence, need, left), frozenset())
        return NotApplicable("no other row is named")

    return Falsifier("a glob that names nothing", code, damage, Outcome.BLOCKED)
