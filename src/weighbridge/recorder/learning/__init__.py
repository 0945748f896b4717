"""Channels over what learns: the loss, gradients, weights and the optimizer."""

from weighbridge.recorder.learning.gradients import EditedGradients, Ownership, StaleGradients
from weighbridge.recorder.learning.loss_scale import LossScale
from weighbridge.recorder.learning.step_counters import StepCounters
from weighbridge.recorder.learning.weight_writes import CountedWrites, WeightWrites
from weighbridge.recorder.learning.weights import FirstWeights, Weights

LEARNING = (
    *(StepCounters, LossScale, EditedGradients, StaleGradients, Ownership, CountedWrites, WeightWrites),
    *(Weights, FirstWeights),
)
