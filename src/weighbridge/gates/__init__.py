"""The gate kinds, one module each, typed out by hand: a reader of a contract finds the code by the kind's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.gates import byte_identity, corpus_wrap_around, dtype_preservation, step_metrics, wall_time_budget
from weighbridge.gates.base import Kind

KINDS: Mapping[str, Kind[Any]] = {
    kind.name: kind
    for kind in (
        byte_identity.KIND,
        corpus_wrap_around.KIND,
        dtype_preservation.KIND,
        step_metrics.KIND,
        wall_time_budget.KIND,
    )
}
