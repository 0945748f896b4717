"""One evaluation of a batch, and all that is looked at in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from weighbridge.diagnosis.activations import Activation, watching
from weighbridge.diagnosis.attention_maps import AttentionMap, attending
from weighbridge.diagnosis.class_losses import losses
from weighbridge.diagnosis.fixed_batch import IGNORED, Call, logits_of, run, scattered, targets, tokens


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What was seen of a batch; `lacking` says why attention was not, `loss` is the mean over places in float64."""

    activations: tuple[Activation, ...]
    attention: tuple[AttentionMap, ...]
    lacking: tuple[str, ...]
    loss: float | None


def look(model: torch.nn.Module, call: Call, causal: bool | None = None) -> Look:
    """Evaluate a batch; the caller sees to it that the model is in evaluation, and is one that may be called."""
    with torch.no_grad(), watching(model) as activations, attending(model) as (maps, lacking):
        output = run(model, call)
    loss = loss_of(call, logits_of(output), causal)
    return Look(tuple(activations), tuple(maps), tuple(lacking), loss)


def attention(model: torch.nn.Module, call: Call) -> tuple[AttentionMap, ...]:
    """Evaluate a batch, and return the attention alone."""
    with torch.no_grad(), attending(model) as (maps, _lacking):
        run(model, call)
    return tuple(maps)


def loss_of(call: Call, logits: torch.Tensor | None, causal: bool | None = None) -> float | None:
    """Return the mean loss of a batch whose labels go into the model, in float64; None of one without."""
    found = None if logits is None else targets(call, logits, causal)
    if found is None or not bool((found[1] != IGNORED).any()):
        return None
    return float(losses(*found).sum() / (found[1] != IGNORED).sum())


def shuffled(call: Call) -> Call | None:
    """Return the same batch with the tokens of each row in another order, always the same one; None without tokens."""
    if (ids := tokens(call)) is None:
        return None
    order = torch.argsort(scattered(ids.shape[1], torch.float64)).to(ids.device)
    return {name: value[:, order] if value is ids else value for name, value in call.items()}
