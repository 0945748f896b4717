"""One evaluation of a batch, and all that is looked at in it; losses of its places in float64, by class."""

import math
from dataclasses import dataclass
from functools import partial

import torch

from weighbridge.diagnosis.activations import Activation, watching
from weighbridge.diagnosis.attention_maps import AttentionMap, attending
from weighbridge.diagnosis.fixed_batch import IGNORED, Call, logits_of, run, scattered, targets, tokens

AT_ONCE = 2**22  # logits in float64


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
    return Look(tuple(activations), tuple(maps), tuple(lacking), loss_of(model, call, logits_of(output), causal))


def attention(model: torch.nn.Module, call: Call) -> tuple[AttentionMap, ...]:
    """Evaluate a batch, and return the attention alone."""
    with torch.no_grad(), attending(model) as (maps, _lacking):
        run(model, call)
    return tuple(maps)


def loss_of(
    model: torch.nn.Module, call: Call, logits: torch.Tensor | None, causal: bool | None = None
) -> float | None:
    """Return the mean loss of a batch whose labels go into the model, in float64; None of one without."""
    found = None if logits is None else targets(model, call, logits, causal)
    if found is None or not bool((found[1] != IGNORED).any()):
        return None
    return float(losses(*found).sum() / (found[1] != IGNORED).sum())


def shuffled(call: Call) -> Call | None:
    """Return the same batch with the tokens of each row in another order, always the same one; None without tokens."""
    if (ids := tokens(call)) is None:
        return None
    order = torch.argsort(scattered(ids.shape[1], torch.float64)).to(ids.device)
    return {name: value[:, order] if value is ids else value for name, value in call.items()}


@dataclass(frozen=True, slots=True)
class Moments:
    """So many values, their mean, and the sum of squares about it."""

    count: int = 0
    mean: float = math.nan
    squares: float = 0.0

    @property
    def std(self) -> float:
        """Return the deviation of a sample; NaN of fewer than two values."""
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else math.nan

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of both together; nothing is added by none."""
        if not self.count or not other.count:
            return self if self.count else other
        count, apart = self.count + other.count, other.mean - self.mean
        squares = self.squares + other.squares + apart * apart * self.count * other.count / count
        return Moments(count, self.mean + apart * other.count / count, squares)


def moments(values: torch.Tensor) -> "Moments":
    """Return the moments of values, in float64 and in two passes."""
    wide = values.detach().double()
    if not wide.numel():
        return Moments()
    mean = wide.mean()
    return Moments(wide.numel(), *torch.stack([mean, (wide - mean).square().sum()]).tolist())


def losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each place in float64, 0 where it is ignored; a few places are widened at a time."""
    places = max(AT_ONCE // logits.shape[-1], 1)
    parts = zip(torch.split(logits.detach(), places), torch.split(labels, places), strict=True)
    of_each = partial(torch.nn.functional.cross_entropy, ignore_index=IGNORED, reduction="none")
    return torch.cat([of_each(some.double(), wanted.long()) for some, wanted in parts])


def by_class(found: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor) -> "dict[int, Moments]":
    """Return the moments of the losses of each class, over the places that count; `classes` is one for each place."""
    counted, classes = labels != IGNORED, classes.to(labels.device)
    return {int(kind): moments(found[counted & (classes == kind)]) for kind in torch.unique(classes).tolist()}


def spread_out(classes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor | None:
    """Return a class for each place from one for each row or each place; None where they do not go into each other."""
    places = labels.numel()
    shifted = classes.dim() == 2 and classes[:, 1:].numel() == places  # as the labels were
    flat = classes[:, 1:].flatten() if shifted else classes.flatten()
    each = places // max(len(flat), 1)
    return flat.repeat_interleave(each) if len(flat) and each * len(flat) == places else None
