from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.cases import each

from weighbridge.contract import strict_yaml
from weighbridge.contract.document import contract_schema
from weighbridge.contract.load import builtin_names
from weighbridge.core.data import data_path
from weighbridge.gates import KINDS

SCHEMA = contract_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
HEAD: dict[str, Any] = {"weighbridge": "contract/v0", "id": "c", "version": "1.0.0", "title": "t", "owner": "o"}
GATE: dict[str, Any] = {
    "id": "G-1",
    "title": "t",
    "kind": "wall-time-budget",
    "subjects": {"run": "run"},
    "with": {"steps": [20, 49], "below_ms": 500},
}


def gate(**changed: Any) -> dict[str, Any]:
    return HEAD | {"subjects": {"run": {"kind": "run"}}, "gates": [GATE | changed]}


@pytest.mark.slow
def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_reference_inside_it_is_defined() -> None:
    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if "$ref" in part else set()
            return own.union(*(references(item) for item in part.values()))
        return set().union(*(references(item) for item in part)) if isinstance(part, list) else set()

    assert references(SCHEMA) <= {f"#/$defs/{name}" for name in SCHEMA["$defs"]}


def test_every_kind_has_its_own_branch() -> None:
    assert {f"kind-{name}" for name in KINDS} <= SCHEMA["$defs"].keys()
    assert SCHEMA["$defs"]["gate"]["properties"]["kind"]["enum"] == list(KINDS)


@pytest.mark.parametrize("name", builtin_names())
def test_a_shipped_contract_fits_the_schema(name: str) -> None:
    document = strict_yaml.load((data_path("contracts") / f"{name}.yaml").read_bytes(), name)
    assert [error.message for error in VALIDATOR.iter_errors(document.data)] == []


PAIR = {"kind": "value-preservation", "with": {"policy": "lossless"}}
BOTH = {"source": "run", "candidate": "run"}


CHILD = {key: HEAD[key] for key in ("weighbridge", "id", "version")} | {"extends": "b.yaml"}


@pytest.mark.parametrize(
    "document",
    [
        HEAD,
        gate(),
        gate(**{"with": {"steps": [20, 49], "below_ms": "${params.budget}"}}),
        gate(**{"with": {"steps": ["${params.first}", 49], "below_ms": 1}}),
        gate(**PAIR, subjects=BOTH),
        gate(**PAIR, subjects={**BOTH, "adapter": "run"}),
        gate(severity="advisory", max_age="30d", where={"n": "${params.n}"}, requires={"cuda": True}),
        CHILD | {"gates": [{"id": "G-1"}]},
        CHILD | {"params": {"policy": "rounded:F16", "budget_ms": {"default": 400}, "warm": False, "n": 3}},
    ],
)
def test_what_can_be_written_is_accepted(document: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


@each(
    "document",
    [
        {},
        HEAD | {"status": "DISCHARGED"},
        HEAD | {"version": 1.1},
        HEAD | {"version": "1.1"},
        HEAD | {"id": "My_Contract"},
        HEAD | {"subjects": {"Run": {"kind": "run"}}},
        HEAD | {"subjects": {"run": {"kind": "runs"}}},
        HEAD | {"params": {"p": {"type": "number"}}},
        HEAD | {"params": {"p": 400}},
        CHILD | {"params": {"p": [400]}},
        CHILD | {"params": {"p": {"defalt": 400}}},
        {key: HEAD[key] for key in ("weighbridge", "id", "version")},
        gate(kind="wall-time"),
        gate(severty="required"),
        gate(subjects={"source": "run"}),
        gate(**{"with": {}}),
        gate(**{"with": {"steps": [20, 49], "below_ms": 0}}),
        gate(**{"with": {"steps": [20, 49], "below_ms": "fast"}}),
        gate(**{"with": {"steps": [20, 49], "below_ms": "${env.HOME}"}}),
        gate(measure={"colum": "wall_ms"}),
        HEAD | {"gates": [{key: GATE[key] for key in GATE if key != "with"}]},
        HEAD | {"gates": [{"id": "G-1"}]},
    ],
)
def test_what_cannot_be_used_is_refused(document: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(document)
