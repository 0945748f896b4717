"""Rules over how losses, evaluations and gradients of a run go, a row each."""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.beginning import first_off, left
from weighbridge.figures.levels import growth, lost
from weighbridge.figures.parting import parting
from weighbridge.figures.trailing import jump, spikes
from weighbridge.figures.waiting import waited, worse
from weighbridge.figures.whole import clipped, drop
from weighbridge.gates.families.levers import more_than, out_of_noise
from weighbridge.gates.families.relative import WITH_LOSS, WITH_VOCABULARY, ToLoss, ToVocabulary
from weighbridge.gates.families.rule import OfEnds, OfLevels, Rule
from weighbridge.gates.families.run_columns import OF_EVALUATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class OfVocabulary(ToVocabulary, OfEnds):
    """Which samples are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spikes:
    """What counts as a spike.

    It also lies above the median before it by a share of that: else a column that hardly moves would spike at every
    rounding. A rise of three units of the last decimal that is printed is rounding, too. Only what rises is a spike.
    """

    k: Annotated[float, Doc("robust standard deviations above the median before it", gt=0, le=1000, tight="down")] = 8.0
    min_rise: Annotated[float, Doc("share of that median that it must rise by, too", ge=0, le=10, tight="down")] = 0.05
    window: Annotated[int, Doc("samples before a sample that it is compared with", ge=5, le=10_000)] = 50
    warmup_steps: Annotated[int, Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")] = 100
    or_first: Annotated[bool, Doc("the share is of the first window's median, where that is greater")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfLast(ToLoss):
    """What is compared with the best."""

    median_of: Annotated[int, Doc("evaluations at the end whose median is compared", ge=1, le=1000)] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the run waited."""

    patience: Annotated[int, Doc("evaluations without a new best after which it stops", ge=1, le=1000)] = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Jumps:
    """What a norm is compared with."""

    window: Annotated[int, Doc("samples before a sample that it is compared with", ge=5, le=10_000)] = 30
    warmup_steps: Annotated[int, Doc("first steps that are not looked at", ge=0, le=10**9, tight="down")] = 0
    or_first: Annotated[bool, Doc("compare with the median of the first window, where that is greater")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(OfLevels):
    """What a level is compared with."""

    window: Annotated[int, Doc("samples from the level that one is compared with", ge=1, le=10_000)] = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipped:
    """What a norm is clipped to."""

    clip: Annotated[float, Doc("norm from which gradients are clipped", gt=0, le=1e30)]


RULES = (
    # The loss.
    Rule(name="first-loss", version=2, column="loss", figure=first_off, code="off", must=("at most",), bound=0.1, ge=0,
         min_samples=1, looked_at=(0, 1), doc="the share by which the first sample is off ln V", options=ToVocabulary,
         levers=("the first up", "the first down"), relative=WITH_VOCABULARY, guards=OF_EVALUATIONS),
    Rule(name="beyond-chance", version=2, column="loss", figure=left, code="not-learned", must=("at most",), bound=0.9,
         min_samples=20, doc="the share of ln V, or of a lower first median, that is left", levers=("all up",),
         options=OfVocabulary, relative=WITH_VOCABULARY),
    Rule(name="learning-progress", version=2, column="loss", figure=drop, code="no-progress", must=("at least",),
         bound=0.05, le=1, min_samples=20, doc="the share by which the last median lies below the first",
         levers=("all up",), options=OfEnds),
    Rule(name="loss-spike", version=5, column="loss", figure=spikes, code="spikes", must=("at most",), bound=0, ge=0,
         le=10**9, doc="the number of spikes", options=Spikes, window=False,
         own_levers={"at the end": more_than("at_most_spikes"), "out of noise": out_of_noise("at_most_spikes")},
         reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples)),
    Rule(name="diverging", version=3, column="loss", figure=lost, code="diverged", must=("at most",), bound=0.25, ge=0,
         min_samples=20, doc="the share of the loss at first by which a level lies above the best before it",
         options=OfLevels, own_levers={"the last ones up": more_than("median_of")},
         checks=lambda limits: [] if limits.min_samples > limits.median_of else ["min_samples must exceed median_of"]),
    # Evaluations.
    Rule(name="validation-parting", version=3, column="val_loss", figure=parting, code="parted", must=("at most",),
         bound=0.1, ge=0, doc="the share of its best by which an evaluation rose", options=OfLast, relative=WITH_LOSS,
         min_samples=5, own_levers={"the last ones up": more_than("median_of")}, guards=OF_EVALUATIONS,
         checks=lambda of: [] if of.min_samples > of.median_of + 1 else ["min_samples must be median_of + 2"]),
    Rule(name="stops-in-time", version=2, column="val_loss", figure=waited, code="went-on", must=("at most",), bound=2,
         ge=1, le=10**6, doc="the number of evaluations after the best", min_samples=4, guards=OF_EVALUATIONS,
         own_levers={"the last ones up": more_than("at_most_evaluations")},
         checks=lambda of: (
             [] if of.min_samples > of.at_most_evaluations + 1 else ["min_samples must exceed the patience by two"])),
    Rule(name="stopped-beyond-noise", version=2, column="val_loss", figure=worse, code="stopped-on-noise",
         must=("above",), bound=2.0, doc="how far the wait lies above the best", levers=("the last down",),
         options=Patience, min_samples=6, guards=OF_EVALUATIONS),
    # Gradients.
    Rule(name="gradient-jump", version=3, column="grad_norm", figure=jump, code="jumped", must=("at most",), bound=10.0,
         window=False, doc="a sample over the median of the window before it", levers=("the last up",), options=Jumps,
         min_samples=20, reach=lambda limits: (limits.warmup_steps, limits.window + limits.min_samples)),
    Rule(name="gradient-growth", version=2, column="grad_norm", figure=growth, code="grew", must=("at most",), ge=0,
         bound=20.0, doc="a level over the greater of the first and the one a window before it", options=Window,
         min_samples=60, own_levers={"the last ones up": more_than("median_of")},
         checks=lambda of: (
             [] if of.min_samples > of.median_of + of.window else ["min_samples must exceed median_of + window"])),
    Rule(name="clip-share", version=2, column="grad_norm", figure=clipped, code="clipped", must=("at most",), bound=0.5,
         ge=0, le=1, doc="the share of the norms at the limit and beyond", levers=("all up",), options=Clipped),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
