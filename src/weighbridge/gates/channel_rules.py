"""Rules over what the recorder looked at, a row each: a column, what a healthy run keeps it to, and what else is found.

A channel that could not look leaves its cell out, so one sample is enough to judge: it was looked at there. A rule that
asks for several in a row is for what healthy runs do once, as an adapter whose first gradients are all zero.
"""

from typing import Any

from weighbridge.clauses.kind import settings
from weighbridge.core import Doc
from weighbridge.figures.references import off, reached, sunk, undeclared
from weighbridge.figures.whole import latest
from weighbridge.gates.families.levers import more_than
from weighbridge.gates.families.relative import WHERE_LOOKED
from weighbridge.gates.families.rule import Must, Rule
from weighbridge.gates.families.run_columns import FINITE, RISING, genuine

IN_A_ROW = int, Doc("samples in a row that lie beyond the bound", ge=1, le=10_000, tight="down")
# Healthy runs do some of it once or twice.
ONCE, THRICE, TWENTY = (settings(in_a_row=(*IN_A_ROW, times)) for times in (1, 3, 20))
DECLARED = settings(declared=(int, Doc("the number that was declared", ge=0, le=10**9), 0))
LAST = 10**12  # a step that no run comes to


def channel(name: str, column: str, bound: float, code: str, doc: str, *, must: Must = "at most", **more: Any) -> Rule:
    """Return a rule over a channel, of which one sample is enough."""
    given = {"ge": 0, "min_samples": 1, "guards": (genuine(), RISING, FINITE), **more}
    return Rule(name=name, column=column, bound=bound, code=code, doc=doc, must=(must,), **given)


def worst(
    name: str, column: str, bound: float, code: str, doc: str, *, must: Must = "at most", options: type = ONCE,
    **more: Any,
) -> Rule:  # fmt: skip
    """Return a rule that so many samples of a channel in a row do not lie beyond a bound."""
    way, sign, figure = ("up", 1, reached) if must == "at most" else ("down", -1, sunk)
    return channel(
        name, column, bound, code, doc, must=must, figure=figure, options=options, min_samples=options().in_a_row,
        own_levers={f"the last ones {way}": more_than("in_a_row", 0, sign)},
        checks=lambda limits: [] if limits.min_samples >= limits.in_a_row else ["min_samples must be in_a_row or more"],
        **more,
    )  # fmt: skip


RULES = (
    # The loss and its gradient.
    channel("loss-scale", "loss_gradient_scale", 0.01, "off-scale", "the share by which a sample is off 1",
            figure=off, levers=("the last up", "the last down")),
    channel("reported-loss", "loss", 0.001, "misreported", "the share by which a sample is off what the logits give",
            figure=off, relative=WHERE_LOOKED, levers=("all up", "all down")),
    worst("edited-gradients", "gradient_edit_ratio", 1.01, "edited", "the largest over the least change of a norm"),
    worst("gradient-check", "gradient_error", 1e-3, "wrong-backward", "the share by which a gradient is off"),
    worst("turned-gradients", "gradient_cosine", 0.999, "turned",
          "the cosine of what arrived with what was used", must="at least"),
    worst("uncleared-gradients", "stale_gradients", 0, "uncleared", "the number of tensors that held one"),
    worst("dead-gradients", "zero_gradients", 0, "dead", "the number of tensors without one", options=THRICE),
    # The update and the weights.
    worst("optimizer-coverage", "unowned", 0, "unowned", "the number of tensors in none"),
    channel("frozen-parameters", "frozen", 0, "not-as-declared", "the number of tensors off the declared one",
            figure=undeclared, options=DECLARED, levers=("the last up",)),
    worst("unmoved-parameters", "unmoved", 0, "unmoved", "the number of tensors that stay", options=THRICE),
    worst("idle-updates", "idle_update", 0, "idle", "1 for a step that updated nothing, though it could"),
    worst("skipped-updates", "skipped", 0, "skipping", "1 for a step that updated nothing",
          options=THRICE, looked_at=(20, LAST)),
    worst("outside-writes", "outside_writes", 0, "written", "the number of tensors that were"),
    worst("single-updates", "updates", 1, "several", "the number of updates of a step"),
    worst("step-counters", "step_counter_lag", 0, "behind", "the number of updates that lack"),
    worst("weight-precision", "bf16_share", 0.9, "rounded", "the share of bf16 numbers", options=THRICE, le=1),
    # A fresh start.
    worst("initial-spread", "init_std_max", 0.2, "too-wide", "the widest weight's deviation", looked_at=(0, 1)),
    worst("equal-rows", "equal_rows", 0, "equal", "the number of weights of equal rows", looked_at=(0, 1)),
    worst("equal-tensors", "equal_tensors", 0, "alike", "the number of equal pairs", looked_at=(0, 1)),
    # Batches and labels.
    worst("labels-shifted", "target_is_next_share", 0.99, "not-next",
          "the share of targets that come next", must="at least"),
    worst("active-labels", "labels_active_share", 0.3, "ignored",
          "the share of labels that count", options=THRICE, must="at least"),
    worst("repeated-batches", "batch_repeats", 0, "seen-before", "1 for a batch that was seen"),
    worst("repeated-order", "order_repeats", 0, "same-order", "1 for a batch at its place of the last pass",
          options=THRICE),
    worst("repeated-rows", "repeated_rows_share", 0.25, "same-rows", "the share of rows that repeat",
          options=THRICE, le=1),
    worst("degenerate-batch", "top_token_share", 0.5, "one-token", "the share of the commonest token", le=1),
    worst("padded-targets", "padding_targets_share", 0.05, "learned", "the share of targets", options=THRICE, le=1),
    worst("row-passes", "row_passes", 40.0, "over-and-over", "how often a row was trained on at the mean"),
    worst("held-out-rows", "evaluation_rows_trained", 0.02, "trained-on", "the share of evaluated rows", le=1),
    # The model.
    worst("training-mode", "evaluating_modules", 0, "evaluating", "the number of modules in evaluation mode"),
    worst("evaluation-mode", "training_evaluations", 0, "as-trained", "the number of evaluations in training mode"),
    worst("batch-independence", "neighbour_change", 1e-5, "mixed-rows", "the change of the first row's logits"),
    worst("causality", "future_change", 1e-5, "sees-ahead", "the change of an earlier logit"),
    worst("context-use", "past_change", 1e-6, "no-context", "the change of a later logit",
          options=THRICE, must="at least"),
    worst("masked-padding", "padding_change", 1e-5, "attended", "the change of a logit", options=THRICE),
    worst("activation-anomaly", "activation_outlier", 10.0, "outside-band", "how many times the middle a block adds"),
    channel("logits-sanity", "logits_gain", 0.1, "no-better", "the nats by which logits are better than chance",
            must="at least", figure=latest, levers=("the last down",), min_samples=2, ge=-1e308),
    worst("evaluation-repeats", "evaluation_change", 0.0, "differs", "the difference of two evaluations"),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
