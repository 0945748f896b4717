"""The other verbs: lint, explain, schema, inspect, doctor, selftest, and what every verb owes."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from tests.cases import each
from tests.cli.conftest import Cli

from weighbridge.cli import VERBS
from weighbridge.contract.load import builtin_names
from weighbridge.core.data import data_path
from weighbridge.gates import KINDS
from weighbridge.verifiers import VERIFIERS

SPECIMENS = data_path("verifiers") / "specimens"


@each("verb", VERBS)
def test_every_verb_has_help_with_an_example(cli: Cli, verb: str) -> None:
    ended = cli(verb, "--help")
    assert ended.code == 0
    assert "Example: weighbridge" in ended.out


def test_the_verbs_are_listed_in_the_order_of_use(cli: Cli) -> None:
    listed = [line.split()[0] for line in cli("--help").lines if line.startswith("  ") and not line.startswith("  -")]
    assert tuple(word for word in listed if word in VERBS) == VERBS


def test_an_unknown_verb_is_2(cli: Cli) -> None:
    assert cli("verfy").code == 2


@pytest.mark.slow
def test_the_starter_contracts_are_usable_and_obey_the_schema(cli: Cli) -> None:
    names = builtin_names()
    ended = cli("lint", *(f"builtin:{name}" for name in names))
    assert (ended.code, ended.lines) == (0, [f"{len(names)} of {len(names)} contracts are usable"])
    schema = json.loads(cli("schema").out)
    for name in names:
        document = yaml.safe_load((data_path("contracts") / f"{name}.yaml").read_text())
        jsonschema.Draft202012Validator(schema).validate(document)


def test_an_unknown_word_is_2_with_a_suggestion(cli: Cli) -> None:
    ended = cli("explain", "dtype-preservaton")
    expected = "unknown-word nothing is called 'dtype-preservaton'; did you mean 'dtype-preservation'?"
    assert (ended.code, ended.err.strip()) == (2, expected)


def test_inspect_tells_a_checkpoint(cli: Cli) -> None:
    ended = cli("inspect", SPECIMENS / "checkpoints" / "import.gguf", "--headers", "--json")
    printed = json.loads(ended.out)
    assert printed["kind"] == "checkpoint"
    assert printed["table"]["embed"] == {"bytes": 32, "dtype": "F32", "shape": [2, 4]}


def test_doctor_says_what_is_here(cli: Cli) -> None:
    printed = json.loads(cli("doctor", "--json").out)
    assert set(printed) >= {"weighbridge", "python", "torch", "cuda", "contracts"}


@pytest.mark.exhaustive
def test_every_card_specimen_and_pass_holds(cli: Cli) -> None:
    ended = cli("selftest", "--json")
    checks = json.loads(ended.out)
    assert [check for check in checks if check["wrong"] or check["skipped"] not in ("", "needs torch")] == []
    assert ended.code == 0
    assert {check["name"].partition(":")[0] for check in checks} >= {*KINDS, *(name for name, _ in VERIFIERS)}
    assert len(checks) > 400
