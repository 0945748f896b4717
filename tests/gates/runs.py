"""Evidence for the gates over runs, as their instruments would give it."""

from __future__ import annotations

from typing import Any

from tests.gates.mutation import Passing

from weighbridge.cards import example_evidence, gate_card
from weighbridge.gates import KINDS
from weighbridge.model import Outcome
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.runs import StepColumn
from weighbridge.structure import build, plain


def column(name: str, **more: Any) -> Any:
    """Return a column as typical as the card's examples, but for what is told."""
    return build(StepColumn, plain({**QUANTITIES["step_columns"].typical(), "column": name, "logged_as": name, **more}))


def passing(kind: str) -> dict[str, Passing]:
    """Return the examples of a kind's card that pass."""
    examples = (example for example in gate_card(kind).examples if example.outcome is Outcome.PASS)
    return {example.name: (example.limits, example_evidence(KINDS[kind], example.evidence)) for example in examples}
