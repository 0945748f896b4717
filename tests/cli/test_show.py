"""show prints what can be copied: a starter contract as it ships, and what any contract comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from weighbridge.contract.load import builtin_names, load_contract
from weighbridge.core.data import data_path

CHILD = """\
weighbridge: contract/v0
id: mine
version: 1.0.0
extends: builtin:model-import
params: {policy: "rounded:F16"}
"""


@pytest.mark.parametrize("name", builtin_names())
def test_a_starter_contract_is_printed_as_it_ships(cli: Cli, name: str) -> None:
    assert cli("show", f"builtin:{name}").out == (data_path("contracts") / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", builtin_names())
def test_what_a_contract_comes_to_stands_on_its_own_and_promises_the_same(cli: Cli, workplace: Path, name: str) -> None:
    (workplace / "resolved.yaml").write_text(cli("show", f"builtin:{name}", "--resolved").out)
    resolved, shipped = load_contract("resolved.yaml"), load_contract(f"builtin:{name}")
    assert (resolved.contract.gates, resolved.contract.subjects) == (shipped.contract.gates, shipped.contract.subjects)
    assert resolved.warnings == ()


def test_every_value_says_where_it_is_written(cli: Cli, workplace: Path) -> None:
    (workplace / "mine.yaml").write_text(CHILD)
    lines = [line.strip() for line in cli("show", "mine.yaml", "--resolved").lines]
    assert "id: mine  # mine.yaml:2" in lines
    assert "policy: rounded:F16  # mine.yaml:5" in lines
    assert "- id: GATE-MODEL-001  # builtin:model-import:13" in lines
    assert "map: auto  # default" in lines


def test_without_a_name_the_starter_contracts_are_listed(cli: Cli) -> None:
    assert [line.split()[0] for line in cli("show").lines] == [f"builtin:{name}" for name in builtin_names()]


def test_what_is_not_there_is_reported(cli: Cli) -> None:
    printed = "unknown-builtin no contract 'model-imprt' ships with weighbridge; did you mean 'model-import'?\n"
    assert (cli("show", "builtin:model-imprt").code, cli("show", "builtin:model-imprt").err) == (2, printed)
    assert cli("show", "nothing.yaml").code == 2
