"""What is typed wrongly at first contact, and what is said of it: what it is, where, and what to type instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.verifiers.logs_of_others import trainer_state

from weighbridge.core.data import data_path

SPECIMENS = data_path("verifiers") / "specimens"
RUN, WEIGHTS = SPECIMENS / "runs" / "wrapped", SPECIMENS / "checkpoints" / "source.safetensors"
CONTRACT = (data_path("contracts") / "model-import.yaml").read_text()


@pytest.fixture
def here(workplace: Path) -> Path:
    trainer_state(workplace / "trainer_state.json")
    (workplace / "hf").mkdir()
    (workplace / "hf" / "model.safetensors").write_bytes(WEIGHTS.read_bytes())
    (workplace / "hf" / "config.json").write_text('{"model_type": "llama"}')
    (workplace / "mine").mkdir()
    (workplace / "mine" / "c.yaml").write_text(CONTRACT)
    return workplace


def test_lint_without_a_contract_of_ones_own_is_not_green(cli: Cli, workplace: Path) -> None:
    ended = cli("lint")
    assert (ended.code, ended.lines) == (5, ["9 of 9 contracts that ship with weighbridge are usable"])
    assert ended.err.startswith("no contract of yours was checked: contracts/ holds no .yaml or .yml file; ")
    assert ended.err.endswith("write one: weighbridge init\n")


def test_lint_names_the_folder_of_another_name_that_holds_contracts(cli: Cli, here: Path) -> None:
    assert cli("lint").err.endswith("name the folder: weighbridge lint mine\n")
    assert cli("lint", "mine").lines == ["1 of 1 contract is usable"]
    (here / "mine" / "c.yaml").write_text("weighbridge: contract/v0\nid: [")
    assert cli("lint", "mine").code == 2


@pytest.mark.parametrize(
    ("named", "typed"),
    [
        ("trainer_state.json", "builtin:training-log --subject run="),
        (str(RUN), "builtin:training-log --subject run="),
        ("hf", "builtin:checkpoint-health --subject checkpoint="),
        ("hf/model.safetensors", "builtin:checkpoint-health --subject checkpoint="),
    ],
)
@pytest.mark.parametrize("verb", ["verify", "lint"])
def test_a_subject_in_the_place_of_a_contract_is_reported_with_what_to_type(
    cli: Cli, here: Path, verb: str, named: str, typed: str
) -> None:
    ended = cli(verb, named)
    printed = f"  a contract comes first: weighbridge verify {typed}{named}; `weighbridge inspect {named}` needs none"
    assert (ended.code, ended.err.splitlines()[1]) == (2, printed)
    ran = cli("verify", *f"{typed}{named}".split())
    assert ran.lines[-1].endswith(("(passed)", "(failed)", "(blocked)")), ran.out


@pytest.mark.parametrize("verb", ["verify", "lint"])
def test_a_url_is_no_contract_and_is_reported_as_it_was_typed(cli: Cli, verb: str) -> None:
    ended = cli(verb, "https://example.org/c.yaml")
    assert (ended.code, ended.err.startswith("https://example.org/c.yaml: no-contract ")) == (2, True)


def test_a_folder_without_contracts_is_reported(cli: Cli, workplace: Path) -> None:
    (workplace / "empty").mkdir()
    assert cli("lint", "empty").err == "empty: no-contract no .yaml file in this folder is a contract\n"


@pytest.mark.parametrize(
    ("named", "printed"),
    [
        ("hf/config.json", "describes a model, and holds no weights (checkpoint-format)"),
        ("trainer_state.json", "is the log of a Trainer, and holds no weights (checkpoint-format)"),
    ],
)
def test_json_that_holds_no_weights_is_reported_for_what_it_is(cli: Cli, here: Path, named: str, printed: str) -> None:
    Path(named).write_text(Path(named).read_text().replace("{", '{"loss": NaN, ', 1))  # as some are
    ended = cli("compare", named, WEIGHTS)
    assert (ended.code, f"  {named}: {printed}" in ended.lines) == (4, True)


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "org/model", WEIGHTS),
        ("inspect", "org/model"),
        ("verify", "builtin:checkpoint-health", "--subject", "checkpoint=org/model"),
    ],
)
def test_a_name_of_two_words_may_be_one_of_the_hub(cli: Cli, workplace: Path, words: tuple[object, ...]) -> None:
    ended = cli(*words)
    hub = "check the path; a repository of the Hugging Face hub is named hf://org/model"
    assert (ended.code, hub in ended.out + ended.err) == (4, True)
    (workplace / "org").mkdir()
    assert "hf://" not in cli(*words).out


@pytest.mark.parametrize(
    ("words", "lacking"), [(("compare",), "SOURCE"), (("compare", "a"), "IMPORTS..."), (("amend", "land"), "FILE")]
)
def test_a_missing_argument_is_reported_as_everything_is(cli: Cli, words: tuple[str, ...], lacking: str) -> None:
    ended = cli(*words)
    first, second = ended.err.splitlines()
    assert (ended.code, first) == (2, f"missing-argument {lacking} is missing")
    assert second.startswith(f"  write: weighbridge {' '.join(words[:1])}")


@pytest.mark.parametrize("verb", ["verify", "show", "rejudge"])
def test_a_bundle_that_is_not_there_is_reported_with_where_bundles_are(cli: Cli, verb: str) -> None:
    first, second = cli("evidence", verb, "missing").err.splitlines()
    assert first == "missing: not-a-bundle there is no such folder or archive"
    assert second.startswith("  name a bundle's folder: `verify` writes them to .weighbridge/bundles")


def test_a_missing_colon_is_named_at_its_own_line(cli: Cli, workplace: Path) -> None:
    (workplace / "c.yaml").write_text(CONTRACT.replace("owner: ", "owner "))
    at = 1 + CONTRACT.splitlines().index(next(line for line in CONTRACT.splitlines() if line.startswith("owner: ")))
    assert cli("lint", "c.yaml").err.startswith(f"c.yaml:{at}:1: yaml-syntax ")


def test_a_log_that_says_why_it_is_short_is_quoted(cli: Cli, here: Path) -> None:
    state = json.loads(Path("trainer_state.json").read_text())
    rows = [row | {"step": 30} for row in state["log_history"][-2:]]
    state |= {"logging_steps": 500, "max_steps": 30, "global_step": 30, "log_history": rows}
    Path("few.json").write_text(json.dumps(state))
    printed = cli("verify", "builtin:training-log", "--subject", "run=few.json").lines
    assert "    likely cause: logging_steps is 500, so that most of 30 steps were not logged" in printed
    assert not any("an empty window" in line for line in printed)
