"""How trials break a promise. What a limit bounds is broken by rules of its own, never by the judge's clauses.

So a weakened judge cannot weaken its own trials: a mutation reads the limits as the contract gave them, and no clause.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias, TypeVar

from weighbridge.clauses import kind
from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import At, Evidence, Mutated, Mutation, as_asked, rows_of, table_of, with_rows
from weighbridge.core import Doc, Outcome, Record, dataclass, fields

L = TypeVar("L")
R = TypeVar("R")
LOOSER = 0.01  # of a limit: an example that this does not heal lies far beyond it


class Limit(NamedTuple):
    """A limit that a contract set: the dataclass that it is a field of, and the nearest value that breaks it."""

    within: Any
    value: Any


Moves: TypeAlias = Callable[[Limit], Iterable[Mutation[Any]]]  # how to move the figure that a limit bounds
# In the place of none, for a judge has no reason to object: the trial survives, and no pass within that limit counts.
UNMOVED: Mutation[Any] = Mutation("nothing moves it", "unmoved", lambda evidence, _limits, _places: Mutated(evidence))


def of_limits(limits: Any) -> Iterator[Mutation[Any]]:
    """Yield the mutations of every limit that the contract set and that bounds a figure."""
    for at, (doc, name, within) in enumerate(bounding(limits)):
        limit = getattr(within, name)
        value = beyond(doc.must, limit) if doc.must else limit
        for one in tuple(doc.moves(Limit(within, value)) if doc.moves else ()) or (UNMOVED,):
            yield dataclasses.replace(one, name=f"{name}{f' {at}' if at else ''}: {one.name}")


def beyond(must: str, limit: float) -> float:
    """Return the value nearest to a limit that breaks it."""
    if must in ("below", "above"):
        return limit
    away = 1 if must == "at most" else -1
    return limit + away if isinstance(limit, int) else math.nextafter(limit, away * math.inf)


def bounding(limits: Any) -> Iterator[tuple[Doc, str, Any]]:
    """Yield every limit that is set and bounds a figure, however deep: its doc, its field, what that is of."""
    cls: type = type(limits)
    for item in fields(cls):
        value = getattr(limits, item.name)
        if (item.doc.must or item.doc.moves) and value is not None:
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
        if item.name == name and item.doc.must and value is not None:
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


def column_moves(
    code: str, need: str, column: str, *, names: str, exempt: str = "", unknown: str = "", idle: str = ""
) -> Moves:
    """Return how to move a column of the rows that a glob names.

    `names` and `exempt` name fields of the limits, and `column` may; `unknown` is the code of a figure that is no
    number, `idle` that of a glob that names nothing.
    """

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        within, moved = limit.within, getattr(limit.within, column, column)
        globs, spared = getattr(within, names), getattr(within, exempt, ())

        def is_mine(place: str) -> bool:
            return listed(place, (globs,) if isinstance(globs, str) else globs) and not listed(place, spared)

        def mine(_evidence: Evidence, _limits: object, places: Sequence[str]) -> list[str]:
            return [place for place in places if is_mine(place)]

        def taken_away(evidence: Evidence, _limits: object, _places: tuple[str, ...]) -> Mutated:
            table = table_of(evidence, need, object)
            left = [row for place, row in zip(table.places(), table.rows, strict=True) if not is_mine(place)]
            return Mutated(with_rows(evidence, need, left))

        breaks = Breaks(need=need, row=object, blocked=(unknown,), why="not at these places")
        yield breaks("beyond", code, lambda *_: {moved: limit.value}, at=mine)
        if unknown:
            yield breaks("absent", unknown, lambda *_: {moved: None}, at=mine)
            yield breaks("NaN", unknown, lambda *_: {moved: math.nan}, at=mine)
        if idle:
            yield Mutation("nothing named", idle, taken_away, Outcome.BLOCKED)

    return moves


def table_moves(
    name: str, code: str, need: str, row: type[R], *, change: Callable[[Sequence[R], Any], Sequence[R] | None],
    outcome: Outcome = Outcome.FAIL, places: frozenset[str] = frozenset(),
) -> Moves:  # fmt: skip
    """Return how to change all rows of a need at once; `change` returns None where the value cannot be reached."""

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        def apply(evidence: Evidence, _limits: Any, _places: tuple[str, ...]) -> Mutated | str:
            changed = change(rows_of(evidence, need, row), limit.value)
            if changed is None:
                return "that value cannot be reached"
            return Mutated(with_rows(evidence, need, changed), places)

        yield Mutation(name, code, apply, outcome)

    return moves


def in_rows(
    name: str, code: str, need: str, row: type[R], change: Callable[[R, L], R | None], *, why: str,
    outcome: Outcome = Outcome.FAIL, at: At = as_asked,
) -> Mutation[L]:  # fmt: skip
    """Return the mutation that changes the rows that `at` names; `change` returns None where nothing is to break."""

    def apply(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Mutated | str:
        table, wanted = table_of(evidence, need, row), set(places)
        changed = {
            place: new
            for place, one in zip(table.places(), table.rows, strict=True)
            if place in wanted and (new := change(one, limits)) is not None
        }
        if not changed:
            return why
        rows = [changed.get(place, one) for place, one in zip(table.places(), table.rows, strict=True)]
        return Mutated(with_rows(evidence, need, rows), frozenset(changed))

    return Mutation(name, code, apply, outcome, at)


Change: TypeAlias = Callable[[Any, Any], Any]  # of a row, by the limits: a row, new fields, or None: nothing to break
Way: TypeAlias = tuple[str, str, Callable[[Any, Any, Any], Any]]  # name, code, a change by the value beyond the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaks:
    """Mutations of one need, a line each: a name, a code, and the fields that are new, or what returns them.

    `change` is given a row and the limits; it returns a row, the fields that are new, or None where nothing is to
    break. A mutation of a record says at which `place` the judge must object. Codes of `blocked` come to BLOCKED, and
    rows that `spares` names, with the code, stay as they are.
    """

    need: str
    row: type[Any]
    blocked: Collection[str] = ()
    why: str = "nothing to break"
    spares: Callable[[Any, Any, str], bool] = lambda _row, _limits, _code: False

    def __call__(
        self, name: str, code: str, change: Change | None = None, why: str = "", *, at: At = as_asked,
        place: str | None = None, **fields: Any,
    ) -> Mutation[Any]:  # fmt: skip
        """Return one mutation."""

        def changed(row: Any, limits: Any) -> Any:
            new = None if self.spares(row, limits, code) else change(row, limits) if change else fields
            return _changed(row, new)

        outcome = Outcome.BLOCKED if code in self.blocked else Outcome.FAIL
        why = why or self.why
        if place is None:
            return in_rows(name, code, self.need, self.row, changed, why=why, outcome=outcome, at=at)

        def apply(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
            found = kind.record_of(evidence, self.need, self.row)
            if found is None or (new := changed(found, limits)) is None:
                return why
            return Mutated(kind.with_value(evidence, self.need, Record(new)), frozenset({place}))

        return Mutation(name, code, apply, outcome)

    def only(self, name: str, code: str, change: Change, why: str) -> Mutation[Any]:
        """Return the mutation that leaves only the rows that `change` returns, or gives new fields; BLOCKED, `code`."""

        def apply(evidence: Evidence, limits: Any, _places: tuple[str, ...]) -> Mutated | str:
            changed = (_changed(row, change(row, limits)) for row in rows_of(evidence, self.need, self.row))
            left = [row for row in changed if row is not None]
            return Mutated(with_rows(evidence, self.need, left)) if left else why

        return Mutation(name, code, apply, Outcome.BLOCKED)

    def beyond(self, *ways: Way, **where: Any) -> Moves:
        """Return how to move a figure that a limit bounds, in each of these ways."""

        def moved(way: Way, value: Any) -> Mutation[Any]:
            name, code, change = way
            return self(name, code, lambda row, limits: change(row, limits, value), "not at these places", **where)

        return lambda limit: (moved(way, limit.value) for way in ways)


def _changed(row: Any, new: Any) -> Any:
    return dataclasses.replace(row, **new) if isinstance(new, Mapping) else new


def without_all_of_a_glob(
    code: str, need: str, row: type[R], globs: Callable[[L], Sequence[str]],
    kept: Callable[[R, L], R | None] = lambda one, _limits: one,
) -> Mutation[L]:  # fmt: skip
    """Return the mutation that takes away all that a glob names, while others still name something.

    The glob is the one that names the first of the places, where it can be: trials at several places try several globs.
    `kept` returns what stays of a row that others name, for a judge that would not look at it as it is.
    """

    def apply(evidence: Evidence, limits: L, places: tuple[str, ...]) -> Mutated | str:
        table = table_of(evidence, need, row)
        for gone in sorted(globs(limits), key=lambda glob: not any(fnmatchcase(place, glob) for place in places[:1])):
            left = [
                new
                for place, one in zip(table.places(), table.rows, strict=True)
                if not fnmatchcase(place, gone)
                and any(fnmatchcase(place, glob) for glob in globs(limits))
                and (new := kept(one, limits)) is not None
            ]
            if left:
                return Mutated(with_rows(evidence, need, left))
        return "no other row is named"

    return Mutation("a glob that names nothing", code, apply, Outcome.BLOCKED)
