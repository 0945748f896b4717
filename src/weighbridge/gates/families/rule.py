"""A kind that is one figure within one bound: the figure is a pure function, and the rest is said here once.

A trial moves what was measured by a lever that the rule names, by the least that breaks the bound. A lever that cannot
break it moves as far as numbers go, so that a figure which does not look there is seen not to.
"""

import abc
import dataclasses
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from weighbridge.clauses import kind
from weighbridge.clauses.clause import HOLDS, Clause, ClauseJudge, Requires, Whole
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, NoOptions, Numbers, series_of, settings
from weighbridge.clauses.mutations import Breaks, Limit, Moves
from weighbridge.core import Doc, Fields, Offence, Outcome, Record, Series, SubjectKind
from weighbridge.figures.figure import Figure, Push
from weighbridge.figures.whole import between
from weighbridge.gates.families import run_columns
from weighbridge.gates.families.levers import KNOWN, LEVERS, Lever, Moved, by_the_least
from weighbridge.gates.families.relative import ALONE, BASELINE, OTHER, Compared, Comparison, beside, reference
from weighbridge.gates.families.run_columns import COLUMNS, FINITE, OF_STEPS, SAMPLES, ColumnGuard
from weighbridge.quantities.runs import CorpusProgress

Must: TypeAlias = Literal["at most", "below", "at least", "above"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedFigure(abc.ABC):
    """What every rule says: its figure, the bound on it, and how trials move it."""

    name: str
    figure: Figure
    code: str
    doc: str  # what the bound is on
    must: tuple[Must, ...]  # a contract gives one of them
    bound: int | float | None = None  # the default of the one bound; without it every contract says it
    gt: float | None = None
    ge: float | None = -1e308
    le: float = 1e308
    options: type = NoOptions  # further limits, which the figure reads
    checks: Callable[[Any], list[str]] = lambda _limits: []
    version: int = 1

    def limits(self, levers: Mapping[str, Callable[[Any], Moved]], place: Any, **more: tuple[Any, ...]) -> type[Any]:
        """Return the limits: the bound under its name, the options of the figure, and `more`."""
        if not levers:
            raise ValueError(f"{self.name} has no lever, so no trial moves its figure{KNOWN}")
        several = len(self.must) > 1
        number: Any = int if isinstance(self.bound, int) else float
        default = [None] if several else [] if self.bound is None else [self.bound]
        within: dict[str, Any] = {"unit": self.figure.unit, "gt": self.gt, "ge": self.ge, "le": self.le}
        bounds: dict[str, tuple[Any, ...]] = {}
        for must in self.must:
            doc = Doc(f"{self.doc} is {must} this", must=must, moves=self.moves(must, levers, place), **within)
            bounds[self.key(must)] = (number | None if several else number, doc, *default)
        return settings(self.options, **bounds, **more)

    def key(self, must: Must) -> str:
        """Return the name of a bound in contracts, with its unit: `at_most_ms`."""
        return "_".join(filter(None, (must.replace(" ", "_"), self.figure.unit)))

    def bound_of(self, limits: Any) -> tuple[Must, float]:
        """Return the bound that a contract gives."""
        return next((must, bound) for must in self.must if (bound := getattr(limits, self.key(must))) is not None)

    def check(self, limits: Any, _measure: object) -> list[str]:
        """Return what is wrong where not exactly one bound is given."""
        given = [must for must in self.must if getattr(limits, self.key(must)) is not None]
        keys, more = " or ".join(map(self.key, given or self.must)), ", not both; write two gates" if given else ""
        return [*([f"one bound a gate: {keys}{more}"] if len(given) != 1 else ()), *self.checks(limits)]

    @abc.abstractmethod
    def inputs(self, evidence: Evidence, limits: Any) -> Sequence[Any]:
        """Return what the figure is of."""

    def value(self, evidence: Evidence, limits: Any) -> float:
        """Return the figure."""
        return self.figure(*self.inputs(evidence, limits), limits).value

    def bounded(self, limits: Any, place: Callable[[Evidence], str], **said: Any) -> Whole:
        """Return the clause that the figure is within its bound; what is `said` goes into its words."""
        must, bound = self.bound_of(limits)

        def read(evidence: Evidence) -> tuple[float, Fields]:
            inputs = self.inputs(evidence, limits)
            found, of = self.figure(*inputs, limits), self.figure.samples(inputs[0], limits)
            return found.value, {"of": of, "enough": found.value, "unit": self.figure.unit, **said, **found.more}

        return Whole(code=self.code, place=place, read=read, must=must, bound=bound)

    def enough(self, code: str, limits: Any, place: Callable[[Evidence], str], least: int) -> Whole:
        """Return the clause that the figure stands on so many samples at least."""

        def read(evidence: Evidence) -> tuple[float, Fields]:
            found = self.figure.samples(self.inputs(evidence, limits)[0], limits)
            return found, {"samples": found, "needed": least}

        return Whole(code=code, place=place, read=read, must="at least", bound=least, outcome=Outcome.BLOCKED)

    def moves(self, must: Must, levers: Mapping[str, Callable[[Any], Moved]], place: Any) -> Moves:
        """Return the mutations of the bound: each lever, by the least that breaks it."""

        def moves(limit: Limit) -> Iterator[Mutation[Any]]:
            for name, lever in levers.items():

                def apply(evidence: Evidence, limits: Any, places: Sequence[str], lever: Any = lever) -> Mutated | str:
                    bound, at = getattr(limits, self.key(must)), place(evidence, limits)
                    if at not in places:  # to look for the least once more would find the same
                        return "not at these places"

                    def breaks(moved: Evidence) -> bool:
                        found = self.value(moved, limits)
                        return math.isfinite(found) and not HOLDS[must](found, bound)

                    return Mutated(by_the_least(evidence, lever(limits), breaks), frozenset({at}))

                yield Mutation(name, self.code, apply)

        return moves


@dataclass(slots=True, kw_only=True)
class RunningRule:
    """A rule that judges row by row; it says nothing more behind what leaves the rule itself without a verdict."""

    column: str
    codes: tuple[str, ...]  # that of the bound first
    limits: Any
    must: str
    bound: float
    figure: Figure
    push: Push | None  # None: only what is no number is final
    compared: Compared
    needed: int
    window: tuple[float, float]
    last: float = -math.inf
    silent: bool = False  # behind steps out of order
    adrift: bool = False  # behind a reference that is none: only what is no number is found
    steps: "array[float]" = field(default_factory=lambda: array("d"))  # until there are enough
    enough: bool = False

    def row(self, step: float | None, numbers: Numbers, _events: Sequence[Fields] = ()) -> Offence | None:
        """Return that the figure of all samples so far is beyond the bound, or that this one is no number."""
        value = numbers.get(self.column)
        if self.silent or value is None or step is None or not step.is_integer():
            return None
        self.silent, self.last = step <= self.last, step
        if not math.isfinite(value) and "not-finite" in self.codes and not self.silent:
            return Offence(place=self.column, code="not-finite", figures={"step": int(step)})
        if self.push is None or self.silent or self.adrift or not self.window[0] <= step <= self.window[1]:
            return None
        compared = self.compared(int(step), value, numbers)
        self.adrift = compared is not None and not all(0 < one < math.inf for one in compared)
        return None if self.adrift or compared is None else self._beyond(int(step), value, compared)

    def _beyond(self, step: int, value: float, compared: tuple[float, ...]) -> Offence | None:
        assert self.push
        found = self.push(step, value, *compared)
        if not self.enough:
            self.steps.append(step)
            of = Series(self.steps, self.steps)  # type: ignore[arg-type]  # the number of samples, not their values
            self.enough = self.figure.samples(of, self.limits) >= self.needed
        if not self.enough or found is None or HOLDS[self.must](found, self.bound):
            return None
        figures = {"step": step, "value": found, "bound": self.bound}
        return Offence(place=self.column, code=self.codes[0], figures=figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(BoundedFigure):
    """A rule over a column of a run; a `relative` one compares it with what its limit `relative_to` names.

    `guards` is what is asked of the column first: evaluations are not steps. With `window` the limit `steps` says which
    steps are looked at, by default those of `looked_at`. `place` returns where an offence is; `reach`, for trials on a
    part of a long column, its first step and how many samples.
    """

    column: str
    relative: Comparison = ALONE
    levers: tuple[str, ...] = ()
    own_levers: Mapping[str, Lever] = field(default_factory=dict)
    min_samples: int | None = 100  # None: a guard sees to it
    window: bool = True
    looked_at: tuple[int, int] | None = None
    guards: tuple[ColumnGuard, ...] = OF_STEPS
    reach: Callable[[Any], tuple[int, int]] = lambda limits: (0, limits.min_samples)
    place: Callable[[Evidence, Any], str] = lambda evidence, _limits: run_columns.place(evidence)
    means: str = "the column that is judged"

    def kind(self) -> Kind[Any]:
        """Return the kind that this rule is."""
        if unknown := [name for name in self.levers if name not in LEVERS]:
            raise ValueError(f"there is no lever {unknown[0]!r}{KNOWN}")
        levers = {**{name: LEVERS[name] for name in self.levers}, **self.own_levers}
        moved = {name: _in_samples(lever, window=self.window) for name, lever in levers.items()}
        least = Doc("samples that there must be", ge=1, must="at least", moves=run_columns.ends_early)
        steps = Doc("first and last step that are looked at; all without it")
        more: dict[str, tuple[Any, ...]] = {}
        more |= {} if self.min_samples is None else {"min_samples": (int, least, self.min_samples)}
        more |= {"steps": (tuple[int, int] | None, steps, self.looked_at)} if self.window else {}
        blocked = dict.fromkeys(("too-few-samples", *self.relative.codes), Outcome.BLOCKED)
        baseline = ("baseline",) if any("baseline" in need.of for need in self.relative.needs.values()) else ()
        return Kind(
            name=self.name, version=self.version, roles=dict.fromkeys(("run", *baseline), SubjectKind.RUN),
            needs={SAMPLES: Need("step_series", of=("run",), options=("column",)),
                   COLUMNS: Need("step_columns", of=("run",)), **self.relative.needs},
            limits=self.limits(moved, self.place, **more),
            measure=settings(column=(str, Doc(self.means), self.column)),
            codes={self.code: Outcome.FAIL, **blocked,
                   **{code: outcome for one in self.guards for code, outcome in one.codes.items()}},
            judge=ClauseJudge(lambda given: (
                *(clause for one in self.guards for clause in one.clauses(given)), *self._clauses(given))),
            mutations=(*(mutation for one in self.guards for mutation in one.mutations), *self.relative.mutations),
            columns=lambda _limits, measure: (measure.column,),
            families=tuple(dict.fromkeys(filter(None, (*(one.family for one in self.guards), self.relative.family)))),
            check=self.check, cut=self._cut, window=lambda limits, _: self._steps(limits), figure=self.figure,
            final=self._final, tripwire=self._tripwire, by_sample=self._by_sample,
        )  # fmt: skip

    @property
    def _final(self) -> tuple[str, ...]:
        return *([self.code] if self.figure.running else ()), *(["not-finite"] if FINITE in self.guards else ())

    def _tripwire(self, evidence: Evidence, limits: Any, _measure: object) -> RunningRule | None:
        """Begin to judge row by row; None where no breach is final, or what samples are compared with is not known."""
        must, bound = self.bound_of(limits)
        running, compared = self.figure.running, self.relative.compared(limits, evidence)
        if compared is None or not self._final:
            return None
        return RunningRule(
            column=run_columns.place(evidence), codes=(self.code, *self._final), limits=limits, must=must, bound=bound,
            figure=self.figure, push=running and running(limits), compared=compared,
            needed=getattr(limits, "min_samples", 0),
            window=(self._steps(limits) if self.window else None) or (-math.inf, math.inf),
        )  # fmt: skip

    def _by_sample(self, evidence: Evidence, limits: Any) -> list[tuple[int, bool]]:
        """Return of each sample that is looked at its step, and whether it is beyond the bound by itself."""
        if self.figure.each is None or self.relative.given(limits) in ("first", "previous"):
            return []  # what it is compared with is a sample before it
        (must, bound), each = self.bound_of(limits), self.figure.each(limits)
        series, *others = self.inputs(evidence, limits)
        rows = zip(series.step, series.value, *(one.value for one in others), strict=True)
        found = ((step, each(step, *of)) for step, *of in rows)
        return [(step, not HOLDS[must](value, bound)) for step, value in found if value is not None]

    def _steps(self, limits: Any) -> Any:
        return getattr(limits, "steps", None)  # of this rule, or of its options

    def _cut(self, evidence: Evidence, limits: Any) -> tuple[Evidence, Any]:
        """Return a part of a long column that trials need; a window then ends there."""
        first, needed = self.reach(limits)
        begin, end = self._steps(limits) or (first, math.inf)
        part, last = run_columns.cut(evidence, begin, needed, end)
        for need in (OTHER, BASELINE) if last is not None else ():  # or each trial would walk over all of it
            if need in part:
                steps = series_of(part, SAMPLES).step
                part = kind.with_value(part, need, between(series_of(part, need), (steps[0], steps[-1])))
        narrower = last is not None and end != math.inf
        return part, dataclasses.replace(limits, steps=(begin, last)) if narrower else limits

    def inputs(self, evidence: Evidence, limits: Any) -> list[Series]:
        """Return the samples that are looked at, and what they are compared with."""
        samples = self._looked_at(evidence, limits)
        return [samples, *(Series(samples.step, one) for one in self._beside(evidence, samples))]

    def _beside(self, evidence: Evidence, samples: Series) -> list[Sequence[float]]:
        return [beside(one, samples.step, latest=self.relative.latest) for one in reference(evidence)]

    def _looked_at(self, evidence: Evidence, limits: Any) -> Series:
        series, steps = series_of(evidence, SAMPLES), self._steps(limits) if self.window else None
        if self.relative.sparse:
            there = {step for one in reference(evidence) for step in one.step}
            pairs = [pair for pair in zip(series.step, series.value, strict=True) if pair[0] in there]
            series = Series([step for step, _ in pairs], [value for _, value in pairs])
        return series if steps is None else between(series, steps)

    def _clauses(self, limits: Any) -> Sequence[Clause]:
        def lacking(evidence: Evidence) -> Fields | None:
            given, samples = self.relative.given(limits), self._looked_at(evidence, limits)
            if given == "value":
                return None
            own = {"first": samples.value[:1], "previous": samples.value[:-1]}.get(given)
            references = self._beside(evidence, samples) if own is None else [own]
            known = next(iter(references), [math.nan] * len(samples.step))
            bad = [step for step, value in zip(samples.step, known, strict=False) if not 0 < value < math.inf]
            return {"relative_to": given, "bad": len(bad), "first_step": bad[0]} if bad else None

        def same(evidence: Evidence) -> Fields | None:
            alike = BASELINE in evidence and series_of(evidence, BASELINE) == series_of(evidence, SAMPLES)
            return {} if alike else None

        bounded = self.bounded(limits, lambda one: self.place(one, limits), bound=self.bound_of(limits)[0])
        if self.min_samples is None:
            return (bounded,)
        known = (Requires(code="no-reference", lacking=lacking), Requires(code="same-run", lacking=same))
        few = self.enough("too-few-samples", limits, run_columns.place, limits.min_samples)
        return *(one for one in known if one.code in self.relative.codes), few, bounded


def _in_samples(lever: Lever, *, window: bool) -> Callable[[Any], Moved]:
    def of(limits: Any) -> Moved:
        first, last = (limits.steps if window else None) or (-math.inf, math.inf)

        def change(steps: "array[int]", values: "array[float]", amount: float) -> None:
            at = [index for index, step in enumerate(steps) if first <= step <= last]
            some_steps, some = array("q", [steps[index] for index in at]), array("d", [values[index] for index in at])
            lever(some_steps, some, amount, limits)
            for index, value in zip(at, some, strict=True):
                values[index] = value

        return lambda of, amount: run_columns.changed(of, lambda steps, values: change(steps, values, amount))

    return of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRule(BoundedFigure):
    """A rule over the record of how far a run got: `levers` move fields of it, as in "tokens up"."""

    place: str
    levers: tuple[str, ...]
    unknown: str  # the code where the figure cannot be had

    def kind(self) -> Kind[Any]:
        """Return the kind that this rule is."""
        breaks = Breaks(need="record", row=CorpusProgress, blocked=(self.unknown,))

        def by(lever: str) -> Callable[[Any], Moved]:
            name, _, way = lever.partition(" ")

            def moved(evidence: Evidence, least: float) -> Evidence:
                record: Any = kind.record_of(evidence, "record", CorpusProgress)
                value = getattr(record, name) + (least if way == "up" else -least)
                return kind.with_value(evidence, "record", Record(dataclasses.replace(record, **{name: value})))

            return lambda _limits: moved

        levers = {lever: by(lever) for lever in self.levers}
        return Kind(
            name=self.name, version=self.version, roles={"run": SubjectKind.RUN}, check=self.check, figure=self.figure,
            needs={"record": Need("corpus_progress", of=("run",))},
            limits=self.limits(levers, lambda _, __: self.place),
            codes={self.code: Outcome.FAIL, self.unknown: Outcome.BLOCKED}, judge=ClauseJudge(self._clauses),
            mutations=tuple(
                breaks(f"{one} unknown", self.unknown, place="", **dict[str, Any]({one: None})) for one in self.fields),
        )  # fmt: skip

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the fields that the figure stands on."""
        return tuple(dict.fromkeys(lever.partition(" ")[0] for lever in self.levers))

    def inputs(self, evidence: Evidence, limits: Any) -> list[Any]:
        """Return the record."""
        return [kind.record_of(evidence, "record", CorpusProgress)]

    def _clauses(self, limits: Any) -> Sequence[Clause]:
        must, bound = self.bound_of(limits)

        def lacking(evidence: Evidence) -> Fields | None:
            record: Any = kind.record_of(evidence, "record", CorpusProgress)
            gone = [name for name in self.fields if record is None or not getattr(record, name)]
            return {"unknown": gone} if gone else None

        def read(evidence: Evidence) -> tuple[float, Fields]:
            found = self.figure(*self.inputs(evidence, limits), limits)
            return found.value, {"enough": found.value, "of": 1, **found.more}

        return Requires(code=self.unknown, lacking=lacking), Whole(
            code=self.code, place=lambda _: self.place, read=read, must=must, bound=bound
        )
