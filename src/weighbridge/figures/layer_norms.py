"""Figures of the norms of tensors over the steps at which a recorder looked, between layers and of tensors."""

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weighbridge.core import Series, grouped
from weighbridge.figures.figure import FigureValue, figure, middle, ratio
from weighbridge.figures.references import lasting
from weighbridge.figures.trailing import jump
from weighbridge.quantities.tensors import Role, TensorCourse

Table: TypeAlias = Sequence[TensorCourse]
ByStep: TypeAlias = Mapping[int, float]
SPARSE = (Role.EMBEDDING, Role.HEAD)  # which have most of the norm in healthy models, too
MOST = math.sqrt(0.5)  # of the norm of all: more is most of its square
CLIPPED = 0.999  # of the norm that arrived: what was used is less where it was clipped
IDLE_GRADIENT = 1e-7  # no more of a gradient, and an optimizer's eps may keep a tensor where it is
NAMED = 3  # tensors that get no gradient, of all


def steps_of(rows: Table, _limits: object = None) -> int:
    """Return at how many steps tensors were looked at."""
    return len({step for row in rows for step in row.step})


def used(row: TensorCourse) -> Sequence[float]:
    """Return the gradients as updates used them, whatever was done to them before; none at all is 0."""
    return [one or 0.0 for one in (row.grad if row.grad_used.count(None) == len(row.step) else row.grad_used)]


def arrived(row: TensorCourse) -> Sequence[float]:
    """Return the gradients as they arrived, or as they were used where nobody saw that."""
    return [one or 0.0 for one in (row.grad_used if row.grad.count(None) == len(row.step) else row.grad)]


def together(rows: Table) -> Mapping[str, ByStep]:
    """Return the norm of the gradients of each layer by step."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        layer = found.setdefault(row.layer, {})
        for step, value in zip(row.step, used(row), strict=True):
            layer[step] = math.hypot(layer.get(step, 0.0), value)
    return {layer: by_step for layer, by_step in found.items() if layer}


def reaches(rows: Table) -> list[tuple[float, int, str, str]]:
    """Return of each step how many times the gradient of one layer is that of another, and which these are."""
    layers, found = together(rows), list[tuple[float, int, str, str]]()
    for step in sorted({step for one in layers.values() for step in one}):
        there = [(by_step[step], layer) for layer, by_step in layers.items() if step in by_step]
        (least, weakest), (most, strongest) = min(there), max(there)
        found.append((most / least if least else math.inf, step, weakest, strongest))
    return found


@figure("upper median over steps of the largest / the least gradient norm of a layer", samples=steps_of)
def reach(rows: Table, _limits: object) -> FigureValue:
    """Return how many times the gradient of the strongest layer is that of the weakest, and where."""
    found = sorted(reaches(rows))
    value, step, weakest, strongest = found[len(found) // 2]
    return FigureValue(value, {"step": step, "weakest": weakest, "strongest": strongest})


@figure("what the largest / the least gradient norm of a layer reaches in `in_a_row` steps in a row", samples=steps_of)
def vanishing(rows: Table, limits: Any) -> FigureValue:
    """Return how many times one layer's gradient is that of another in so many steps in a row, and where."""
    found = reaches(rows)
    worst = lasting(Series([one[1] for one in found], [one[0] for one in found]), limits, min, max)
    weakest, strongest = next(one[2:] for one in found if one[1] == worst.more["step"])
    return FigureValue(worst.value, {**worst.more, "weakest": weakest, "strongest": strongest})


@figure("most steps in a row at which the gradient of one layer is exactly 0", unit="steps", samples=steps_of)
def silence(rows: Table, _limits: object) -> FigureValue:
    """Return for how many steps in a row no gradient reached a layer, at most, which one, and until when."""
    found = [(0, "", 0)]
    for layer, by_step in together(rows).items():
        for zero, run in itertools.groupby(sorted(by_step.items()), key=lambda one: one[1] == 0):
            steps = [step for step, _ in run]
            found += [(len(steps), layer, steps[-1])] if zero else []
    count, layer, last = max(found, key=operator.itemgetter(0))
    return FigureValue(count, {"layer": layer or "none", "step": last})


@figure("the least over tensors of the largest of the last `in_a_row` gradient norms", samples=steps_of)
def faintest(rows: Table, limits: Any) -> FigureValue:
    """Return the largest of the last gradients of the tensor that gets least, and which ones get no more."""
    found = [(max(used(row)[-limits.in_a_row :]), row) for row in rows]
    value, row = min(found, key=operator.itemgetter(0))
    least = [one.tensor for most, one in found if most == value]
    named = ", ".join(least[:NAMED]) + (", …" if len(least) > NAMED else "")
    counts = {"least": len(least), "named": named, "tensors": len(rows), "in_a_row": limits.in_a_row}
    return FigureValue(value, {"tensor": row.tensor, "role": row.role, **counts})


def moves(row: TensorCourse) -> list[tuple[int, float]]:
    """Return by which share each step moved a tensor, where it had reason to: a gradient, and a learning rate."""
    known = zip(row.step, row.lr, used(row), row.weight, row.update, strict=True)
    return [
        (step, update / weight)
        for step, lr, grad, weight, update in known
        if lr and grad > IDLE_GRADIENT and weight and update is not None
    ]


def movable(rows: Table, limits: Any) -> int:
    """Return at how many steps a tensor had reason to move, at most."""
    return max((len(moves(row)) for row in rows), default=0)


@figure("the least over tensors of the largest of the last `in_a_row` updates / weight", samples=movable)
def least_move(rows: Table, limits: Any) -> FigureValue:
    """Return by which share the last updates moved the tensor that moves least, and which one that is."""
    last = [(moves(row)[-limits.in_a_row :], row) for row in rows]
    found = [
        (max(one for _, one in moved), moved[-1][0], row.tensor) for moved, row in last if len(moved) == limits.in_a_row
    ]
    value, step, tensor = min(found)
    return FigureValue(value, {"tensor": tensor, "step": step, "tensors": len(found), "in_a_row": limits.in_a_row})


def path(row: TensorCourse) -> float | None:
    """Return how far a tensor went, over the most that it was: a bias may be no more at first than its first update."""
    went, most = [one for one in row.update if one is not None], max(one or 0.0 for one in row.weight)
    return math.fsum(went) / most if went and row.weight[0] else None


def looked_along(rows: Table, _limits: object) -> int:
    """Return at how many steps it is known how far tensors went."""
    return len({step for row in rows if path(row) is not None for step in row.step})


@figure("layers whose tensors went more than `of_mean` of the mean of all layers / layers", samples=looked_along)
def contributing(rows: Table, limits: Any) -> FigureValue:
    """Return the share of the layers that move with the others, and the one that moves least."""
    paths = grouped((row.layer, went) for row in rows if row.layer and (went := path(row)) is not None)
    layers = sorted((middle(sorted(one)), layer) for layer, one in paths.items())
    usual = math.fsum(went for went, _ in layers) / len(layers)  # a median is small where most do not move
    count = sum(went > limits.of_mean * usual for went, _ in layers)
    more = {"layers": len(layers), "count": count, "layer": layers[0][1], "least": layers[0][0], "usual": usual}
    more |= {"of_mean": limits.of_mean}
    return FigureValue(count / len(layers), more)


def looked_along_both(rows: Table, _limits: object) -> int:
    """Return the same, where there are matrices, and embeddings or norms."""
    roles = {row.role for row in rows if path(row) is not None}
    both = Role.MATRIX in roles and not roles.isdisjoint({Role.EMBEDDING, Role.NORM})
    return looked_along(rows, None) if both else 0


@figure("median path of matrices / median path of embeddings and norms", samples=looked_along_both)
def matrix_share(rows: Table, _limits: object) -> FigureValue:
    """Return how far matrices went beside embeddings and norms, at the middle of each."""
    paths = [(went, row) for row in rows if (went := path(row)) is not None]
    core = sorted(went for went, row in paths if row.role is Role.MATRIX)
    rest = sorted(went for went, row in paths if row.role in (Role.EMBEDDING, Role.NORM))
    at = {"matrices": middle(core), "others": middle(rest)}
    return FigureValue(ratio(at["matrices"], at["others"]), at)


@figure(
    "the upper median over steps of the deepest pinch: the lesser neighbour / a layer between two", samples=steps_of
)
def pinch(rows: Table, _limits: object) -> FigureValue:
    """Return how many times the gradients of both neighbours are that of the layer between them, at most."""
    layers, found = list(together(rows).items()), list[tuple[float, str, int]]()
    for (_, before), (layer, here), (_, after) in zip(layers, layers[1:], layers[2:], strict=False):
        shared = sorted(before.keys() & here.keys() & after.keys())
        ratios = sorted((min(before[at], after[at]) / here[at] if here[at] else math.inf, at) for at in shared)
        found += [(ratios[len(ratios) // 2][0], layer, ratios[len(ratios) // 2][1])] if ratios else []
    value, layer, step = max(found)
    return FigureValue(value, {"layer": layer, "step": step})


def seen_arriving(rows: Table, _limits: object) -> int:
    """Return at how many steps somebody saw gradients as they arrived."""
    return len({step for row in rows for step, one in zip(row.step, row.grad, strict=True) if one is not None})


@figure("clipped steps in which one and the same tensor has most of the squared norm / steps", samples=seen_arriving)
def offender(rows: Table, _limits: object) -> FigureValue:
    """Return the share of the steps that were clipped for one tensor, which one, and how many were clipped at all."""
    sums: dict[int, tuple[float, float]] = {}
    tops: dict[int, tuple[float, str]] = {}
    for row in rows:
        for step, grad, clipped in zip(row.step, arrived(row), used(row), strict=True):
            whole, left = sums.get(step, (0.0, 0.0))
            sums[step] = math.hypot(whole, grad), math.hypot(left, clipped)
            tops[step] = max(tops.get(step, (0.0, "")), (grad, "" if row.role in SPARSE else row.tensor))
    few = [step for step, (whole, left) in sums.items() if left < CLIPPED * whole]
    most = [tops[step][1] for step in few if tops[step][0] > MOST * sums[step][0]]
    top = max(sorted(set(filter(None, most))), key=most.count, default="none")
    return FigureValue(most.count(top) / len(sums), {"tensor": top, "clipped": len(few), "count": most.count(top)})


def matrices(rows: Table) -> Table:
    """Return the tensors that are matrices by their names."""
    return [row for row in rows if row.role is Role.MATRIX]


def matrix_steps(rows: Table, _limits: object) -> int:
    """Return at how many steps a matrix had a weight to compare its gradient with."""
    return len({step for row in matrices(rows) for step, one in zip(row.step, row.weight, strict=True) if one})


@figure("median over matrices of the median over steps of gradient / weight", samples=matrix_steps)
def gradient_share(rows: Table, _limits: object) -> FigureValue:
    """Return the gradient of a matrix over its weight, at the middle of all, and how many there are."""
    of = [sorted(g / w for g, w in zip(arrived(row), row.weight, strict=True) if w) for row in matrices(rows)]
    found = sorted(middle(one) for one in of if one)
    return FigureValue(middle(found), {"matrices": len(found), "least": found[0], "most": found[-1]})


def typical_moves(rows: Table) -> Series:
    """Return of each step the median share by which it moved a matrix."""
    by_step = grouped(move for row in matrices(rows) for move in moves(row))
    return Series(sorted(by_step), [middle(sorted(by_step[step])) for step in sorted(by_step)])


@figure("largest of median update / weight over the median of the window before it",
        samples=lambda rows, limits: jump.samples(typical_moves(rows), limits))  # fmt: skip
def update_rise(rows: Table, limits: Any) -> FigureValue:
    """Return how many times the updates of a step are those before it, at most, and where."""
    return jump(typical_moves(rows), limits)
