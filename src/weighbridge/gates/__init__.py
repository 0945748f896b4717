"""The gate kinds, a module or a row of `channel_rules` each: a reader of a contract finds the code by the kind's name.

Each is imported when it is first asked for. Other packages bring kinds by entry points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import Kind
from weighbridge.core.plugins import Brought, Extended, OnDemand

MODULES = {
    "active-labels": "channel_rules",
    "beyond-chance": "beyond_chance",
    "byte-identity": "byte_identity",
    "causality": "channel_rules",
    "checkpoint-integrity": "checkpoint_integrity",
    "clip-share": "clip_share",
    "command-succeeds": "command_succeeds",
    "config-agreement": "config_agreement",
    "corpus-wrap-around": "corpus_wrap_around",
    "dead-gradients": "channel_rules",
    "declared-epochs": "declared_epochs",
    "declared-schedule": "declared_schedule",
    "degenerate-batch": "channel_rules",
    "device-refusal": "device_refusal",
    "diverging": "diverging",
    "dtype-preservation": "dtype_preservation",
    "edited-gradients": "channel_rules",
    "ends-at-best": "ends_at_best",
    "equal-rows": "channel_rules",
    "equal-tensors": "channel_rules",
    "evaluation-repeats": "channel_rules",
    "first-loss": "first_loss",
    "forward-parity": "forward_parity",
    "frozen-parameters": "channel_rules",
    "gradient-growth": "gradient_growth",
    "gradient-jump": "gradient_jump",
    "idle-updates": "channel_rules",
    "initial-spread": "channel_rules",
    "label-plausibility": "label_plausibility",
    "labels-shifted": "channel_rules",
    "learning-progress": "learning_progress",
    "loss-scale": "channel_rules",
    "loss-spike": "loss_spike",
    "no-silent-cpu-fallback": "no_silent_cpu_fallback",
    "one-change": "one_change",
    "optimizer-coverage": "channel_rules",
    "optimizer-digest": "optimizer_digest",
    "outside-writes": "channel_rules",
    "repeated-batches": "channel_rules",
    "repeated-rows": "channel_rules",
    "replay-determinism": "replay_determinism",
    "replica-consistency": "replica_consistency",
    "reported-loss": "channel_rules",
    "series-bound": "series_bound",
    "share-within": "share_within",
    "single-updates": "channel_rules",
    "skipped-updates": "channel_rules",
    "statistics-preservation": "statistics_preservation",
    "steady-rate": "steady_rate",
    "step-counters": "channel_rules",
    "step-metrics": "step_metrics",
    "steps-asked": "steps_asked",
    "stopped-beyond-noise": "stopped_beyond_noise",
    "stops-in-time": "stops_in_time",
    "summary-bound": "summary_bound",
    "tensor-coverage": "tensor_coverage",
    "tensor-statistics": "tensor_statistics",
    "test-report": "test_report",
    "token-budget": "token_budget",
    "training-mode": "channel_rules",
    "turned-gradients": "channel_rules",
    "uncleared-gradients": "channel_rules",
    "unmoved-parameters": "channel_rules",
    "validation-parting": "validation_parting",
    "value-preservation": "value_preservation",
    "wall-time-budget": "wall_time_budget",
    "weight-precision": "channel_rules",
}

OWN: Mapping[str, Kind[Any]] = OnDemand(__name__, "KIND", MODULES)
BROUGHT: Brought[Kind[Any]] = Brought("kind", OWN)
KINDS: Mapping[str, Kind[Any]] = Extended(OWN, BROUGHT)
