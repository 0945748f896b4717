"""Name the mechanism that explains how a candidate's bits came from a source's, from counts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from weighbridge.clauses.value_classes import BOUND
from weighbridge.model import Fields, Json

# Simplest first: the order in which a mechanism is offered as the explanation.
MECHANISMS: tuple[str, ...] = (
    "value-cast",
    "requantised",
    "requantised-through-f16",
    "requantised-through-bf16",
    "bf16-bits-as-f16",
    "f16-bits-as-bf16",
    "relabelled",
    "truncated",
    "byte-swapped",
    "through-f16",
    "through-bf16",
    "permutation-missing",
    "wrong-head-count",
    "permutation-twice",
    "permutation-inverse",
    "permuted-unasked",
    "plus-one-missing",
    "plus-one-twice",
    "plus-one-unasked",
    "minus-exp-missing",
    "transposed",
    "gate-and-up-swapped",
    "layer-before",
    "layer-after",
    "experts-swapped",
    "parts-swapped",
    "other-tensor",
    "swapped",
    "scaled",
)
UNEXPLAINED = "different content"
QUANTISED = "quantised"  # the content of blocks in a type that nobody meant, within that type's bound


def reproduced(row: Fields) -> Fields:
    """Take a row's counts, by mechanism."""
    return cast(Fields, row["reproduced"])


def explained(row: Fields, name: str) -> Json:
    """Count the elements that a mechanism gives: bit for bit, or all of a block type's that are within its bound."""
    error = cast(Fields, row.get("errors_otherwise") or {}).get(name)
    near = error is not None and float(str(error)) <= BOUND.get(str(row["candidate_dtype"]), 0.0)
    return row["elements"] if near else reproduced(row).get(name)


def mechanism(offenders: Sequence[Fields]) -> str:
    """Name the simplest mechanism that explains every element of every offender, or "different content"."""
    if not any(row["nonzero"] for row in offenders):
        return UNEXPLAINED
    full = (name for name in MECHANISMS if all(explained(row, name) == row["elements"] for row in offenders))
    return next(full, UNEXPLAINED)


def explained_together(offenders: Sequence[Fields]) -> Mapping[tuple[object, object], str]:
    """Name the mechanism of each change of dtype, those of the same change explained together."""
    alike: dict[tuple[object, object], list[Fields]] = {}
    for row in offenders:
        alike.setdefault((row["source_dtype"], row["candidate_dtype"]), []).append(row)
    return {change: mechanism(rows) for change, rows in alike.items()}
