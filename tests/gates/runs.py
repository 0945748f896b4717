"""Evidence for the gates over runs, as their instruments would give it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.gates.mutation import Passing
from tests.rows import typed

from weighbridge.cards.card_checks import examples
from weighbridge.cards.words import gate_card
from weighbridge.core.canonical import build
from weighbridge.core.limits import plain
from weighbridge.core.model import Measurement, Outcome, Rows
from weighbridge.gates import KINDS
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.runs import StepColumn


def table(rows: Iterable[Mapping[str, Any]]) -> dict[str, Measurement]:
    """Return pairs of tensors as evidence, each as typical as the card's examples but for what is given."""
    kept = tuple(typed("tensor_values", row) for row in rows)
    value = Rows("name", kept)
    return {"pairs": Measurement(quantity="tensor_values", value=value, by="test", examined=len(kept), total=len(kept))}


def column(name: str, **more: Any) -> StepColumn:
    """Return a column as typical as the card's examples, but for what is given."""
    return build(StepColumn, plain({**QUANTITIES["step_columns"].typical(), "column": name, "logged_as": name, **more}))


def passing(kind: str) -> dict[str, Passing]:
    """Return the examples of a kind's card that pass."""
    shown = examples(gate_card(kind), KINDS[kind])
    return {one.name: (plain(one.limits), one.evidence) for one in shown if one.outcome is Outcome.PASS}
