"""Weaken every figure, one place of its source each: an example of a rule over it, a trial or its rows must notice.

A rule's levers ask the figure itself, so that its examples are the second source. How many weakenings nobody can notice
is counted for each figure, exactly: they mean the same for all that can be measured.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.gates.mutation import called_by_judge, mutants
from tests.gates.test_row_by_row import parts
from tests.gates.test_weakened_judges import noticed, shown

from weighbridge.clauses.kind import Kind
from weighbridge.figures.figure import Figure, FigureValue
from weighbridge.gates import MODULES, OWN

# By module: looks that only save time, one of the worst kept too many, a worst spike that is the highest, too; a text
# that sorts like no other; a row that is never longer than it may be; a figure before there are samples enough; a peak.
SILENT: Mapping[str, int] = {"references": 6, "trailing": 9}


def rules() -> dict[types.ModuleType, dict[str, list[str]]]:
    """Return the kinds over each figure, by the figure's module."""
    found: dict[types.ModuleType, dict[str, list[str]]] = {}
    for name, kind in OWN.items():
        for figure, value in vars(importlib.import_module(f"weighbridge.gates.{MODULES[name]}")).items():
            if isinstance(value, Figure) and value is kind.figure:
                figures = importlib.import_module(value.compute.__module__)
                found.setdefault(figures, {}).setdefault(figure, []).append(name)
    return found


@functools.cache
def compiled(module: types.ModuleType) -> types.CodeType:
    return compile(inspect.getsource(module), "<weakened>", "exec")


def over(weak: types.ModuleType, figures: types.ModuleType, kind: str, monkeypatch: pytest.MonkeyPatch) -> Kind[object]:
    """Return a kind whose figures are those of a weakened module; the kinds of one module are made once."""
    module = importlib.import_module(f"weighbridge.gates.{MODULES[kind]}")
    remade: dict[types.ModuleType, types.ModuleType] = vars(weak).setdefault("remade", {})
    if module not in remade:
        again = remade[module] = types.ModuleType(f"{module.__name__}_weakened")
        monkeypatch.setitem(sys.modules, again.__name__, again)
        monkeypatch.setitem(sys.modules, figures.__name__, weak)
        exec(compiled(module), again.__dict__)
    again = remade[module]
    made: Kind[object] = again.KIND[kind] if isinstance(again.KIND, dict) else again.KIND
    return made


WRONG: Mapping[str, Callable[[float], float]] = {
    "1 % more": lambda value: value + max(abs(value), 1.0) * 0.01,
    "1 % less": lambda value: value - max(abs(value), 1.0) * 0.01,
    "the other sign": lambda value: -value,
}


@pytest.mark.exhaustive
def test_a_figure_that_is_off_is_noticed_by_every_rule_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = []
    for module, figures in rules().items():
        for figure, kinds in figures.items():
            for what, off in WRONG.items():
                right = vars(module)[figure]

                def compute(*inputs: Any, right: Figure = right, off: Callable[[float], float] = off) -> FigureValue:
                    found = right(*inputs)
                    return found._replace(value=off(found.value))

                weak = types.ModuleType(module.__name__)
                vars(weak).update(vars(module), **{figure: dataclasses.replace(right, compute=compute)})
                with monkeypatch.context() as patched:
                    weakened = {kind: over(weak, module, kind, patched) for kind in kinds}
                silent += [f"{kind}: {what}" for kind in kinds if not noticed(weakened[kind], shown(OWN[kind]))]
    assert silent == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("module", list(rules()), ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_weakened_figure_is_noticed_by_a_rule_over_it(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [kind for over_one in rules()[module].values() for kind in over_one]
    judged = {kind: shown(OWN[kind]) for kind in kinds}
    silent = []
    for what, weak in mutants(module, called_by_judge(module, tuple(rules()[module]))):
        with monkeypatch.context() as patched:
            found = ((kind, over(weak, module, kind, patched)) for kind in kinds)
            if not any(noticed(weakened, judged[kind]) or parts(kind, weakened) for kind, weakened in found):
                silent.append(what)
    assert len(silent) == SILENT.get(module.__name__.rpartition(".")[2], 0), silent
