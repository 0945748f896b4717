"""The self-test must notice a weakened judge and a blind instrument; one that cannot fail shows nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from weighbridge.cards import card_checks
from weighbridge.cards.card_checks import Check
from weighbridge.cards.words import VerifierCard, gate_card, read_card
from weighbridge.clauses.kind import passed
from weighbridge.core.data import data_path
from weighbridge.core.model import Fields, Measurement, Record, Rows, Series, Unmeasured
from weighbridge.gates import KINDS
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.verifier import Views


def wrong(checks: Iterator[Check]) -> Check | None:
    """Find the first check that went wrong, and look no further."""
    return next((check for check in checks if check.wrong), None)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_judge_that_always_passes_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lax = dataclasses.replace(KINDS[name], judge=lambda _evidence, _limits: passed(looked=("x",)))
    monkeypatch.setattr(card_checks, "KINDS", {**KINDS, name: lax})
    assert wrong(card_checks.check_gate_card(gate_card(name)))


def first_only(value: Any) -> Any:
    match value:
        case Rows(key, rows):
            return Rows(key, rows[:1])
        case Series(step, values):
            return Series(step[:1], values[:1])
        case Record(record) if record is not None:
            unseen = [field.name for field in dataclasses.fields(record)[1:]]
            return Record(dataclasses.replace(record, **{name: type(getattr(record, name))() for name in unseen}))


Measure = Callable[[Views, Fields], Measurement | Unmeasured]


def half_blind(measure: Measure) -> Measure:
    def look(views: Views, options: Fields) -> Measurement | Unmeasured:
        found = measure(views, options)
        return dataclasses.replace(found, value=first_only(found.value)) if isinstance(found, Measurement) else found

    return look


def frozen(measure: Measure) -> Measure:
    """Answer the first measurement for ever."""
    first: list[Measurement | Unmeasured] = []

    def look(views: Views, options: Fields) -> Measurement | Unmeasured:
        if not first:
            first.append(measure(views, options))
        return first[0]

    return look


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", [half_blind, frozen])
@pytest.mark.parametrize("key", VERIFIERS, ids=lambda key: f"{key[0]}-{'-'.join(key[1])}")
def test_an_instrument_that_is_a_constant_or_looks_at_its_first_place_is_noticed(
    key: Any, damage: Callable[[Measure], Measure], monkeypatch: pytest.MonkeyPatch
) -> None:
    if key[0] == "forward_errors":
        pytest.importorskip("torch")
    real = VERIFIERS[key]
    monkeypatch.setattr(
        card_checks, "VERIFIERS", {**VERIFIERS, key: dataclasses.replace(real, measure=damage(real.measure))}
    )
    cards = (read_card(VerifierCard, path) for path in data_path("verifiers").glob("*.yaml"))
    (card,) = (card for card in cards if (card.quantity, tuple(card.subjects)) == key)
    assert wrong(card_checks.check_verifier_card(card, data_path("verifiers") / "specimens"))


def test_a_specimen_that_expects_nothing_shows_nothing() -> None:
    card = read_card(VerifierCard, data_path("verifiers") / "step_series.yaml")
    specimen = dataclasses.replace(next(each for each in card.specimens if not each.error), expects={})
    (check,) = card_checks.check_verifier_card(
        dataclasses.replace(card, specimens=(specimen,)), data_path("verifiers") / "specimens"
    )
    assert check.wrong == ("expects nothing, so it shows nothing",)
