"""The rules over what the recorder looks at: what each finds and when, and the healthy runs that all leave alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.gates.runs import column

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, Series, Verdict
from weighbridge.gates import KINDS, MODULES
from weighbridge.gates.families.column_basis import LOOKED_AT

AT = (0, 1, 2, 3, 10, 100)
HEALTHY: Mapping[str, tuple[str, Sequence[float]]] = {
    "loss-scale": ("loss_gradient_scale", [1.0, 0.99995, 1.00005, 1.0, 1.0, 1.0]),
    "reported-loss": ("loss", [4.1, 4.0, 3.9, 3.8, 3.1, 2.2]),
    "edited-gradients": ("gradient_edit_ratio", [1.0, 1.000001, 1.0, 1.0, 1.0, 1.0]),
    "turned-gradients": ("gradient_cosine", [1.0, 1.0, 0.999999, 1.0, 1.0, 1.0]),
    "uncleared-gradients": ("stale_gradients", [0] * 6),
    "dead-gradients": ("zero_gradients", [12, 0, 0, 0, 0, 0]),  # an adapter of which one half begins at zero
    "optimizer-coverage": ("unowned", [0] * 6),
    "frozen-parameters": ("frozen", [0] * 6),
    "unmoved-parameters": ("unmoved", [40, 2, 0, 0, 0, 0]),  # a warm-up from zero
    "outside-writes": ("outside_writes", [0] * 6),
    "step-counters": ("step_counter_lag", [0] * 6),
    "weight-precision": (
        "bf16_share",
        [1.0, 0.004, 0.004, 0.004, 0.004, 0.004],
    ),  # loaded from bf16
    "initial-spread": ("init_std_max", [0.02, 0.02, 0.3, 0.3, 0.4, 0.5]),
    "equal-rows": ("equal_rows", [0] * 6),
    "idle-updates": ("idle_update", [0] * 6),
    "skipped-updates": ("skipped", [0] * 6),
    "single-updates": ("updates", [1] * 6),
    "equal-tensors": ("equal_tensors", [0] * 6),
    "labels-shifted": ("target_is_next_share", [1.0, 1.0, 0.998, 1.0, 1.0, 1.0]),
    "active-labels": ("labels_active_share", [0.9, 0.2, 0.25, 0.8, 0.9, 0.9]),
    "repeated-batches": ("batch_repeats", [0] * 6),
    "repeated-order": ("order_repeats", [0, 1, 1, 0, 0, 0]),  # by chance
    "repeated-rows": ("repeated_rows_share", [0, 1, 0, 0, 0, 0]),
    "degenerate-batch": ("top_token_share", [0.05, 0.06, 0.05, 0.04, 0.07, 0.05]),
    "held-out-rows": ("evaluation_rows_trained", [0, 0.01, 0, 0, 0, 0]),
    "padded-targets": ("padding_targets_share", [0, 0.9, 0, 0, 0.4, 0]),  # texts that end alike by chance
    "row-passes": ("row_passes", [1, 1, 1, 1.5, 2, 16]),
    "training-mode": ("evaluating_modules", [0] * 6),
    "context-use": ("past_change", [0.0, 0.0, 0.02, 0.03, 0.1, 2.0]),  # blocks that begin as zeros
    "evaluation-mode": ("training_evaluations", [0] * 6),
    "batch-independence": ("neighbour_change", [0.0, 0.0, 2e-6, 0.0, 0.0, 0.0]),
    "causality": ("future_change", [0.0, 0.0, 2e-6, 0.0, 0.0, 0.0]),
    "masked-padding": ("padding_change", [0.0, 0.5, 0.0, 0.0, 0.0, 0.0]),  # a text that begins with two of that token
    "evaluation-repeats": ("evaluation_change", [0.0] * 6),
    "activation-anomaly": ("activation_outlier", [1.6, 2.9, 1.5, 1.2, 1.3, 1.2]),
    "gradient-check": ("gradient_error", [2e-6, 1e-5, 0.0, 3e-7, 1e-6, 1e-6]),
    "logits-sanity": ("logits_gain", [-0.05, 0.01, 0.2, 0.8, 2.1, 3.0]),
}
FAULTS: Mapping[str, tuple[str, Sequence[float], int]] = {  # code, samples, and how many of them are enough
    "loss-scale": ("off-scale", [0.5] * 6, 1),
    "reported-loss": ("misreported", [8.2, 8.0, 7.8, 7.6, 6.2, 4.4], 1),
    "edited-gradients": ("edited", [1.0, 1.0, 1.0, 1000.0, 1.0, 1.0], 4),
    "turned-gradients": ("turned", [-1.0] * 6, 1),
    "uncleared-gradients": ("uncleared", [0, 24, 24, 24, 24, 24], 2),
    "dead-gradients": ("dead", [2] * 6, 3),
    "optimizer-coverage": ("unowned", [1] * 6, 1),
    "frozen-parameters": ("not-as-declared", [1] * 6, 1),
    "unmoved-parameters": ("unmoved", [3] * 6, 3),
    "outside-writes": ("written", [0, 0, 0, 0, 1, 0], 5),
    "step-counters": ("behind", [0, 0, 0, 0, 8, 8], 5),
    "weight-precision": ("rounded", [1.0] * 6, 3),
    "initial-spread": ("too-wide", [1.0] * 6, 1),
    "equal-rows": ("equal", [2] * 6, 1),
    "idle-updates": ("idle", [0, 0, 0, 0, 1, 0], 5),
    "skipped-updates": ("skipping", [1] * 6, 3),
    "single-updates": ("several", [1, 1, 2, 1, 1, 1], 3),
    "equal-tensors": ("alike", [1, 0, 0, 0, 0, 0], 1),
    "labels-shifted": ("not-next", [0.02] * 6, 1),
    "active-labels": ("ignored", [0.01] * 6, 3),
    "repeated-batches": ("seen-before", [0, 1, 1, 1, 1, 1], 2),
    "repeated-order": ("same-order", [1] * 6, 3),
    "repeated-rows": ("same-rows", [4] * 6, 3),
    "degenerate-batch": ("one-token", [1.0] * 6, 1),
    "held-out-rows": ("trained-on", [0, 0, 0.1, 0.2, 0.5, 1], 3),
    "padded-targets": ("learned", [0.5] * 6, 3),
    "row-passes": ("over-and-over", [1, 2, 3, 41, 42, 100], 4),
    "training-mode": ("evaluating", [0, 0, 0, 0, 30, 30], 5),
    "context-use": ("no-context", [0.0] * 6, 3),
    "evaluation-mode": ("as-trained", [0, 0, 0, 2, 0, 2], 4),
    "batch-independence": ("mixed-rows", [0.3] * 6, 1),
    "causality": ("sees-ahead", [0.3] * 6, 1),
    "activation-anomaly": ("outside-band", [4e5, 1e5, 3e3, 866, 672, 483], 1),
    "gradient-check": ("wrong-backward", [0.5] * 6, 1),
    "logits-sanity": ("no-better", [-0.05] * 6, 2),
    "masked-padding": ("attended", [0.3] * 6, 3),
    "evaluation-repeats": ("differs", [0.01] * 6, 1),
}


def judged(name: str, values: Sequence[float]) -> Verdict:
    """Return the verdict of a rule with its defaults over the samples of its channel."""
    judged_as = HEALTHY[name][0]
    at = tuple(step + 20 for step in AT) if name == "skipped-updates" else AT  # a scaler finds its scale before
    of_logits = HEALTHY["reported-loss"][1]
    series = {"samples": (judged_as, values), "other": ("own_loss", of_logits[: len(values)])}
    evidence = {
        need: Measurement(
            quantity="step_series", value=Series(at[: len(given)], tuple(map(float, given))), at=named, by="test",
            examined=len(given), total=len(given),
        )
        for need, (named, given) in series.items()
    }  # fmt: skip
    rows = Rows("column", (column(judged_as, min=0.0, max=0.0, distinct=1),))  # constant, as most channels are
    evidence["columns"] = Measurement(quantity="step_columns", value=rows, by="test", examined=1, total=1)
    return KINDS[name].judge({need: evidence[need] for need in KINDS[name].needs}, read(KINDS[name].limits, {}))


def test_every_channel_rule_is_tried_here() -> None:
    assert set(HEALTHY) == set(FAULTS) == {name for name, module in MODULES.items() if module == "channel_rules"}


def test_what_has_a_rule_of_its_own_may_be_constant_in_a_log() -> None:
    assert {judged_as for judged_as, _ in HEALTHY.values()} - LOOKED_AT == {"loss"}


def test_what_the_recorder_writes_is_of_a_step_or_has_rules_of_its_own() -> None:
    pytest.importorskip("torch")
    from weighbridge.recorder.columns import OWN

    of_a_step = {"loss", "lr", "grad_norm", "tokens", "tokens_per_sec", "corpus_position", "wraps"}
    assert of_a_step | {"step", "wall_ms", "cpu_ms", "time", "monotonic_s"} == OWN - LOOKED_AT


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_channel_is_no_offence_at_the_default_cadence(name: str) -> None:
    assert judged(name, HEALTHY[name][1]).outcome is Outcome.PASS


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_as_soon_as_its_channel_shows_it(name: str) -> None:
    code, values, enough = FAULTS[name]
    assert judged(name, values[:enough]).code == code
    assert judged(name, values).code == code
    if enough > 1:
        assert judged(name, values[: enough - 1]).outcome is not Outcome.FAIL
