"""The gate kinds, a module or a row of one each, imported when first asked for; other packages bring more of them."""

from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import Kind
from weighbridge.core.plugins import Brought, Extended, OnDemand

ROWS: Mapping[str, tuple[str, ...]] = {  # of modules that hold several
    "channel_rules": (
        *("activation-anomaly", "active-labels", "batch-independence", "causality", "context-use"),
        *("dead-gradients", "degenerate-batch", "edited-gradients", "equal-rows", "equal-tensors"),
        *("evaluation-mode", "evaluation-repeats", "frozen-parameters", "gradient-check", "held-out-rows"),
        *("padded-targets", "row-passes"),
        *("idle-updates", "initial-spread", "labels-shifted", "logits-sanity", "loss-scale", "masked-padding"),
        *("optimizer-coverage", "outside-writes", "repeated-batches", "repeated-order", "repeated-rows"),
        *("reported-loss", "single-updates", "skipped-updates", "step-counters", "training-mode"),
        *("turned-gradients", "uncleared-gradients", "unmoved-parameters", "weight-precision"),
    ),
    "layer_rules": (
        *("clip-offender", "contributing-layers", "faint-gradients", "gradient-reach", "gradient-to-weight"),
        *("moving-matrices", "moving-tensors", "pinched-layers", "silent-layers", "update-jump"),
        "vanishing-gradients",
    ),
    "run_file_rules": ("checkpoint-retention", "sealed-probes", "snapshot-cadence"),
    "course_rules": (
        *("beyond-chance", "clip-share", "declared-schedule", "diverging", "first-loss", "gradient-growth"),
        *("gradient-jump", "idle-rate", "learning-progress", "loss-spike", "row-gaps", "series-bound"),
        "spent-schedule",
        *("share-within", "steady-rate", "stopped-beyond-noise", "stops-in-time", "summary-bound"),
        "validation-parting",
    ),
    "progress_rules": ("declared-epochs", "steps-asked", "token-budget"),
    "several_runs": ("one-change", "replay-determinism", "replica-consistency"),
    "timed_rules": ("peak-share", "wall-time-budget"),
}
OF_THEIR_NAMES = (  # modules
    *("byte-identity", "checkpoint-integrity", "command-succeeds", "config-agreement", "corpus-wrap-around"),
    *("device-refusal", "dtype-preservation", "ends-at-best", "forward-parity", "label-plausibility"),
    *("no-silent-cpu-fallback", "optimizer-digest", "statistics-preservation", "step-metrics", "tensor-coverage"),
    *("tensor-statistics", "test-report", "value-preservation"),
)
MODULES = {name: name.replace("-", "_") for name in OF_THEIR_NAMES}
MODULES |= {name: module for module, names in ROWS.items() for name in names}
MODULES = dict(sorted(MODULES.items()))

OWN: Mapping[str, Kind[Any]] = OnDemand(__name__, "KIND", MODULES)
BROUGHT: Brought[Kind[Any]] = Brought("kind", OWN)
KINDS: Mapping[str, Kind[Any]] = Extended(OWN, BROUGHT)
