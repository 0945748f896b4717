"""Weaken a gate kind's judge by hand, one clause at a time, and tell whether the trials notice.

A mutant is unnoticed when every measurement that passed still passes and every trial of it is caught or does not apply.
"""

from __future__ import annotations

import ast
import copy
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weighbridge.gates.base import Kind
from weighbridge.judging import falsify
from weighbridge.limits import read
from weighbridge.model import Measurement, Outcome, Rows, TrialResult

Passing = tuple[Mapping[str, object], Mapping[str, Measurement]]  # limits as in a contract, evidence by need

SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.In: (ast.NotIn,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}


def table(rows: Iterable[Mapping[str, Any]]) -> dict[str, Measurement]:
    kept = tuple(dict(row) for row in rows)
    value = Rows("name", kept)
    measured = Measurement(quantity="tensor_pairs", value=value, by="test", examined=len(kept), total=len(kept))
    return {"pairs": measured}


def mutants(module: types.ModuleType, functions: Sequence[str]) -> dict[str, Kind[Any]]:
    """Build every weakened kind, by `function:line what`."""
    tree = ast.parse(inspect.getsource(module))
    found: dict[str, Kind[Any]] = {}
    for function in functions:
        at = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and node.name == function)
        for what, body in _changed(tree.body[at]):
            mutant = copy.copy(tree)
            mutant.body = [*tree.body[:at], body, *tree.body[at + 1 :]]
            found[f"{function} {len(found)} {what}"] = _kind(mutant, module)
    return found


def _kind(tree: ast.Module, module: types.ModuleType) -> Kind[Any]:
    weakened = types.ModuleType(module.__name__)
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec"), weakened.__dict__)
    kind: Kind[Any] = weakened.KIND
    return kind


def _changed(function: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    for index, node in enumerate(ast.walk(function)):
        for what, change in _changes(node):
            weakened = copy.deepcopy(function)
            change(list(ast.walk(weakened))[index])
            line = ast.unparse(node).partition("\n")[0]
            yield f"{what}: {line}", weakened


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    match node:
        case ast.If() | ast.IfExp():
            yield "never", lambda n: setattr(n, "test", ast.Constant(False))
            yield "always", lambda n: setattr(n, "test", ast.Constant(True))
        case ast.Compare(ops=[op]):
            for swap in SWAPS.get(type(op), ()):
                yield swap.__name__, lambda n, swap=swap: setattr(n, "ops", [swap()])
        case ast.BoolOp(op=op, values=values):
            neutral = ast.Constant(isinstance(op, ast.And))
            for at in range(len(values)):
                yield f"without operand {at}", lambda n, at=at: n.values.__setitem__(at, neutral)
        case ast.UnaryOp(op=ast.Not()):
            yield "without not", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
        case ast.comprehension():
            yield from _shortened(node)
        case ast.Call(func=ast.Name(id="any")):
            yield "all", lambda n: setattr(n.func, "id", "all")


def _shortened(node: ast.comprehension) -> Iterator[tuple[str, Any]]:
    if node.ifs:
        yield "without its filter", lambda n: n.ifs.clear()
    first, last = ast.Slice(upper=ast.Constant(1)), ast.Slice(lower=ast.Constant(-1))
    for what, part in (("first only", first), ("last only", last)):
        yield what, lambda n, part=part: setattr(n, "iter", _part(n.iter, part))


def _part(iterated: ast.expr, part: ast.Slice) -> ast.expr:
    listed = ast.Call(ast.Name("list", ast.Load()), [iterated], [])
    return ast.Subscript(listed, part, ast.Load())


def unnoticed(kind: Kind[Any], passing: Sequence[Passing]) -> bool:
    """Tell whether a weakened kind gets through all its trials on every measurement that passes."""
    return all(_gets_through(kind, limits, evidence) for limits, evidence in passing)


def _gets_through(kind: Kind[Any], given: Mapping[str, object], evidence: Mapping[str, Measurement]) -> bool:
    limits = read(kind.limits, given)
    try:
        verdict = kind.judge(evidence, limits)
        if verdict.outcome is not Outcome.PASS:
            return False
        trials = list(falsify(kind, evidence, limits, verdict))
    except Exception:
        return False
    caught = any(trial.kind == "falsifier" and trial.result is TrialResult.CAUGHT for trial in trials)
    return caught and all(trial.result is not TrialResult.SURVIVED for trial in trials)
