"""Rules over how columns of a run go, a row each: any of them, losses, evaluations, gradients, rates and times."""

from weighbridge.clauses.kind import settings
from weighbridge.core import Doc
from weighbridge.figures.references import SUMMARIES, extreme, off_schedule, spent, summary
from weighbridge.figures.trailing import growth, jump, lost, spikes
from weighbridge.figures.waiting import parting, silence, waited, worse
from weighbridge.figures.whole import clipped, drop, first_off, left, spread, within
from weighbridge.gates.channel_rules import TWENTY, channel, worst
from weighbridge.gates.families.levers import beyond_the_bound, early_end, lift, more_than, out_of_noise, violations
from weighbridge.gates.families.relative import AS_GIVEN, RELATIVE_TO, WITH_LOSS, WITH_VOCABULARY
from weighbridge.gates.families.rule import Must, Rule
from weighbridge.gates.families.run_columns import FINITE, LOGGED, OF_EVALUATIONS, RISING, genuine

WARM_UP = Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")
ENDS = settings(samples_each=(int, Doc("samples at each end whose medians are compared", ge=1, le=10_000), 5))
LEVELS = settings(median_of=(int, Doc("samples in a row whose median is a level", ge=1, le=10_000), 10))
SCHEDULED = settings(  # a linear warm-up from 0 to the peak, and then down, or on
    schedule=(str, Doc("how it falls after warm-up", choices=("constant", "linear", "cosine"))),
    peak=(float, Doc("learning rate after warm-up", gt=0, le=1e6)),
    total_steps=(int, Doc("step at which it has come down", ge=1, le=10**12)),
    warmup_steps=(int, Doc("steps of warm-up", ge=0, le=10**12), 0),
    last=(float, Doc("learning rate that it comes down to", ge=0, le=1e6), 0.0),
    ahead=(
        int,
        Doc("steps that the schedule is ahead of the log; a skipped update sets it back", ge=-(10**6), le=10**6),
        0,
    ),
)
WITHIN = settings(
    least=(float | None, Doc("the least that a sample may be", ge=-1e308, le=1e308), None),
    most=(float | None, Doc("the most that a sample may be", ge=-1e308, le=1e308), None),
)
EACH = settings(
    relative_to=RELATIVE_TO,
    violations=(int, Doc("samples that may lie beyond the bound", ge=0, le=10**9, tight="down"), 0),
)
SUMMARY = settings(
    relative_to=RELATIVE_TO,
    statistic=(str, Doc("what of the samples, and of their reference", choices=tuple(SUMMARIES)), "last"),
)
# A spike also lies above the median before it by a share of that: else a column that hardly moves would spike at every
# rounding. A rise of three units of the last decimal that is printed is rounding, too. Only what rises is a spike.
SPIKES = settings(
    k=(float, Doc("robust standard deviations above the median before it", gt=0, le=1000, tight="down"), 8.0),
    min_rise=(float, Doc("share of that median that it must rise by, too", ge=0, le=10, tight="down"), 0.05),
    window=(int, Doc("samples before a sample that it is compared with", ge=5, le=10_000), 50),
    warmup_steps=(int, WARM_UP, 100),
    or_first=(bool, Doc("the share is of the first window's median, where that is greater"), False),
)
LAST = settings(median_of=(int, Doc("evaluations at the end whose median is compared", ge=1, le=1000), 3))
PATIENCE = settings(patience=(int, Doc("evaluations without a new best after which it stops", ge=1, le=1000), 2))
JUMPS = settings(
    window=(int, Doc("samples before a sample that it is compared with", ge=5, le=10_000), 30),
    warmup_steps=(int, WARM_UP, 0),
    or_first=(bool, Doc("compare with the median of the first window, where that is greater"), False),
)
GROWTH = settings(LEVELS, window=(int, Doc("samples from the level that one is compared with", ge=1, le=10_000), 40))
CLIPPED = settings(clip=(float, Doc("norm from which gradients are clipped", gt=0, le=1e30)))
EITHER: tuple[Must, ...] = ("at most", "below", "at least", "above")
RULES = (
    # Any column.
    Rule(name="series-bound", version=5, column="loss", figure=extreme, code="beyond", must=EITHER, min_samples=2,
         doc="each sample, or its share of the reference", options=EACH, relative=AS_GIVEN, guards=OF_EVALUATIONS,
         own_levers={"at the end": violations(at_the_end=True), "at the beginning": violations(at_the_end=False)},
         reach=lambda limits: (0, limits.min_samples + 2 * limits.violations + 1)),
    Rule(name="summary-bound", version=5, column="loss", figure=summary, code="beyond", must=EITHER, min_samples=2,
         doc="the statistic, or its share of the same", options=SUMMARY, relative=AS_GIVEN, guards=OF_EVALUATIONS,
         own_levers={"beyond the bound": beyond_the_bound}),
    Rule(name="share-within", version=3, column="gpu_util_pct", figure=within, code="too-few-within",
         must=("at least",), ge=1e-9, le=1, doc="the share of the samples between both", options=WITHIN, min_samples=20,
         own_levers={"all out": lambda *moved: lift(None, None, -1 if moved[-1].most is None else 1)(*moved)},
         checks=lambda limits: [] if (limits.least, limits.most) != (None, None) else ["give least or most"]),
    # The loss.
    Rule(name="first-loss", version=3, column="loss", figure=first_off, code="off", must=("at most",), bound=0.1, ge=0,
         min_samples=1, looked_at=(0, 1), doc="the share by which the first sample is off ln V",
         levers=("the first up", "the first down"), relative=WITH_VOCABULARY, guards=OF_EVALUATIONS),
    Rule(name="beyond-chance", version=3, column="loss", figure=left, code="not-learned", must=("at most",), bound=0.9,
         min_samples=20, doc="the share of ln V, or of a lower first median, that is left", levers=("all up",),
         options=ENDS, relative=WITH_VOCABULARY),
    Rule(name="learning-progress", version=3, column="loss", figure=drop, code="no-progress", must=("at least",),
         bound=0.05, le=1, min_samples=20, doc="the share by which the last median lies below the first",
         levers=("all up",), options=ENDS),
    Rule(name="loss-spike", version=6, column="loss", figure=spikes, code="spikes", must=("at most",), bound=0, ge=0,
         le=10**9, doc="the number of spikes", options=SPIKES, window=False,
         own_levers={"at the end": more_than("at_most_spikes"), "out of noise": out_of_noise("at_most_spikes")},
         reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples)),
    Rule(name="diverging", version=5, column="loss", figure=lost, code="diverged", must=("at most",), bound=0.25, ge=0,
         min_samples=20, doc="the share of the loss at first by which a level lies above the best before it",
         options=LEVELS, own_levers={"the last ones up": more_than("median_of")},
         checks=lambda limits: [] if limits.min_samples > limits.median_of else ["min_samples must exceed median_of"]),
    # Evaluations.
    Rule(name="validation-parting", version=4, column="val_loss", figure=parting, code="parted", must=("at most",),
         bound=0.1, ge=0, doc="the share of its best by which an evaluation rose", options=LAST, relative=WITH_LOSS,
         min_samples=5, own_levers={"the last ones up": more_than("median_of")}, guards=OF_EVALUATIONS,
         checks=lambda of: [] if of.min_samples > of.median_of + 1 else ["min_samples must be median_of + 2"]),
    Rule(name="stops-in-time", version=3, column="val_loss", figure=waited, code="went-on", must=("at most",), bound=2,
         ge=1, le=10**6, doc="the number of evaluations after the best", min_samples=4, guards=OF_EVALUATIONS,
         own_levers={"the last ones up": more_than("at_most_evaluations")},
         checks=lambda of: (
             [] if of.min_samples > of.at_most_evaluations + 1 else ["min_samples must exceed the patience by two"])),
    Rule(name="stopped-beyond-noise", version=4, column="val_loss", figure=worse, code="stopped-on-noise",
         must=("above",), bound=2.0, doc="how far the wait lies above the best", levers=("the last down",),
         options=PATIENCE, min_samples=6, guards=OF_EVALUATIONS),
    # Gradients.
    Rule(name="gradient-jump", version=4, column="grad_norm", figure=jump, code="jumped", must=("at most",), bound=10.0,
         window=False, doc="a sample over the median of the window before it", levers=("the last up",), options=JUMPS,
         min_samples=20, reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples)),
    Rule(name="gradient-growth", version=3, column="grad_norm", figure=growth, code="grew", must=("at most",), ge=0,
         bound=20.0, doc="a level over the greater of the first and the one a window before it", options=GROWTH,
         min_samples=60, own_levers={"the last ones up": more_than("median_of")},
         checks=lambda of: (
             [] if of.min_samples > of.median_of + of.window else ["min_samples must exceed median_of + window"])),
    Rule(name="clip-share", version=3, column="grad_norm", figure=clipped, code="clipped", must=("at most",), bound=0.5,
         ge=0, le=1, doc="the share of the norms at the limit and beyond", levers=("all up",), options=CLIPPED),
    # Rates and times.
    Rule(name="declared-schedule", column="lr", figure=off_schedule, code="off-schedule", must=("at most",), bound=1e-6,
         ge=0, doc="the share of the peak by which a sample is off", levers=("the last up", "the first down"),
         options=SCHEDULED, min_samples=2, guards=(genuine(), LOGGED, RISING, FINITE), version=2,
         checks=lambda of: [] if of.total_steps > of.warmup_steps else ["total_steps must exceed warmup_steps"]),
    channel("spent-schedule", "lr", 0.4, "spent", "the share of the rows behind the fall of the rate", figure=spent,
            own_levers={"an early end": early_end}, min_samples=20, le=1),
    worst("idle-rate", "lr", 1e-30, "no-rate", "the learning rate", must="at least", options=TWENTY),
    Rule(name="steady-rate", version=3, column="tokens_per_sec", figure=spread, code="unsteady", must=("at most",),
         bound=0.2, ge=0, doc="the standard deviation over the mean", min_samples=20,
         levers=("the last up", "the first up", "a zigzag")),
    # While a run goes on, the wait for the next row counts, too.
    Rule(name="row-gaps", column="monotonic_s", figure=silence, code="silent", must=("at most",), gt=0, ge=None,
         le=10**7, doc="the seconds from a row to the next", levers=("the last up",), min_samples=1,
         guards=(genuine(), RISING, FINITE)),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
