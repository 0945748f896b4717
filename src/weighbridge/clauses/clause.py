"""A judge as an ordered list of clauses. Each clause promises one thing, of every row or of the whole.

Neighbouring clauses that come to FAIL form a stage, checked together; what is broken first decides. How a clause is
broken stands elsewhere (`faults`): derived from the limits, so that a clause that was dropped is still missed.
"""

import abc
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from weighbridge.clauses.kind import Evidence, blocked, failed, passed, table_of
from weighbridge.core import EMPTY, Fields, Offence, Outcome, Verdict, dataclass, field

L = TypeVar("L")
R = TypeVar("R")
HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "at most": operator.le, "at least": operator.ge, "below": operator.lt, "above": operator.gt,
}  # fmt: skip
OF_VERDICT = ("measured", "limit", "unit", "of", "counted", "enough")  # other figures are its words'


class Checked(NamedTuple):
    """What checking one clause gave: where it is broken, where it looked, and figures for the verdict's words."""

    offences: Sequence[Offence] = ()
    looked: Sequence[str] = ()
    figures: Fields = EMPTY


@dataclass(frozen=True, slots=True)
class ClauseJudge(Generic[L]):
    """A judge that checks clauses in order; `figures` adds what the verdict's words need."""

    clauses: Callable[[L], "Sequence[Clause]"]
    figures: Callable[[Evidence, L], Fields] = lambda _evidence, _limits: EMPTY
    by_place: bool = False  # whether offences stand in the order of their places, not of the clauses
    first: Callable[[Offence], Any] | None = None  # gives another order

    def __call__(self, evidence: Evidence, limits: L) -> Verdict:
        """Return the verdict of the first broken stage, or a PASS."""
        done: list[Checked] = []
        for outcome, stage in itertools.groupby(self.clauses(limits), key=lambda clause: clause.outcome):
            checked: list[Checked] = []
            for clause in stage:
                checked.append(clause.check(evidence))
                if outcome is Outcome.BLOCKED and checked[-1].offences:  # what comes after may need what is lacking
                    broken = checked[-1]
                    code = broken.offences[0].code
                    if not broken.looked:  # of the whole, not of places
                        return blocked(code, broken.offences[0].figures)
                    more = _fields((), self.figures(evidence, limits))
                    return blocked(code, offences=broken.offences, of=len(_looked([*done, *checked])), **more)
            done += checked
            offences = [offence for one in checked for offence in one.offences]
            if offences:
                if self.by_place:
                    order = {place: at for at, place in enumerate(_looked(done))}
                    offences.sort(key=lambda offence: order[offence.place])
                if self.first is not None:
                    offences.sort(key=self.first)
                return failed(offences, looked=_looked(done), **_fields(checked, self.figures(evidence, limits)))
        return passed(looked=_looked(done), **_fields(done, self.figures(evidence, limits)))


def _looked(done: Iterable[Checked]) -> list[str]:
    return list(dict.fromkeys(place for checked in done for place in checked.looked))


def _fields(done: Iterable[Checked], more: Fields) -> dict[str, Any]:
    found = dict(more)
    for checked in done:
        found |= checked.figures
    own = {key: value for key, value in found.items() if key in OF_VERDICT}
    return {**own, "figures": {key: value for key, value in found.items() if key not in OF_VERDICT}}


def listed(name: str, globs: Iterable[str]) -> bool:
    """Return whether one of the globs names this."""
    return any(fnmatchcase(name, glob) for glob in globs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRows(abc.ABC, Generic[R]):
    """A promise about every row that `names` match and `exempt` do not."""

    code: str
    need: str
    row: type[R]
    names: tuple[str, ...] = ("*",)
    exempt: tuple[str, ...] = ()
    outcome: Outcome = Outcome.FAIL

    def promised(self, evidence: Evidence) -> Iterator[tuple[str, R]]:
        """Yield the rows that are promised, with their places."""
        table = table_of(evidence, self.need, self.row)
        for place, row in zip(table.places(), table.rows, strict=True):
            if listed(place, self.names) and not listed(place, self.exempt):
                yield place, row

    def check(self, evidence: Evidence) -> Checked:
        """Return an offence for every promised row that is broken."""
        rows = list(self.promised(evidence))
        found = ((place, self.wrong(row)) for place, row in rows)
        offences = [Offence(place=place, code=self.code, figures=why) for place, why in found if why is not None]
        return Checked(offences, [place for place, _ in rows])

    @abc.abstractmethod
    def wrong(self, row: R) -> Fields | None:
        """Return the figures of what is wrong with a row, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Each(OfRows[R]):
    """Every promised row is in order; `broken` returns the figures of what is wrong."""

    broken: Callable[[R], Fields | None]

    def wrong(self, row: R) -> Fields | None:
        """Return the figures of what is wrong with a row, or None."""
        return self.broken(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded(OfRows[R]):
    """A figure of every promised row is within a bound; `more` returns further figures of a row for the words."""

    value: Callable[[R], float | None]  # what is no number is another clause's matter
    must: str
    bound: float
    figures: Fields = field(default_factory=dict)
    more: Callable[[R], Fields] = lambda _row: EMPTY

    def wrong(self, row: R) -> Fields | None:
        """Return the figure and the bound that it is beyond, or None."""
        value = self.value(row)
        if not is_number(value) or HOLDS[self.must](value, self.bound):
            return None
        return {**self.figures, "value": value, "bound": self.bound, **self.more(row)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requires:
    """Without this nothing can be judged: `lacking` returns the figures of what is lacking, or None."""

    code: str
    lacking: Callable[[Evidence], Fields | None]
    outcome: Outcome = Outcome.BLOCKED

    def check(self, evidence: Evidence) -> Checked:
        """Return what is lacking as the one offence."""
        figures = self.lacking(evidence)
        return Checked([] if figures is None else [Offence(place="", code=self.code, figures=figures)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """One figure of the whole evidence is within a bound, at one place; `read` gives it with figures for the words."""

    code: str
    place: Callable[[Evidence], str]
    read: Callable[[Evidence], tuple[float, Fields]]
    must: str
    bound: float
    figures: Fields = field(default_factory=dict)
    outcome: Outcome = Outcome.FAIL

    def check(self, evidence: Evidence) -> Checked:
        """Return the figure, and an offence where it is beyond the bound."""
        value, more = self.read(evidence)
        figures, place = {**self.figures, **more}, self.place(evidence)
        within = HOLDS[self.must](value, self.bound)
        offences = [] if within else [Offence(place=place, code=self.code, figures=figures)]
        if self.outcome is Outcome.BLOCKED:
            return Checked(offences)
        # `counted` and `enough` are the verdict's only where the bound is broken.
        shown = {key: one for key, one in figures.items() if offences or key not in ("counted", "enough")}
        return Checked(offences, (place,), {"measured": value, "limit": self.bound, **shown})


Clause: TypeAlias = OfRows[Any] | Requires | Whole  # one promise; each has its code, and what breaking it comes to


def every_glob_names(code: str, need: str, row: type[Any], globs: Sequence[str]) -> Requires:
    """Return the clause that every glob names a row: a typo is not a pass."""

    def lacking(evidence: Evidence) -> Fields | None:
        places = table_of(evidence, need, row).places()
        idle = sorted({glob for glob in globs if not any(fnmatchcase(place, glob) for place in places)})
        return {"globs": idle, "names": len(places)} if idle else None

    return Requires(code=code, lacking=lacking)


def every_figure_is_known(code: str, bounds: Sequence[Bounded[Any]]) -> Requires:
    """Return the clause that there is a number wherever one is bounded."""

    def lacking(evidence: Evidence) -> Fields | None:
        values = [(place, one.value(row)) for one in bounds for place, row in one.promised(evidence)]
        unknown = sorted({place for place, value in values if not is_number(value)})
        return {"tensors": len(unknown), "of": len(dict(values)), "first": unknown[0]} if unknown else None

    return Requires(code=code, lacking=lacking)


def or_nan(value: float | None) -> float:
    """Return a figure, NaN where it was not measured: no limit holds it."""
    return math.nan if value is None else value


def is_number(value: object) -> bool:
    """Return whether a figure is a number, not NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
