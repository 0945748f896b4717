"""Words are filled from figures: as YAML writes them, in one order, and never lost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from weighbridge.cards import words
from weighbridge.cards.words import SPECIMENS, GateWords, any_gate, fill, gate_card, gate_words
from weighbridge.contract import strict_yaml
from weighbridge.core import ContractError
from weighbridge.core.data import data_path, parsed
from weighbridge.gates import KINDS


def test_a_requirement_is_reported_as_the_contract_writes_it() -> None:
    printed = fill(any_gate()["requires"].says, {"requirement": "cuda", "needed": True, "found": False})
    assert printed == "the gate requires cuda: true on this host, found false"


def test_a_mapping_reads_the_same_however_it_was_built() -> None:
    assert fill("{x}", {"x": {"b": 1.0, "a": [True, None]}}) == fill("{x}", {"x": {"a": (True, None), "b": 1}})
    assert fill("{x}", {"x": {"b": 1.0, "a": [True, None]}}) == "a: true, none, b: 1"


def test_a_figure_that_is_absent_or_of_another_type_loses_no_message() -> None:
    assert fill("{there} and {gone[0]}", {"there": 1}) == "1 and ?"
    assert fill("{figure:.3f} ms", {"figure": None}) == "none ms"


def test_control_characters_of_hostile_names_are_escaped() -> None:
    assert fill("{name}", {"name": "a\x1b[31m\n"}) == "a\\x1b[31m\\n"


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_try_first_is_a_sentence_and_no_bare_name_of_a_limit(kind: str) -> None:
    cards = [words.code_card(kind, code) for code in KINDS[kind].codes]
    first = [card.knob.partition(" ")[0].strip(",") for card in cards if card and card.knob]
    limits = {one.name for one in dataclasses.fields(KINDS[kind].limits)}
    assert not limits.intersection(first)


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_of_a_card_are_all_of_it_but_its_examples(kind: str) -> None:
    whole, words = gate_card(kind), gate_words(kind)
    assert whole.examples
    for field in dataclasses.fields(GateWords):
        assert getattr(whole, field.name) == getattr(words, field.name)


def test_a_shipped_card_that_is_no_yaml_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.yaml").write_text("card: gate/v1\nkind: [odd\ncodes: {}\n")
    monkeypatch.setattr(words, "data_path", lambda _folder: tmp_path)
    with pytest.raises(ContractError, match=r"odd\.yaml:3:"):
        words.read_card(GateWords, tmp_path / "odd.yaml", words.EXAMPLES)


@pytest.mark.parametrize("folder", ["words", "verifiers"])
def test_what_ships_is_read_at_once_as_it_is_read_strictly(folder: str) -> None:
    for path in data_path(folder).glob("*.yaml"):
        text = path.read_bytes().partition(SPECIMENS)[0]
        assert parsed(text) == strict_yaml.load(text, where=path.name).data
