"""Blind an instrument: freeze its answer, cut its answer or its look, or cut a loop of its source short."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from tests.gates.mutation import called_by_judge

from weighbridge.core.model import Fields, Measurement, Rows, Series, Unmeasured
from weighbridge.verifiers.verifier import Verifier, Views

Measured = Measurement | Unmeasured
Measure = Callable[[Views, Fields], Measured]
Blinding = Callable[[Measure], Measure]

# --- Answers: they say that all was looked at -------------------------------------------------------------------------


def frozen(measure: Measure) -> Measure:
    """Answer the first measurement for ever."""
    kept: list[Measured] = []

    def look(views: Views, options: Fields) -> Measured:
        if not kept:
            kept.append(measure(views, options))
        return kept[0]

    return look


def keeping(part: slice) -> Blinding:
    """Keep the answer of some places."""
    return lambda measure: lambda views, options: _changed(measure(views, options), lambda items: items[part])


def repeating(at: int) -> Blinding:
    """Say of every place what is found at one."""
    return lambda measure: lambda views, options: _changed(measure(views, options), lambda items: items[at])


def _renamed(row: Any, key: str, place: str) -> Any:
    return dataclasses.replace(row, **{key: place})


def _changed(found: Measured, change: Callable[[Any], Any]) -> Measured:
    if not isinstance(found, Measurement):
        return found
    match found.value:
        case Rows(key, rows):
            kept = change(rows)
            same = kept if isinstance(kept, tuple) else tuple(_renamed(kept, key, getattr(row, key)) for row in rows)
            return dataclasses.replace(found, value=Rows(key, same))
        case Series(step, values):
            less = change(values)
            if isinstance(less, float):
                return dataclasses.replace(found, value=Series(step, [less] * len(values)))
            return dataclasses.replace(found, value=Series(change(step), less))
    return found


PARTS = {
    "the first place only": slice(1),
    "the last place only": slice(-1, None),
    "all but the last place": slice(-1),
    "all but the first place": slice(1, None),
}
ANSWERS: dict[str, Blinding] = {
    **{how: keeping(part) for how, part in PARTS.items()},
    "the first place for all": repeating(0),
    "the last place for all": repeating(-1),
}

# --- Looks ------------------------------------------------------------------------------------------------------------


def seeing(look: Callable[[Any], Any]) -> Blinding:
    """Measure a part of every view."""
    return lambda measure: lambda views, options: measure(tuple(look(view) for view in views), options)


def rows(part: slice) -> Blinding:
    return seeing(lambda view: view.cut(list(range(view.rows))[part]))


def columns(part: slice) -> Blinding:
    def look(view: Any) -> Any:
        names = ["step", *[name for name in view.cells if name != "step"][part]]
        return dataclasses.replace(view, cells={name: view.cells[name] for name in names})

    return seeing(look)


def events(part: slice) -> Blinding:
    return seeing(lambda view: view.with_events(list(view.events)[part]))


def tensors(part: slice) -> Blinding:
    return seeing(lambda view: view.cut(view.names()[part]))


def of_places(what: Callable[[slice], Blinding], name: str) -> dict[str, Blinding]:
    return {how.replace("place", name): what(part) for how, part in PARTS.items()}


# --- Loops of the source ----------------------------------------------------------------------------------------------


def short_sighted(verifier: types.ModuleType, helper: str = "") -> Iterator[tuple[str, Verifier]]:
    """End one loop of an instrument, or of a module that it measures with, after its first turn.

    `helper` may end in `:word`, so that only functions whose names begin with the word are weakened.
    """
    helper, _, word = helper.partition(":")
    module = importlib.import_module(f"weighbridge.{helper}") if helper else verifier
    tree = ast.parse(inspect.getsource(module))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith(word)]
    functions = names if helper else [*called_by_judge(verifier, ["measure"]), *_methods(tree)]
    seen: dict[str, int] = {}
    for index, node in enumerate(ast.walk(tree)):
        if not isinstance(node, (ast.For, ast.comprehension)) or _holder(tree, node) not in functions:
            continue
        weakened = copy.deepcopy(tree)
        loop: Any = list(ast.walk(weakened))[index]
        loop.iter = ast.parse(f"list({ast.unparse(loop.iter)})[:1]", mode="eval").body
        name = f"{_holder(tree, node)}: {ast.unparse(node).strip().partition(chr(10))[0]}"
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}", _verifier(weakened, module, verifier)


def _methods(tree: ast.Module) -> list[str]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [node.name for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]


def _holder(tree: ast.Module, node: ast.AST) -> str:
    holders = [item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef) and node in ast.walk(item)]
    return holders[0].name if holders else ""


def _verifier(tree: ast.Module, module: types.ModuleType, verifier: types.ModuleType) -> Verifier:
    weakened = _run(tree, module.__name__)
    if module is not verifier:
        room, _, short = module.__name__.rpartition(".")
        package = sys.modules[room]
        sys.modules[module.__name__] = weakened
        setattr(package, short, weakened)
        try:
            weakened = _run(ast.parse(inspect.getsource(verifier)), verifier.__name__)
        finally:
            sys.modules[module.__name__] = module
            setattr(package, short, module)
    found: Verifier = weakened.VERIFIER
    return found


def _run(tree: ast.Module, name: str) -> types.ModuleType:
    weakened = types.ModuleType(f"{name}_weakened")
    sys.modules[weakened.__name__] = weakened
    exec(compile(ast.fix_missing_locations(tree), "<blind>", "exec"), weakened.__dict__)
    return weakened
