"""The gate kinds, one module each, typed out by hand: a reader of a contract finds the code by the kind's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import Kind
from weighbridge.gates import (
    byte_identity,
    checkpoint_integrity,
    config_agreement,
    corpus_wrap_around,
    device_refusal,
    dtype_preservation,
    forward_parity,
    label_plausibility,
    no_silent_cpu_fallback,
    step_metrics,
    tensor_coverage,
    tensor_statistics,
    value_preservation,
    wall_time_budget,
)

KINDS: Mapping[str, Kind[Any]] = {
    kind.name: kind
    for kind in (
        byte_identity.KIND,
        checkpoint_integrity.KIND,
        config_agreement.KIND,
        corpus_wrap_around.KIND,
        device_refusal.KIND,
        dtype_preservation.KIND,
        forward_parity.KIND,
        label_plausibility.KIND,
        no_silent_cpu_fallback.KIND,
        step_metrics.KIND,
        tensor_coverage.KIND,
        tensor_statistics.KIND,
        value_preservation.KIND,
        wall_time_budget.KIND,
    )
}
