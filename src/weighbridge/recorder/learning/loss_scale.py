"""What the gradient of the logits tells of the loss: by what it was multiplied, and how large it was.

A row of it is s (p - onehot) / N for the cross-entropy of N rows times s, so that no label is needed: the target is its
only negative entry, or its only positive one where s is negative.
"""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from weighbridge.recorder.channels import Cell, Channel, Watched

ROWS = 64  # looked at of each pass
SURE = 0.01  # a target that is more probable than 1 minus this has too little gradient to tell its scale
CLOSE = 0.005  # of the scale: how far rows, and entries beside the target, may be off it
AGREEING = 0.9  # of the rows
UNEVEN = 1e-3  # of the mean probability: else smoothing looks like a scale
VARYING = 0.05  # of the mean: else a loss of probabilities looks like one of their logarithms
TOLD = 1e-3  # of the scale: what is less off it, targets without a gradient need not explain
IGNORED = -100  # by cross_entropy
WIDE = 2**22  # entries that are made float32 at once


class LossScale(Channel):
    """The scale, added up over an update's passes, the mean cross-entropy of rows that counted, and their share.

    A loss that is no multiple of plain cross-entropy (label smoothing, class weights, a penalty on the logits) leaves
    them out, and so does a scale below 1 that targets of all the probability explain, which have no gradient; one of
    probabilities in the place of logits is recognised.
    """

    columns = ("loss_gradient_scale", "own_loss", "labels_active_share")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._logits: torch.Tensor | None = None
        self._passes: list[torch.Tensor] = []
        self._sequences = 0  # of these passes
        self._items: Any = None  # by how many targets a Trainer has the model divide
        self._blind = False

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Keep the logits, without their graph, until their gradient is there."""
        rows = output.is_floating_point() and output.dim() > 1 and output.shape[-1] > 1
        self._logits = output.detach() if rows and not hasattr(output, "to_local") else None
        self._items = kwargs.get("num_items_in_batch")

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Look at one pass; those before do not count where gradients were cleared since."""
        logits, self._logits = self._logits, None
        if not self.watched.gradients():
            self._passes, self._sequences, self._blind = [], 0, False
        if logits is None or logits.shape != gradient.shape:
            self._blind = True
        else:
            self._sequences += len(logits)
            self._passes.append(_seen(logits.flatten(0, -2), gradient.flatten(0, -2), *lowest(self.watched, gradient)))

    def update_ended(self) -> None:
        """Divide by what a gradient scaler multiplied by, before that is changed."""
        if (scale := self.watched.scale) is not None:
            for one in self._passes:
                one[0] /= scale.to(one.device)

    def row(self) -> Mapping[str, Cell]:
        """Return them; of an update that nobody saw, the scaler is not known."""
        passes, self._passes, blind = self._passes, [], self._blind
        sequences, self._sequences, items, self._items = self._sequences, 0, self._items, None
        self._blind, self._logits = False, None
        if blind or not passes or not (self.watched.updated or self.watched.optimizer is None):
            return {}
        scale, total, count, rows, unsure = torch.stack([one.to(passes[0].device) for one in passes]).sum(0).unbind()
        used, most = count, count + unsure
        if items is not None:  # a Trainer counts the first label of a sequence of a GPT-2, which is no target
            counted = torch.as_tensor(items, device=count.device, dtype=count.dtype)
            used = torch.where((count <= counted) & (counted <= count + sequences), counted, count)
            most += sequences
        share = count / rows
        found = {"loss_gradient_scale": scale * used / count, "own_loss": total / used, "labels_active_share": share}
        below, still_below = (scale * one / count < 1 - TOLD for one in (used, most))
        untold = (unsure > 0) & below & ~still_below
        return {name: torch.where(untold, torch.nan, one) for name, one in found.items()}


def lowest(watched: Watched, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return of each row of the logits' gradient the least entry and where it is, of a cross-entropy the target."""
    if watched.lowest is None:
        watched.lowest = gradient.flatten(0, -2).min(-1)
    return watched.lowest


def _seen(logits: torch.Tensor, gradient: torch.Tensor, least: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the scale, the sum of the cross-entropies, how many rows, of how many, and how many more may count.

    NaN where the loss is another. A target that has all the probability has no gradient, and no loss.
    """
    waits, active = not gradient.is_cpu, least != 0  # elsewhere an answer is not waited for
    if some := waits or not active.all():
        active |= gradient.amax(-1) != 0
    rows, count = spread(active), active.sum()
    rises, p = gradient[rows].float() * count, logits[rows].float().softmax(-1)
    found, known = _cross_entropy(rises, p, targets[rows], least[rows] != 0)
    if waits or not known:
        most, highest = gradient.max(-1)
        negated, fits = _cross_entropy(rises, p, highest[rows], most[rows] != 0)
        known = known | _of_probabilities(rises, p, targets[rows], active[rows][:, None])
        found = torch.where(known, found, torch.where(fits, negated, torch.nan))
        targets, least = torch.where(known, targets, highest), torch.where(known, least, most)
    size, total = max(1, WIDE // logits.shape[-1]), torch.zeros((), device=logits.device)
    unsure, faint = torch.zeros_like(total), torch.finfo(gradient.dtype).smallest_normal * count / found.abs()
    parts = (torch.split(one, size) for one in (logits, targets.where(least != 0, IGNORED), active))
    for part, at, counts in zip(*parts, strict=True):
        wide = part.float()
        total += cross_entropy(wide, at, reduction="sum")
        if some:
            unsure += (~counts & (wide.logsumexp(-1) - wide.amax(-1) <= faint)).sum()
    stacked = torch.stack([found, total, count.to(total.dtype), total.new_full((), len(active)), unsure])
    return torch.where(found.isnan(), torch.nan, stacked)


def spread(active: torch.Tensor) -> torch.Tensor:
    """Choose rows that count, all over the batch and without asking the device how many there are."""
    place = _places(active.shape[0], active.device)
    return torch.topk(active * place, min(ROWS, active.shape[0]), sorted=False).indices


@functools.lru_cache(4)
def _places(size: int, device: torch.device) -> torch.Tensor:
    return 1 + torch.arange(size, device=device) * 0.6180339887 % 1


def _cross_entropy(
    rises: torch.Tensor, p: torch.Tensor, target: torch.Tensor, active: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale by the targets, and whether all rows and all entries beside the targets agree with it.

    Beside the target a rise is s p; under label smoothing it is p - ε/V, which a line through them tells by its height.
    """
    at = target[:, None]
    beside = torch.ones_like(p).scatter_(-1, at, 0)
    rest = (p * beside).sum(-1)
    by_row = torch.where(active & (rest > SURE), -rises.gather(-1, at)[:, 0] / rest, torch.nan)
    scale, known = by_row.nanmedian(), ~by_row.isnan()
    near = CLOSE * scale.abs()
    agreeing = ((by_row - scale).abs() <= near).sum() >= AGREEING * known.sum()
    beside *= known[:, None]
    count, p, rises = beside.sum(), p * beside, rises * beside
    mean_p, mean = p.sum() / count, rises.sum() / count
    off = (p - mean_p) * beside
    spread = off.square().sum()
    slope = (off * rises).sum() / spread
    level = (mean - slope * mean_p) * p.shape[-1]
    on_line = ((slope - scale).abs() <= near) & (level.abs() <= near) & (spread > count * (UNEVEN * mean_p) ** 2)
    return scale, agreeing & on_line


def _of_probabilities(rises: torch.Tensor, p: torch.Tensor, at: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return whether the loss took probabilities for logits, or for their logarithms."""
    hot = torch.arange(p.shape[-1], device=p.device) == at[:, None]
    of_targets = p.masked_fill(~hot, 0).sum(-1, keepdim=True).masked_fill(~counted, torch.nan)
    mean = of_targets.nanmean()
    varies = (of_targets - mean).square().nanmean() > (VARYING * mean) ** 2
    found = torch.zeros_like(varies)
    for inner in (p.softmax(-1) - hot.float(), -hot.float()):
        shape = (p * (inner - (p * inner).sum(-1, keepdim=True))).masked_fill(~counted, 0)
        off = rises - shape * (rises * shape).sum() / shape.square().sum()
        found |= off.square().sum() <= CLOSE**2 * rises.square().sum()
    return found & varies
