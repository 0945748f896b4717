"""Rules over the norms of tensors that the recorder logs, a row each: what healthy runs keep between layers.

Each is one figure of these norms within one bound; what all of them ask of the norms first is said once.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, rows_of, settings, with_rows
from weighbridge.clauses.mutations import Limit
from weighbridge.core import Doc, Fields, Outcome, SubjectKind
from weighbridge.figures import layer_norms
from weighbridge.figures.figure import middle
from weighbridge.gates.channel_rules import IN_A_ROW
from weighbridge.gates.course_rules import JUMPS
from weighbridge.gates.families.levers import Moved
from weighbridge.gates.families.rule import BoundedFigure
from weighbridge.quantities.tensor_courses import Role, TensorCourse

LAYERS, PLACE = "layers", "layers"
NORMS = ("grad", "grad_used", "weight", "update")
DISTINCT = 0.5  # of the norms that are not 0; of fewer, somebody filled them in
HOLES = 3  # times the usual distance of the steps that were looked at
Rows: TypeAlias = tuple[TensorCourse, ...]
Lever: TypeAlias = Callable[[Any], Moved]


MEASURE = settings(steps=(tuple[int, int] | None, Doc("first and last step that are looked at; all without it"), None))


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


Chosen: TypeAlias = Callable[[Rows, Any], Collection[str]]  # of all tensors, under the limits, those that a lever moves
Factor: TypeAlias = Callable[[float, Any], float]  # by which it moves them


FIVE_TIMES = settings(
    exempt=(tuple[str, ...], Doc("globs of tensors that are not judged", tight="down"), ()), in_a_row=(*IN_A_ROW, 5)
)
OF_MEAN = settings(of_mean=(float, Doc("share of the layers' mean beyond which one moves", gt=0, le=1), 0.1))


def _lever(norms: Collection[str], chosen: Chosen, factor: Factor, at: slice = slice(None)) -> Lever:
    def lever(limits: Any) -> Any:
        def moved(evidence: Evidence, amount: float) -> Evidence:
            names, by = chosen(rows_of(evidence, LAYERS, TensorCourse), limits), factor(1 + amount, limits)

            def change(row: TensorCourse) -> TensorCourse:
                cells: Any = {name: list(getattr(row, name)) for name in norms if row.tensor in names}
                for values in cells.values():
                    values[at] = [one and one * by for one in values[at]]
                return dataclasses.replace(row, **dict[str, Any]({name: tuple(one) for name, one in cells.items()}))

            return changed(evidence, change)

        return moved

    return lever


def _layer(at: int) -> Chosen:
    def chosen(rows: Rows, _limits: object) -> Collection[str]:
        layer = list(dict.fromkeys(row.layer for row in rows if row.layer))[at]
        return {row.tensor for row in rows if row.layer == layer}

    return chosen


def _last(asked: Callable[[TensorCourse, Any], object]) -> Chosen:
    def chosen(rows: Rows, limits: Any) -> Collection[str]:
        judged = (
            row
            for row in rows
            if row.role is not Role.KEY_BIAS and not listed(row.tensor, getattr(limits, "exempt", ()))
        )
        return [row.tensor for row in judged if asked(row, limits)][-1:]

    return chosen


def _laggards(rows: Rows, limits: Any) -> Collection[str]:
    layers = list(dict.fromkeys(row.layer for row in rows if row.layer and layer_norms.path(row) is not None))
    few = layers[-math.floor(len(layers) * (1 - limits.at_least)) - 1 :]
    return {row.tensor for row in rows if row.layer in few}


GRADIENTS = ("grad", "grad_used")
_UP: Factor = lambda by, _: by  # noqa: E731
_DOWN: Factor = lambda by, _: 1 / by  # noqa: E731
_BY_THE_BOUND: Factor = lambda by, limits: by if limits.at_most is not None else 1 / by  # noqa: E731
_MATRICES: Chosen = lambda rows, _: {row.tensor for row in layer_norms.matrices(rows)}  # noqa: E731
_SILENT = _lever(GRADIENTS, _layer(-1), lambda by, _: float(by < 2))
_LAYERS = {"a layer down": _lever(GRADIENTS, _layer(-1), _DOWN), "a layer up": _lever(GRADIENTS, _layer(0), _UP)}
_OFFENDS = _last(lambda row, _: any(row.grad) and row.role not in layer_norms.SPARSE)
_MOVED = _last(lambda row, limits: len(layer_norms.moves(row)) >= limits.in_a_row)
RULES = (
    # Gradients between layers.
    LayerRule(name="gradient-reach", figure=layer_norms.reach, code="uneven", must=("at most",), bound=30.0, ge=1,
              layers=2, doc="how many times the gradient of a layer is that of another", levers=_LAYERS),
    LayerRule(name="vanishing-gradients", figure=layer_norms.vanishing, code="vanishing", must=("below",), bound=100.0,
              ge=1, layers=2, options=FIVE_TIMES, levers=_LAYERS,
              doc="how many times the gradient of a layer is that of another"),
    LayerRule(name="silent-layers", figure=layer_norms.silence, code="silent", must=("at most",), bound=4, ge=0,
              layers=1, levers={"a layer to zero": _SILENT},
              doc="the number of steps in a row without a gradient of a layer"),
    LayerRule(name="pinched-layers", figure=layer_norms.pinch, code="pinched", must=("at most",), bound=3.0, ge=1,
              layers=3, doc="how many times the gradients of both neighbours are that of a layer",
              levers={"a layer between two down": _lever(GRADIENTS, _layer(1), _DOWN)}),
    LayerRule(name="clip-offender", figure=layer_norms.offender, code="one-offender", must=("at most",), bound=0.5,
              ge=0, le=1, doc="the share of the steps that are clipped for one tensor",
              levers={"a tensor up": _lever(("grad",), _OFFENDS, _UP)}),
    LayerRule(name="gradient-to-weight", figure=layer_norms.gradient_share, code="out-of-range", ge=0,
              must=("at most", "at least"), doc="the gradient of a matrix over its weight, at the middle of all",
              levers={"all matrices": _lever(GRADIENTS, _MATRICES, _BY_THE_BOUND)}),
    # Single tensors.
    LayerRule(name="faint-gradients", figure=layer_norms.faintest, code="faint", must=("above",), bound=1e-10, ge=0,
              min_steps=5, options=FIVE_TIMES, spares=(Role.KEY_BIAS,),
              doc="the gradient of the tensor that gets least",
              levers={"a tensor down": _lever(GRADIENTS, _last(lambda *_: True), _DOWN)}),
    LayerRule(name="moving-tensors", figure=layer_norms.least_move, code="stuck", must=("at least",), bound=1e-9, ge=0,
              min_steps=5, options=FIVE_TIMES, spares=(Role.KEY_BIAS,), doc="the share by which a tensor moves",
              levers={"a tensor down": _lever(("update",), _MOVED, _DOWN)}),
    # Updates.
    LayerRule(name="contributing-layers", figure=layer_norms.contributing, code="few-contribute", must=("at least",),
              bound=0.8, ge=0, le=1, layers=2, options=OF_MEAN, doc="the share of the layers that move",
              levers={"some layers down": _lever(("update",), _laggards, _DOWN)}),
    LayerRule(name="moving-matrices", figure=layer_norms.matrix_share, code="left-behind", must=("at least",),
              bound=0.1, ge=0, doc="how far matrices go beside embeddings and norms",
              levers={"matrices down": _lever(("update",), _MATRICES, _DOWN)}),
    LayerRule(name="update-jump", figure=layer_norms.update_rise, code="jumped", must=("at most",), bound=5.0, ge=0,
              options=JUMPS, doc="the updates of a step over those before it",
              levers={"the last up": _lever(("update",), _MATRICES, _UP, slice(-1, None))}),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
