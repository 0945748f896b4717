"""Which columns a row has: by which channel, in which steps, and which of them a failure makes unreliable."""

from __future__ import annotations

from weighbridge.quantities.runs import INSIDE
from weighbridge.recorder.beside.memorized import Memorized
from weighbridge.recorder.channels import Channel
from weighbridge.recorder.hook_points import PHASES
from weighbridge.recorder.learning.gradients import EditedGradients, Ownership, StaleGradients
from weighbridge.recorder.learning.loss_scale import LossScale
from weighbridge.recorder.learning.weights import CountedWrites, FirstWeights, Weights, WeightWrites
from weighbridge.recorder.passes.batches import Batches, HeldOut, Modes
from weighbridge.recorder.passes.probes import Evaluations, Targets
from weighbridge.recorder.updates import Hyperparameters, Norms, StepCounters

POSITION = ("tokens", "corpus_position", "wraps")
CHANNELS: tuple[type[Channel], ...] = (
    *(Hyperparameters, Norms, StepCounters, LossScale, EditedGradients, StaleGradients, Ownership),
    *(CountedWrites, WeightWrites, Weights, FirstWeights, Batches, HeldOut, Modes, Evaluations, Targets),
)
SEEN = (*PHASES, *(column for channel in CHANNELS for column in channel.columns))
AT_CADENCE = {column for channel in CHANNELS if not channel.every_step for column in channel.columns}
# The columns and events that a failure in a method makes unreliable; in one that is not listed, all of them.
COSTS = {
    "step": ("loss", "wall_ms", "cpu_ms", "cost_ms", "tokens_per_sec", *POSITION, *SEEN, "skipped", *INSIDE),
    "_watch": (*SEEN, "skipped"),
    "_probe": ("device",),
    "fetching": ("device",),
    "batch_drawn": (*POSITION, "device"),
    "pass_began": POSITION,
    "gave_nothing": POSITION,
    "checkpoint": ("checkpoint",),
    "_digest": ("digests",),
    "_seal": (*Memorized.columns, "digests"),
    "_look_closer": ("analysis",),
}
ALL = (*COSTS["step"], "device")
OWN = frozenset({"step", *COSTS["step"]}).difference(INSIDE)  # which a script may measure itself
