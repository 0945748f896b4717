"""Evidence for the gates over runs, as their instruments would give it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tests.gates.mutation import Passing

from weighbridge.cards import example_evidence, gate_card
from weighbridge.model import Measurement, Outcome

COLUMN: Mapping[str, Any] = {
    "rows": 120, "samples": 120, "missing": 0, "unreadable": 0, "nan": 0, "infinite": 0, "first_nan_step": None,
    "first_non_finite_step": None, "first_unreadable_step": None, "steps_missing": 0, "first_missing_step": None,
    "finite": 120, "distinct": 120, "min": 1.0, "max": 2.0, "relative_spread": 0.33, "range_over_std": 5.1,
    "uniform_ks_root_n": 3.2, "lag1_root_n": 1.1, "rank_correlation_root_n": 1.4, "correlated_with": "loss",
    "relations": [],
}  # fmt: skip
STEP: Mapping[str, Any] = {
    "column": "step", "steps": 120, "first_step": 0, "last_step": 119, "fractional": 0, "repeated_steps": 0,
    "first_repeated_step": None, "backward_steps": 0, "first_backward_step": None, "largest_gap": 1,
    "largest_gap_after_step": 0, "min": 0.0, "max": 119.0, "lag1_root_n": 10.7, "uniform_ks_root_n": 0.1,
    "range_over_std": 3.4,
}  # fmt: skip


def column(name: str, **more: Any) -> dict[str, Any]:
    return {**COLUMN, "column": name, "logged_as": name, **more}


def columns(*rows: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": "column", "rows": list(rows)}


def evidence(at: str = "", **needs: Mapping[str, Any]) -> dict[str, Measurement]:
    return {name: dataclasses.replace(item, at=at) for name, item in example_evidence(KINDS[kind], needs).items()}


def passing(kind: str) -> dict[str, Passing]:
    """Take the examples of a kind's card that pass."""
    examples = (example for example in gate_card(kind).examples if example.outcome is Outcome.PASS)
    return {example.name: (example.limits, example_evidence(example.evidence)) for example in examples}


def times(values: Sequence[float], first: int = 20) -> dict[str, Any]:
    return {"step": list(range(first, first + len(values))), "value": list(values)}
