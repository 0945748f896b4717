"""Weaken functions of a module by their source, one place at a time."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weighbridge.core.model import Measurement

Passing = tuple[Mapping[str, object], Mapping[str, Measurement]]  # limits as in a contract, evidence by need
Change = tuple[str, Any]  # what changes, and how to change the node

SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq, ast.Gt, ast.Lt),
    ast.Lt: (ast.LtE,),
    ast.LtE: (ast.Lt,),
    ast.Gt: (ast.GtE,),
    ast.GtE: (ast.Gt,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
OTHER_CALL = {"any": "all", "all": "any", "max": "min", "min": "max"}


def called_by_judge(module: types.ModuleType, entries: Sequence[str] = ("judge",)) -> list[str]:
    """Name every function of a module that its judge comes to call, the judge included."""
    tree = ast.parse(inspect.getsource(module))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reached, ahead = [], list(entries)
    while ahead:
        name = ahead.pop(0)
        if name in functions and name not in reached:
            reached.append(name)
            ahead += [node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)]
    return reached


def mutants(module: types.ModuleType, functions: Sequence[str]) -> Iterator[tuple[str, types.ModuleType]]:
    """Yield every module in which one place of one of these functions is weakened, by `function: what: where`."""
    tree = ast.parse(inspect.getsource(module))
    seen: dict[str, int] = {}
    for function in functions:
        at = next(i for i, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef) and node.name == function)
        for what, body in _changed(tree.body[at]):
            mutant = copy.copy(tree)
            mutant.body = [*tree.body[:at], body, *tree.body[at + 1 :]]
            name = f"{function}: {what}"
            seen[name] = seen.get(name, 0) + 1
            yield name if seen[name] == 1 else f"{name} #{seen[name]}", _run(mutant, module)


def _run(tree: ast.Module, module: types.ModuleType) -> types.ModuleType:
    weakened = types.ModuleType(f"{module.__name__}_weakened")
    sys.modules[weakened.__name__] = weakened  # where `read` looks for the types that its dataclasses name
    weakened.__dict__["a_little"] = a_little
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec"), weakened.__dict__)
    return weakened


def _changed(function: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    for index, node in enumerate(ast.walk(function)):
        for what, change in _changes(node):
            weakened = copy.deepcopy(function)
            change(list(ast.walk(weakened))[index])
            line = ast.unparse(node).strip().partition("\n")[0]
            yield f"{what}: {line}", weakened


def _changes(node: ast.AST) -> Iterator[Change]:
    yield from _conditions(node)
    yield from _terms(node)
    yield from _parts(node)


def _conditions(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If() | ast.IfExp():
            yield "never", lambda n: setattr(n, "test", ast.Constant(False))
            yield "always", lambda n: setattr(n, "test", ast.Constant(True))
        case ast.BoolOp(op=op, values=values):
            neutral = ast.Constant(isinstance(op, ast.And))
            for at in range(len(values)):
                yield f"without operand {at}", lambda n, at=at: n.values.__setitem__(at, neutral)
        case ast.UnaryOp(op=ast.Not()):
            yield "without not", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))


def _terms(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for swap in SWAPS.get(type(op), ()):
                    yield swap.__name__, lambda n, at=at, swap=swap: n.ops.__setitem__(at, swap())
            if len(ops) == 2:
                yield "without its lower bound", lambda n: n.__dict__.update(_half(n, 1))
                yield "without its upper bound", lambda n: n.__dict__.update(_half(n, 0))
        case ast.BinOp(op=ast.Add()):
            yield "the other sign", lambda n: setattr(n, "op", ast.Sub())
        case ast.BinOp(op=ast.Sub()):
            yield "the other sign", lambda n: setattr(n, "op", ast.Add())
        case ast.Attribute(value=ast.Name(id="limits"), attr=_):
            for sign in (1, -1):
                what = "a little more" if sign > 0 else "a little less"
                yield what, lambda n, sign=sign: setattr(n, "value", _moved(n.attr, sign))
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_CALL:
            yield OTHER_CALL[name], lambda n: setattr(n.func, "id", OTHER_CALL[n.func.id])


def _parts(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.comprehension(ifs=ifs):
            if ifs:
                yield "without its filter", lambda n: n.ifs.clear()
            yield from _shortened()
        case ast.For():
            yield from _shortened()
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for at, element in enumerate(elts):
                if isinstance(element, (ast.Starred, ast.Tuple)):
                    yield f"without {ast.unparse(element)}", lambda n, at=at: n.elts.pop(at)
        case ast.Expr(value=ast.Call()):
            yield "dropped", lambda n: setattr(n, "value", ast.Constant(None))


def _moved(limit: str, sign: int) -> ast.expr:
    call = ast.parse(f"a_little({limit!r}, {sign}, limits)", mode="eval")
    return call.body


def a_little(name: str, sign: int, limits: object) -> types.SimpleNamespace:
    """Give one limit a little off. One that is no number raises, and so does a judge that reads it."""
    value = getattr(limits, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(name)
    moved = value + sign if isinstance(value, int) else value * (1 + sign * 2.0**-40)
    return types.SimpleNamespace(**{name: moved})


def _half(compared: ast.Compare, at: int) -> dict[str, Any]:
    terms = (compared.left, *compared.comparators)
    return {"left": terms[at], "ops": [compared.ops[at]], "comparators": [terms[at + 1]]}


def _shortened() -> Iterator[Change]:
    first, last = ast.Slice(upper=ast.Constant(1)), ast.Slice(lower=ast.Constant(-1))
    for what, part in (("first only", first), ("last only", last)):
        yield what, lambda n, part=part: setattr(n, "iter", _part(n.iter, part))


def _part(iterated: ast.expr, part: ast.Slice) -> ast.expr:
    listed = ast.Call(ast.Name("list", ast.Load()), [iterated], [])
    return ast.Subscript(listed, part, ast.Load())
