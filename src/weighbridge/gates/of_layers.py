"""A kind that is one figure of the norms of tensors within one bound, and what such kinds ask of these norms first."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, rows_of, with_rows
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.figures.figure import middle
from weighbridge.figures.layer_norms import arrived, used
from weighbridge.gates.families.levers import Moved
from weighbridge.gates.families.rule import BoundedFigure
from weighbridge.quantities.tensors import Role, TensorCourse

LAYERS, PLACE = "layers", "layers"
NORMS = ("grad", "grad_used", "weight", "update")
DISTINCT = 0.5  # of the norms that are not 0; of fewer, somebody filled them in
HOLES = 3  # times the usual distance of the steps that were looked at
Rows: TypeAlias = tuple[TensorCourse, ...]
Lever: TypeAlias = Callable[[Any], Moved]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is measured of the run."""

    steps: Annotated[tuple[int, int] | None, Doc("first and last step that are looked at; all without it")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """Which tensors are not judged."""

    exempt: Annotated[tuple[str, ...], Doc("globs of tensors that are not judged", tight="down")] = ()


def exempt_by(limits: Any) -> tuple[str, ...]:
    """Return the globs of tensors that limits leave out."""
    return limits.exempt if isinstance(limits, Spared) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule(BoundedFigure):
    """A rule over the norms of tensors; `layers` is how many layers it compares, `spares` the roles that it leaves out.

    A limit `exempt`, where there is one, names tensors that are left out, too.
    """

    levers: dict[str, Lever]
    min_steps: int = 20
    layers: int = 0
    spares: tuple[Role, ...] = ()

    def kind(self) -> Kind[Any]:
        """Return the kind that this rule is."""
        least = Doc("steps that there must be", ge=1, must="at least", moves=_ends)
        more = ("min_steps", Annotated[int, least], self.min_steps)
        own = {"one-layer": Outcome.BLOCKED} if self.layers else {}
        return Kind(
            name=self.name, version=self.version, roles={"run": SubjectKind.RUN}, check=self.check, figure=self.figure,
            needs={LAYERS: Need("layer_course", of=("run",), options=("steps",))}, measure=Measure,
            window=lambda _, measure: measure.steps, families=("of-layers",), judge=ClauseJudge(self._clauses),
            limits=self.limits(more, moves=lambda must: self.moves(must, self.levers, self._value, lambda *_: PLACE)),
            codes={
                self.code: Outcome.FAIL, "norms-not-finite": Outcome.FAIL, **own,
                **dict.fromkeys(("too-few-steps", "norms-repeat", "steps-not-looked-at"), Outcome.BLOCKED),
            },
            mutations=(*MUTATIONS, *([ONE_LAYER] if self.layers else [])),
        )  # fmt: skip

    def check(self, limits: Any, measure: object) -> list[str]:
        """Return what is wrong with the bound, and where fewer steps are asked for than must come in a row."""
        short = getattr(limits, "in_a_row", 0) > limits.min_steps
        wrong = BoundedFigure.check(self, limits, measure)
        return [*wrong, "min_steps must be in_a_row or more"] if short else wrong

    def _judged(self, evidence: Evidence, limits: Any) -> Rows:
        rows, exempt = rows_of(evidence, LAYERS, TensorCourse), exempt_by(limits)
        return tuple(row for row in rows if row.role not in self.spares and not listed(row.tensor, exempt))

    def _value(self, evidence: Evidence, limits: Any) -> float:
        return self.figure(self._judged(evidence, limits), limits).value

    def _clauses(self, limits: Any) -> Sequence[Clause]:
        must, bound = self.bound_of(limits)

        def enough(evidence: Evidence) -> tuple[float, Fields]:
            found = self.figure.samples(self._judged(evidence, limits), limits)
            return found, {"samples": found, "needed": limits.min_steps}

        def of_layers(evidence: Evidence) -> Fields | None:
            rows = rows_of(evidence, LAYERS, TensorCourse)
            layers = {row.layer for row in rows} - {""}
            found = {"tensors": len(rows), "layers": len(layers), "needed": self.layers}
            return {**found, "first": rows[0].tensor} if rows and len(layers) < self.layers else None

        def read(evidence: Evidence) -> tuple[float, Fields]:
            rows = self._judged(evidence, limits)
            found = self.figure(rows, limits)
            of = self.figure.samples(rows, limits)
            return found.value, {"of": of, "enough": found.value, "unit": self.figure.unit, **found.more}

        return (
            *([Requires(code="one-layer", lacking=of_layers)] if self.layers else []),
            Whole(code="too-few-steps", place=lambda _: PLACE, read=enough, must="at least", bound=limits.min_steps,
                  outcome=Outcome.BLOCKED),
            Requires(code="norms-repeat", lacking=_repeated),
            Requires(code="steps-not-looked-at", lacking=_hole),
            Whole(code="norms-not-finite", place=lambda _: PLACE, read=_not_finite, must="at most", bound=0),
            Whole(code=self.code, place=lambda _: PLACE, read=read, must=must, bound=bound),
        )  # fmt: skip


def _repeated(evidence: Evidence) -> Fields | None:
    """Return how few numbers the gradients are, as they arrived or as they were used."""
    for gradients in (arrived, used):
        values = [one for row in rows_of(evidence, LAYERS, TensorCourse) for one in gradients(row) if one]
        if (distinct := len(set(values))) < DISTINCT * len(values):
            return {"norms": len(values), "distinct": distinct}
    return None


def _hole(evidence: Evidence) -> Fields | None:
    """Return the longest stretch of steps that nobody looked at, where it is far longer than the others."""
    rows = rows_of(evidence, LAYERS, TensorCourse)
    steps = sorted({step for row in rows for step in row.step})
    pairs = list(itertools.pairwise([*steps, *(row.last_step for row in rows[:1])]))
    apart = sorted(later - step for step, later in pairs if later - step > 1)[:-1]  # beside the longest
    usual = middle(apart) if apart else 1.0
    longest, first = max(((later - step, step) for step, later in pairs), default=(0, 0))
    return {"first_step": first, "length": longest, "usual": usual} if longest > HOLES * usual else None


def _not_finite(evidence: Evidence) -> tuple[float, Fields]:
    bad = [
        (step, row.tensor)
        for row in rows_of(evidence, LAYERS, TensorCourse)
        for norm in NORMS
        for step, value in zip(row.step, getattr(row, norm), strict=True)
        if value is not None and not math.isfinite(value)
    ]
    step, tensor = min(bad, default=(0, ""))
    return len(bad), {"not_finite": len(bad), "first_step": step, "tensor": tensor}


def changed(evidence: Evidence, change: Callable[[TensorCourse], TensorCourse]) -> Evidence:
    """Return the evidence with every row changed."""
    return with_rows(evidence, LAYERS, [change(row) for row in rows_of(evidence, LAYERS, TensorCourse)])


def _mutation(name: str, code: str, change: Callable[[TensorCourse], TensorCourse]) -> Any:
    def apply(evidence: Evidence, _limits: object, _places: Sequence[str]) -> Mutated:
        return Mutated(changed(evidence, change), frozenset({PLACE}))

    return Mutation(name, code, apply, Outcome.BLOCKED)


def _with_last(evidence: Evidence, value: float) -> Mutated:
    """Return the evidence with another last weight of one tensor."""
    first, *others = rows_of(evidence, LAYERS, TensorCourse)
    first = dataclasses.replace(first, weight=(*first.weight[:-1], value))
    return Mutated(with_rows(evidence, LAYERS, [first, *others]), frozenset({PLACE}))


MUTATIONS: tuple[Mutation[Any], ...] = (
    _mutation("one number throughout", "norms-repeat", lambda row: dataclasses.replace(
        row, **dict[str, Any]({norm: tuple(one and 1.0 for one in getattr(row, norm)) for norm in NORMS}))),
    _mutation("a log that ends long before the run", "steps-not-looked-at",
              lambda row: dataclasses.replace(row, last_step=10**9)),
    Mutation("a weight that is NaN", "norms-not-finite", lambda *of: _with_last(of[0], math.nan)),
    Mutation("a weight that is infinite", "norms-not-finite", lambda *of: _with_last(of[0], math.inf)),
)  # fmt: skip
ONE_LAYER = _mutation("names of no layer", "one-layer", lambda row: dataclasses.replace(row, layer=""))


def _ends(limit: Limit) -> Iterator[Mutation[Any]]:
    def apply(evidence: Evidence, _limits: object, _places: Sequence[str]) -> Mutated:
        rows = rows_of(evidence, LAYERS, TensorCourse)
        last = [*sorted({step for row in rows for step in row.step})[: limit.value], -1][-2:][0]

        def end(row: TensorCourse) -> TensorCourse:
            kept = sum(step <= last for step in row.step)
            cells: Any = {name: getattr(row, name)[:kept] for name in ("step", "lr", *NORMS)}
            return dataclasses.replace(row, last_step=last, **cells)

        return Mutated(changed(evidence, end))

    yield Mutation("the run ends too early", "too-few-steps", apply, Outcome.BLOCKED)
