"""What a family of kinds asks is shown once and run for each; a rule stays short for it."""

from __future__ import annotations

import ast
import dataclasses
import statistics
from typing import Any

import pytest

from weighbridge.cards import card_checks
from weighbridge.cards.card_checks import examples
from weighbridge.cards.words import gate_card, gate_path
from weighbridge.clauses.clause import ClauseJudge
from weighbridge.contract import strict_yaml
from weighbridge.core import data_path
from weighbridge.gates import KINDS, MODULES, OWN, ROWS

RULES = [name for name in OWN if OWN[name].figure is not None]
FAMILIES = {
    path.stem: strict_yaml.load(path.read_bytes(), where=path.name).data["examples"]
    for path in (data_path("gates") / "families").glob("*.yaml")
}


@pytest.mark.slow
def test_an_example_of_a_family_is_run_for_every_kind_that_comes_to_its_code() -> None:
    for name, kind in KINDS.items():
        asked = {code for family in kind.families for code in FAMILIES[family] if code in kind.codes}
        run = {example.name for example in examples(gate_card(name), kind) if example.shared}
        assert len(run) == sum(len(FAMILIES[one].get(code, ())) for one in kind.families for code in asked), name
    assert {family for kind in KINDS.values() for family in kind.families} == set(FAMILIES)


@pytest.mark.parametrize("code", ["out-of-order", "column-derived", "not-finite"])
def test_a_rule_that_forgot_what_its_family_asks_is_noticed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS["ends-at-best"]
    judge = kind.judge
    assert isinstance(judge, ClauseJudge)
    lax: ClauseJudge[Any] = ClauseJudge(lambda limits: tuple(one for one in judge.clauses(limits) if one.code != code))
    monkeypatch.setattr(card_checks, "KINDS", {**KINDS, kind.name: dataclasses.replace(kind, judge=lax)})
    wrong = {check.name for check in card_checks.check_gate_card(gate_card(kind.name)) if check.wrong}
    shown = {str(next(iter(body.values()))) for body in FAMILIES["run-columns"][code]}
    assert wrong & {f"{kind.name}: {name}" for name in shown}


def row_of(name: str, table: str) -> str:
    """Return the source of a rule that is a row of a table, and of the options that it names there."""
    tree = ast.parse(table)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = ((node, [*node.args, *(one.value for one in node.keywords)]) for node in calls)
    (row,) = (node for node, arguments in given if any(ast.unparse(one) == repr(name) for one in arguments))
    named = {one.id for one in ast.walk(row) if isinstance(one, ast.Name)}
    options: list[ast.stmt] = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name in named]
    for node in tree.body:
        bound = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if isinstance(node, ast.Assign) and bound & named and "settings(" in ast.unparse(node.value):
            options.append(node)
    return "\n".join(ast.get_source_segment(table, one) or "" for one in (row, *options))


def test_no_rule_is_longer_than_seventy_lines_with_its_card() -> None:
    def lines(name: str) -> int:
        code = (data_path("gates").parent / "src" / "weighbridge" / "gates" / f"{MODULES[name]}.py").read_text("utf-8")
        own = row_of(name, code) if MODULES[name] in ROWS else code
        return sum(len(text.splitlines()) for text in (own, gate_path(name).read_text("utf-8")))

    found = {name: lines(name) for name in RULES}
    assert {name: many for name, many in found.items() if many > 70} == {}
    assert statistics.median(found.values()) <= 45
