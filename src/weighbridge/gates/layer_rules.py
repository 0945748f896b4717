"""Rules over the norms of tensors that the recorder logs, a row each: what healthy runs keep between layers."""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, rows_of, settings
from weighbridge.core import Doc
from weighbridge.figures import layer_norms
from weighbridge.gates.channel_rules import IN_A_ROW
from weighbridge.gates.course_rules import JUMPS
from weighbridge.gates.of_layers import LAYERS, LayerRule, Lever, Rows, changed
from weighbridge.quantities.tensors import Role, TensorCourse

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
                    for index in [index for index, one in enumerate(values) if one][at]:
                        values[index] *= by
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
    LayerRule(name="faint-gradients", version=2, figure=layer_norms.faintest, code="faint", must=("above",),
              bound=1e-10, ge=0, min_steps=5, options=FIVE_TIMES, spares=(Role.KEY_BIAS,),
              doc="the gradient of the tensor that gets least",
              levers={"a tensor down": _lever(GRADIENTS, _last(lambda *_: True), _DOWN)}),
    LayerRule(name="moving-tensors", figure=layer_norms.least_move, code="stuck", must=("at least",), bound=1e-9, ge=0,
              min_steps=5, options=FIVE_TIMES, spares=(Role.KEY_BIAS,), doc="the share by which a tensor moves",
              levers={"a tensor down": _lever(("update",), _MOVED, _DOWN)}),
    # Updates.
    LayerRule(name="contributing-layers", version=2, figure=layer_norms.contributing, code="few-contribute",
              must=("at least",), bound=0.8, ge=0, le=1, layers=2, options=OF_MEAN,
              doc="the share of the layers that move",
              levers={"some layers down": _lever(("update",), _laggards, _DOWN)}),
    LayerRule(name="moving-matrices", version=2, figure=layer_norms.matrix_share, code="left-behind",
              must=("at least",), bound=0.1, ge=0, doc="how far matrices go beside embeddings and norms",
              levers={"matrices down": _lever(("update",), _MATRICES, _DOWN)}),
    LayerRule(name="update-jump", version=2, figure=layer_norms.update_rise, code="jumped", must=("at most",),
              bound=5.0, ge=0, options=JUMPS, doc="the updates of a step over those before it",
              levers={"the last up": _lever(("update",), _MATRICES, _UP, slice(-1, None))}),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
