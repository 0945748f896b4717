from __future__ import annotations

from pathlib import Path

import pytest

from weighbridge.contract.load import load_contract
from weighbridge.core.errors import ContractError
from weighbridge.core.model import Contract

TEXT = """\
weighbridge: contract/v0
id: times
version: 1.0.0
title: Steps of ${params.tokens} tokens
owner: o
params:
  budget: {type: number, default: 500, unit: ms}
  tokens: {type: integer, default: 2048}
  column: {type: string, default: wall_ms}
  flag: {type: boolean, default: true}
subjects:
  run: {kind: run}
gates:
  - id: G-1
    title: Under ${params.budget} ms, ${params.flag}
    kind: wall-time-budget
    subjects: {run: run}
    where: {tokens_per_step: "${params.tokens}", full: "${params.flag}"}
    measure: {column: "${params.column}"}
    with: {steps: [20, 49], below_ms: "${params.budget}"}
"""


def loaded(folder: Path, text: str = TEXT, **overrides: str) -> Contract:
    (folder / "c.yaml").write_text(text)
    return load_contract(folder / "c.yaml", overrides).contract


def refusal(folder: Path, text: str = TEXT, **overrides: str) -> list[str]:
    with pytest.raises(ContractError) as caught:
        loaded(folder, text, **overrides)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_whole_reference_keeps_its_type_and_one_inside_a_text_is_text(tmp_path: Path) -> None:
    contract = loaded(tmp_path)
    gate = contract.gates[0]
    assert contract.title == "Steps of 2048 tokens"
    assert gate.title == "Under 500 ms, true"
    assert gate.where == {"tokens_per_step": 2048, "full": True}
    assert gate.measure == {"column": "wall_ms"}
    assert gate.limits["below_ms"] == 500.0


def test_an_override_is_typed_and_recorded(tmp_path: Path) -> None:
    contract = loaded(tmp_path, budget="1e2", tokens="512", flag="false", column="2")
    assert contract.params == {"budget": 100.0, "tokens": 512, "column": "2", "flag": False}
    assert contract.overridden == ("budget", "column", "flag", "tokens")
    assert contract.gates[0].limits["below_ms"] == 100.0
    assert contract.gates[0].measure == {"column": "2"}


def test_an_override_can_never_become_structure(tmp_path: Path) -> None:
    contract = loaded(tmp_path, column="x}\n    severity: advisory #")
    assert contract.gates[0].measure == {"column": "x}\n    severity: advisory #"}


def test_a_reference_inside_a_value_is_not_followed(tmp_path: Path) -> None:
    assert loaded(tmp_path, column="${params.flag}").gates[0].measure == {"column": "${params.flag}"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("budget", "fast", "--param budget: wrong-type 'fast' is not of the type number\n  give another value"),
        ("budget", "nan", "--param budget: wrong-type 'nan' is not of the type number\n  give another value"),
        ("budget", "1e999", "--param budget: wrong-type '1e999' is not of the type number\n  give another value"),
        ("budget", ".", "--param budget: wrong-type '.' is not of the type number\n  give another value"),
        ("tokens", "1.5", "--param tokens: wrong-type '1.5' is not of the type integer\n  give another value"),
        ("flag", "yes", "--param flag: wrong-type 'yes' is not of the type boolean\n  give another value"),
        (
            "budgt",
            "1",
            "--param budgt=1: unknown-param 'budgt' is no parameter of this contract; did you mean 'budget'?",
        ),
        ("budget", "0", "--param budget=0: out-of-bounds 0.0 is not > 0"),
    ],
)
def test_a_wrong_override_is_reported(tmp_path: Path, name: str, value: str, message: str) -> None:
    assert refusal(tmp_path, **{name: value}) == [message]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("${params.budgt}", "'${params.budgt}' refers to no parameter; did you mean 'params.budget'?"),
        ("${budget}", "'${budget}' refers to no parameter; did you mean 'params.budget'?"),
        ("${params.budget", "'${params.budget' refers to no parameter; did you mean 'params.budget'?"),
        ("${}", "'${}' refers to no parameter; known: params.budget, params.column, params.flag, params.tokens"),
        (
            "${env.HOME}",
            "'${env.HOME}' refers to no parameter; known: params.budget, params.column, params.flag, params.tokens",
        ),
    ],
)
def test_what_names_no_parameter_is_unresolved_at_its_place(tmp_path: Path, found: str, message: str) -> None:
    text = TEXT.replace('below_ms: "${params.budget}"', f'below_ms: "{found}"')
    remedy = "\n  write ${params.NAME} for a name under params:"
    assert refusal(tmp_path, text) == [f"c.yaml:20:39: unresolved {message}{remedy}"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('{type: number, default: "500"}', "c.yaml:7:35: wrong-type the default of 'budget' is not of the type number"),
        ("{type: number, default: true}", "c.yaml:7:35: wrong-type the default of 'budget' is not of the type number"),
        (
            "{type: float, default: 1}",
            "c.yaml:7:18: unknown-choice 'float' is not one of number, integer, string, boolean, list",
        ),
        ("{type: number}", "c.yaml:7:11: missing-key missing key 'default'"),
        ("{type: number, default: .inf}", "c.yaml:7:35: out-of-bounds inf is not finite"),
    ],
)
def test_a_wrong_declaration_is_reported_once(tmp_path: Path, declared: str, message: str) -> None:
    assert refusal(tmp_path, TEXT.replace("{type: number, default: 500, unit: ms}", declared)) == [message]


def test_an_unused_parameter_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(TEXT.replace("  flag:", "  spare: {type: integer, default: 1}\n  flag:"))
    warnings = load_contract(tmp_path / "c.yaml").warnings
    assert [str(warning).replace(f"{tmp_path}/", "") for warning in warnings] == [
        "c.yaml:10:3: warning: unused-param nothing uses the parameter 'spare'\n  delete it, or use it"
    ]


def test_what_a_gate_is_cannot_hang_on_a_parameter(tmp_path: Path) -> None:
    text = TEXT.replace("kind: wall-time-budget", 'kind: "${params.column}"')
    assert refusal(tmp_path, text)[0].startswith("c.yaml:16:11: unknown-kind there is no gate kind '${params.column}'")


LISTS = """\
weighbridge: contract/v0
id: globs
version: 1.0.0
title: All of ${params.points}
owner: o
params:
  points: {type: list, default: "*"}
  others: {type: list, default: ""}
subjects: {a: {kind: model}, b: {kind: model}}
gates:
  - id: G-1
    title: Alike
    kind: forward-parity
    subjects: {reference: a, candidate: b}
    with: {points: "${params.points}", other_weights: "${params.others}"}
"""


def test_a_list_is_written_with_commas_and_an_empty_text_is_a_list_of_none(tmp_path: Path) -> None:
    contract = loaded(tmp_path, LISTS)
    assert (contract.gates[0].limits["points"], contract.gates[0].limits["other_weights"]) == (["*"], [])
    contract = loaded(tmp_path, LISTS, points="model.*, logits", others="*.bias")
    assert contract.gates[0].limits["points"] == ["model.*", "logits"]
    assert contract.gates[0].limits["other_weights"] == ["*.bias"]
    assert (contract.title, contract.overridden) == ("All of model.*, logits", ("others", "points"))
    assert contract.params == {"points": "model.*, logits", "others": "*.bias"}


def test_a_list_is_read_as_strictly_as_one_that_is_written_out(tmp_path: Path) -> None:
    assert any("wrong-length" in printed for printed in refusal(tmp_path, LISTS, points=" , "))
    assert any("bad-form" in printed for printed in refusal(tmp_path, LISTS, points="a,{b: 1}"))
    assert any("wrong-type" in printed for printed in refusal(tmp_path, LISTS.replace('default: "*"', "default: [1]")))
