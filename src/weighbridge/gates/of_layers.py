"""A kind that is one figure of the norms of tensors within one bound, and what such kinds ask of these norms first."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, rows_of, settings, with_rows
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.figures import layer_norms
from weighbridge.figures.figure import middle
from weighbridge.gates.families.levers import Moved
from weighbridge.gates.families.rule import BoundedFigure
from weighbridge.quantities.tensors import Role, TensorCourse

LAYERS, PLACE = "layers", "layers"
NORMS = ("grad", "grad_used", "weight", "update")
DISTINCT = 0.5  # of the norms that are not 0; of fewer, somebody filled them in
HOLES = 3  # times the usual distance of the steps that were looked at
Rows: TypeAlias = tuple[TensorCourse, ...]
Lever: TypeAlias = Callable[[Any], Moved]


MEASURE = settings(steps=(tuple[int, int] | None, Doc("first and last step that are looked at; all without it"), None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule(BoundedFigure):
    """A rule over norms of tensors, in `layers` layers or more, without the roles in `spares` and those in `exempt`."""

    levers: dict[str, Lever]
    min_steps: int = 20
    layers: int = 0
    spares: tuple[Role, ...] = ()

    def kind(self) -> Kind[Any]:
        """Return the kind that this rule is."""
        least = Doc("steps that there must be", ge=1, must="at least", moves=_ends)
        own = {"one-layer": Outcome.BLOCKED} if self.layers else {}
        return Kind(
            name=self.name, version=self.version, roles={"run": SubjectKind.RUN}, check=self.check, figure=self.figure,
            needs={LAYERS: Need("layer_course", of=("run",), options=("steps",))}, measure=MEASURE,
            window=lambda _, measure: measure.steps, families=("of-layers",), judge=ClauseJudge(self._clauses),
            limits=self.limits(self.levers, lambda *_: PLACE, min_steps=(int, least, self.min_steps)),
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

    def inputs(self, evidence: Evidence, limits: Any) -> list[Rows]:
        """Return the rows that are judged."""
        rows, exempt = rows_of(evidence, LAYERS, TensorCourse), getattr(limits, "exempt", ())
        return [tuple(row for row in rows if row.role not in self.spares and not listed(row.tensor, exempt))]

    def _clauses(self, limits: Any) -> Sequence[Clause]:
        def of_layers(evidence: Evidence) -> Fields | None:
            rows = rows_of(evidence, LAYERS, TensorCourse)
            layers = {row.layer for row in rows} - {""}
            found = {"tensors": len(rows), "layers": len(layers), "needed": self.layers}
            return {**found, "first": rows[0].tensor} if rows and len(layers) < self.layers else None

        return (
            *([Requires(code="one-layer", lacking=of_layers)] if self.layers else []),
            self.enough("too-few-steps", limits, lambda _: PLACE, limits.min_steps),
            Requires(code="norms-repeat", lacking=_repeated),
            Requires(code="steps-not-looked-at", lacking=_hole),
            Whole(code="norms-not-finite", place=lambda _: PLACE, read=_not_finite, must="at most", bound=0),
            self.bounded(limits, lambda _: PLACE),
        )


def _repeated(evidence: Evidence) -> Fields | None:
    """Return how few numbers the gradients are, as they arrived or as they were used."""
    for gradients in (layer_norms.arrived, layer_norms.used):
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
