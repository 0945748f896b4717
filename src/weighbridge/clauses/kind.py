"""What a gate kind is. A kind judges; it never opens a file, a device or a clock, and it never measures."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from weighbridge.core import EMPTY, Fields, Measurement, Offence, Outcome, Rows, Series, SubjectKind, Verdict, model
from weighbridge.core.frozen import dataclass, field
from weighbridge.figures.figure import Figure
from weighbridge.quantities import base

L = TypeVar("L")
R = TypeVar("R")
Numbers: TypeAlias = Mapping[str, float]  # of one row of a run, by standard name
Evidence: TypeAlias = Mapping[str, Measurement]  # by the name of the need


@dataclass(frozen=True, slots=True)
class Need:
    """A quantity that a kind judges, of which roles; `options` are the keys of `measure:` that its verifier takes."""

    quantity: str
    of: tuple[str, ...]
    options: tuple[str, ...] = ()
    optional: bool = False
    of_rows: bool = True  # not where no row of a run's log is read for it, only events
    of_limits: Callable[[Fields], Fields] = lambda _limits: EMPTY  # what else the verifier takes, such as which runs
    when: Callable[[Fields], bool] | None = None  # under which limits it is needed at all, and its roles are filled


class Mutated(NamedTuple):
    """Evidence that was broken, and the places where the judge must now object."""

    evidence: Evidence
    places: frozenset[str] = frozenset()


At: TypeAlias = Callable[[Evidence, Any, Sequence[str]], Collection[str]]  # where to break: of all limits and places


def as_asked(_evidence: Evidence, _limits: object, places: Sequence[str]) -> Collection[str]:
    """Return all of the places that a trial asks for."""
    return places


@dataclass(frozen=True, slots=True)
class Mutation(Generic[L]):
    """One way to break exactly one clause of a kind's promise, or one limit.

    `apply(evidence, limits, places)` breaks it at every one of `places` that it can, or returns in words why it can
    nowhere. The judge must then answer `outcome` with `code`, at each broken place where that is FAIL. Trials ask for
    all places at which the judge looked, for the first and the last alone, and for those at which it did not say
    that it looked; `at` says which of these are broken.
    """

    name: str
    code: str
    apply: Callable[[Evidence, L, tuple[str, ...]], Mutated | str]
    outcome: Outcome = Outcome.FAIL
    at: At = as_asked

    def __call__(self, evidence: Evidence, limits: L, places: Sequence[str]) -> Mutated | str:
        """Return the evidence broken at these places, or why it cannot be."""
        return self.apply(evidence, limits, tuple(self.at(evidence, limits, places)))


class Tripwire(Protocol):
    """A judge of a run row by row, in the time of a window: it says FAIL alone, and what it says no later row mends."""

    codes: tuple[str, ...]

    def row(self, step: float | None, numbers: Numbers, events: Sequence[Fields] = ()) -> Offence | None:
        """Return what is broken from this row on; `events` came before it, and after the row before it."""


def settings(*bases: type, **named: tuple[Any, ...]) -> type[Any]:
    """Return the dataclass of what a contract may set: of each its type, its doc and, where it has one, its default."""
    rows = [(name, Annotated[of, doc], *default) for name, (of, doc, *default) in named.items()]
    return dataclasses.make_dataclass("Settings", rows, bases=bases, frozen=True, slots=True, kw_only=True)


NoOptions = settings()  # nothing to choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[L]):
    """The rule behind gates: what it needs, its limits, its codes, how it judges, and what it exists to catch.

    `mutations` are those that no limit implies; what a limit bounds is broken by the mutations that the limit names.
    `check` returns what is wrong with limits that are each in order alone. `cut` returns a smaller part of a long
    measurement, for trials, with limits that look no farther. Of a kind that judges a run, `window` returns the steps
    that limits and measure name, and `columns` the columns. `figure` is what a rule bounds. `recordable` are the roles
    of a model that a trace may fill, `optional_roles` those that a gate may do without. `families` have examples for
    their codes, in `gates/families/`. With `of_ranks` it judges a folder of ranks as a whole, where others judge each
    rank. `final` are the codes that no later row mends; `by_sample` says of each sample whether it is beyond the bound
    by itself; `tripwire` begins, by what was measured of the first rows, limits and measure, the judge that finds them
    row by row.
    """

    name: str
    version: int
    roles: Mapping[str, SubjectKind]
    needs: Mapping[str, Need]
    limits: type[L]
    measure: type = NoOptions
    codes: Mapping[str, Outcome]
    recordable: tuple[str, ...] = ()
    optional_roles: tuple[str, ...] = ()
    judge: Callable[[Evidence, L], Verdict]
    mutations: tuple[Mutation[L], ...] = ()
    check: Callable[[L, Any], Sequence[str]] = field(default=lambda _limits, _measure: ())
    cut: Callable[[Evidence, L], tuple[Evidence, L]] = field(default=lambda evidence, limits: (evidence, limits))
    window: Callable[[L, Any], tuple[int, int] | None] = field(default=lambda _limits, _measure: None)
    columns: Callable[[L, Any], Collection[str]] = field(default=lambda _limits, _measure: ())
    figure: Figure | None = None
    families: tuple[str, ...] = ()
    of_ranks: bool = False
    final: tuple[str, ...] = ()
    by_sample: Callable[[Evidence, L], Sequence[tuple[int, bool]]] = field(default=lambda _evidence, _limits: ())
    tripwire: Callable[[Evidence, L, Any], Tripwire | None] | None = None

    def needed(self, limits: Fields) -> Mapping[str, Need]:
        """Return what a gate with these limits needs, by name."""
        return {name: need for name, need in self.needs.items() if need.when is None or need.when(limits)}

    def filled(self, limits: Fields) -> list[str]:
        """Return the roles that a gate with these limits must fill."""
        asked = {role for need in self.needed(limits).values() for role in need.of}
        return [role for role in self.roles if role in asked and role not in self.optional_roles]


def passed(*, looked: Sequence[str], **figures: Any) -> Verdict:
    """Return a PASS over every place looked at."""
    of = figures.pop("of", len(looked))
    return Verdict(outcome=Outcome.PASS, code="pass", looked=tuple(looked), counted=of, of=of, **figures)


def failed(offences: Sequence[Offence], *, looked: Sequence[str], **figures: Any) -> Verdict:
    """Return a FAIL for offences; its code is that of the first."""
    of = figures.pop("of", len(looked))
    counted = figures.pop("counted", max(of - len({offence.place for offence in offences}), 0))
    return Verdict(
        outcome=Outcome.FAIL, code=offences[0].code, offences=tuple(offences), looked=tuple(looked), counted=counted,
        of=of, **figures,
    )  # fmt: skip


def blocked(code: str, figures: Fields = EMPTY, *, offences: Sequence[Offence] = (), **more: Any) -> Verdict:
    """Return a BLOCKED: it could not look, for the reason that `code` names."""
    return Verdict(outcome=Outcome.BLOCKED, code=code, figures=figures, offences=tuple(offences), **more)


def codes(*fails: str, blocked: Sequence[str]) -> Mapping[str, Outcome]:
    """Return what each code of a kind comes to."""
    return {**dict.fromkeys(fails, Outcome.FAIL), **dict.fromkeys(blocked, Outcome.BLOCKED)}


def table_of(evidence: Evidence, need: str, row: type[R]) -> Rows[R]:
    """Return the table of a need, whose rows are of one dataclass of `weighbridge.quantities`."""
    return base.table_of(evidence[need], row)


def rows_of(evidence: Evidence, need: str, row: type[R]) -> tuple[R, ...]:
    """Return the rows of a need."""
    return base.rows_of(evidence[need], row)


def record_of(evidence: Evidence, need: str, record: type[R]) -> R | None:
    """Return the record of a need, None where a trial took it away."""
    return base.record_of(evidence[need], record)


def series_of(evidence: Evidence, need: str) -> Series:
    """Return the series of a need, one column of a run; raises TypeError where it is none."""
    value = evidence[need].value
    if not isinstance(value, Series):
        raise TypeError(f"{need} is not a series")
    return value


def with_value(evidence: Evidence, need: str, value: model.Value) -> Evidence:
    """Return the evidence with another value for one need."""
    return {**evidence, need: dataclasses.replace(evidence[need], value=value)}


def with_rows(evidence: Evidence, need: str, rows: Sequence[object]) -> Evidence:
    """Return the evidence with other rows in the table of one need."""
    value = evidence[need].value
    assert isinstance(value, Rows)
    return with_value(evidence, need, Rows(value.key, tuple(rows)))
