"""The gate kinds, a module or a row of `channel_rules` each: a reader of a contract finds the code by the kind's name.

Each is imported when it is first asked for. Other packages bring kinds by entry points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import Kind
from weighbridge.core.plugins import Brought, Extended, OnDemand

ROWS = (  # of `channel_rules`
    *("active-labels", "causality", "dead-gradients", "degenerate-batch", "edited-gradients", "equal-rows"),
    *("equal-tensors", "evaluation-repeats", "frozen-parameters", "held-out-rows", "idle-updates", "initial-spread"),
    *("labels-shifted", "loss-scale", "masked-padding", "optimizer-coverage", "outside-writes", "repeated-batches"),
    *("repeated-rows", "reported-loss", "single-updates", "skipped-updates", "step-counters", "training-mode"),
    *("turned-gradients", "uncleared-gradients", "unmoved-parameters", "weight-precision"),
)
MODULES = dict.fromkeys(ROWS, "channel_rules") | {
    "beyond-chance": "beyond_chance",
    "byte-identity": "byte_identity",
    "checkpoint-integrity": "checkpoint_integrity",
    "clip-share": "clip_share",
    "command-succeeds": "command_succeeds",
    "config-agreement": "config_agreement",
    "corpus-wrap-around": "corpus_wrap_around",
    "declared-epochs": "declared_epochs",
    "declared-schedule": "declared_schedule",
    "device-refusal": "device_refusal",
    "diverging": "diverging",
    "dtype-preservation": "dtype_preservation",
    "ends-at-best": "ends_at_best",
    "first-loss": "first_loss",
    "forward-parity": "forward_parity",
    "gradient-growth": "gradient_growth",
    "gradient-jump": "gradient_jump",
    "label-plausibility": "label_plausibility",
    "learning-progress": "learning_progress",
    "loss-spike": "loss_spike",
    "no-silent-cpu-fallback": "no_silent_cpu_fallback",
    "one-change": "one_change",
    "optimizer-digest": "optimizer_digest",
    "replay-determinism": "replay_determinism",
    "replica-consistency": "replica_consistency",
    "series-bound": "series_bound",
    "share-within": "share_within",
    "statistics-preservation": "statistics_preservation",
    "steady-rate": "steady_rate",
    "step-metrics": "step_metrics",
    "steps-asked": "steps_asked",
    "stopped-beyond-noise": "stopped_beyond_noise",
    "stops-in-time": "stops_in_time",
    "summary-bound": "summary_bound",
    "tensor-coverage": "tensor_coverage",
    "tensor-statistics": "tensor_statistics",
    "test-report": "test_report",
    "token-budget": "token_budget",
    "validation-parting": "validation_parting",
    "value-preservation": "value_preservation",
    "wall-time-budget": "wall_time_budget",
}
MODULES = dict(sorted(MODULES.items()))

OWN: Mapping[str, Kind[Any]] = OnDemand(__name__, "KIND", MODULES)
BROUGHT: Brought[Kind[Any]] = Brought("kind", OWN)
KINDS: Mapping[str, Kind[Any]] = Extended(OWN, BROUGHT)
