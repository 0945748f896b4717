"""Whether a backward pass gives the gradient of its forward pass: central differences of a loss, in float64."""

import copy
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from weighbridge.diagnosis.fixed_batch import Call, logits_of, run, scattered
from weighbridge.forward.widened import widened

STEP = 1e-6  # less than from one kink of a ReLU to the next
FLOOR = 1e-4  # of the largest difference: of less, as of a bias of keys, much is rounding


class Difference(NamedTuple):
    """Of one tensor along one direction: the difference of the loss, what the gradient says, and how far they part."""

    name: str
    difference: float
    gradient: float
    error: float


def differences(model: torch.nn.Module, call: Call) -> list[Difference]:
    """Return those of the first tensor of each kind, along the largest entry of its gradient, and one drawn."""
    wide, found = copy.deepcopy(model).double(), list[tuple[str, float, float]]()
    floats = {name: one.double() for name, one in call.items() if torch.is_tensor(one) and one.is_floating_point()}
    trained = [(name, one) for name, one in wide.named_parameters() if one.requires_grad and one.numel()]
    padding = {id(one.weight): one.padding_idx for one in wide.modules() if isinstance(one, torch.nn.Embedding)}

    def loss() -> torch.Tensor:
        torch.manual_seed(0)  # for what is drawn in evaluation, too
        return loss_of(run(wide, call | floats))

    with widened():
        with torch.enable_grad():
            loss().backward()  # type: ignore[no-untyped-call]
        kinds = {(re.sub(r"\d+", "*", name), one.shape): (name, one) for name, one in reversed(trained)}
        for name, one in kinds.values():
            gradient = torch.zeros_like(one) if one.grad is None else one.grad
            top, drawn = torch.zeros_like(one), scattered(one.numel(), one.dtype).to(one.device).view_as(one)
            top.view(-1)[gradient.abs().argmax()] = 1
            if (row := padding.get(id(one))) is not None:  # which gets no gradient, as is meant
                drawn[row] = 0
            for along in (top, drawn / drawn.norm()):
                with torch.no_grad():
                    one.add_(along, alpha=STEP)
                    more = loss()
                    one.sub_(along, alpha=2 * STEP)
                    less = loss()
                    one.add_(along, alpha=STEP)
                found.append((name, float(more - less) / (2 * STEP), float((gradient * along).sum())))
    floor = FLOOR * max((abs(one) for _, *both in found for one in both), default=0.0) or 1.0
    return [Difference(*one, abs(one[1] - one[2]) / (max(map(abs, one[1:])) + floor)) for one in found]


def loss_of(output: Any) -> torch.Tensor:
    """Return the loss that a model gives, else that of class 0 in all places, whose gradient serves as well."""
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    for one in parts:
        if isinstance(one, torch.Tensor) and not one.dim() and one.is_floating_point():
            return one
    if (logits := logits_of(output)) is None:
        raise ValueError("the model gives neither a loss nor logits")
    return -logits.log_softmax(-1)[..., 0].mean()
