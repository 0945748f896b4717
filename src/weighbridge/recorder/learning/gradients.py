"""What happened to gradients between their arrival and the update, tensor by tensor, and which there were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import Cell, Channel
from weighbridge.recorder.learning.tensor_norms import gradient_norms, here, samples

FAINT = 1e-9  # of the largest norm: what is below is noise of rounding
MOST_NODES = 1000  # of a graph that are gone through: a weight is made in a few


class EditedGradients(Channel):
    """How unevenly norms were scaled (clipping is even), the least cosine of samples, and how many have no gradient."""

    columns = ("gradient_edit_ratio", "gradient_cosine", "zero_gradients")

    _arrived: tuple[list[int], torch.Tensor, torch.Tensor] | None = None  # tensors, norms, samples

    def backward_ended(self) -> None:
        """Keep what arrived."""
        self._arrived = self._now()

    def update_ended(self) -> None:
        """Compare it with what was used, where that is of the same tensors."""
        before, after = self._arrived, self._now()
        self._arrived = None
        trained = {id(one) for one in self.watched.trained()}
        self.found = {"zero_gradients": float(len(trained))}
        if after is not None:
            given = after[1] != 0
            counted = given if trained.issuperset(after[0]) else given[[one in trained for one in after[0]]]
            self.found = {"zero_gradients": len(trained) - counted.sum()}
        if before is None or after is None or before[0] != after[0]:
            return
        (_, arrived, was), (_, used, now) = before, after
        if used.is_cpu and torch.equal(arrived, used) and torch.equal(was, now) and was.any():
            self.found |= {"gradient_edit_ratio": 1.0, "gradient_cosine": 1.0}
            return
        seen = arrived > FAINT * arrived.max()
        by_tensor = used / arrived
        largest, least = (by_tensor.where(seen, -torch.inf).max(), by_tensor.where(seen, torch.inf).min())
        cosines = torch.nn.functional.cosine_similarity(_in_range(was), _in_range(now), eps=1e-12)
        known = seen & (was != 0).any(1) & (used != 0)
        self.found |= {
            "gradient_edit_ratio": largest / least,
            "gradient_cosine": torch.where(known.any(), cosines.where(known, torch.inf).min(), torch.nan),
        }

    def row(self) -> Mapping[str, Cell]:
        """Return what the update was found to use."""
        self._arrived = None
        return super().row()

    def _now(self) -> tuple[list[int], torch.Tensor, torch.Tensor] | None:
        ids = [id(one) for one in self.watched.parameters() if one.grad is not None]
        gradients = self.watched.gradients()
        return (ids, gradient_norms(self.watched, gradients), samples(here(gradients))) if ids else None


class StaleGradients(Channel):
    """How many tensors had a gradient left of the step before when the first of this one arrived."""

    columns = ("stale_gradients",)

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Count them in the first pass of a step."""
        if not self.found:
            gradients = self.watched.gradients()
            left = (gradient_norms(self.watched, gradients) != 0).sum() if gradients else 0.0
            self.found["stale_gradients"] = left


class Ownership(Channel):
    """How many tensors that are trained no optimizer holds, and how many are not trained.

    A module may train what it has not registered: a parameter in a plain list, or one that was moved after it was made.
    """

    columns = ("unowned", "frozen")
    _unregistered: tuple[torch.Tensor, ...] | None = None

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Find what is not registered, before modules keep what a pass makes."""
        if self._unregistered is None:
            own = {id(one): one for module in self.watched.model.modules() for one in _leaves(vars(module))}
            for one in self.watched.parameters():
                own.pop(id(one), None)
            self._unregistered = tuple(own.values())

    def row(self) -> Mapping[str, Cell]:
        """Count them; an optimizer of copies in float32 holds none of a narrow model's own."""
        parameters = self.watched.parameters()
        training = [one for one in parameters if one.requires_grad]
        found: dict[str, Cell] = {"frozen": float(len(parameters) - len(training))}
        if self.watched.optimizer is not None:
            owned = {id(one) for one in self.watched.owned()}
            unowned = sum(id(one) not in owned for one in training)
            missed = sum(one.grad is not None and id(one) not in owned for one in self._unregistered or ())
            if unowned < len(training) or all(one.element_size() >= 4 for one in training):
                found["unowned"] = float(unowned + missed)
        return found


def _leaves(attributes: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Give the tensors with a gradient that a module's attributes are, hold in a list or a mapping, or were made of."""
    for kept in attributes.values():
        several = kept.values() if isinstance(kept, Mapping) else kept if isinstance(kept, (list, tuple)) else [kept]
        for one in several:
            if isinstance(one, torch.nn.Module) and kept is not attributes.get("_modules"):
                yield from one.parameters()
            elif isinstance(one, torch.Tensor) and one.requires_grad:
                yield from [one] if one.is_leaf else _made_of(one)


def _made_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    waiting, seen = [tensor.grad_fn], set[Any]()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
        if hasattr(node, "variable"):
            yield node.variable


def _in_range(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.abs().amax(1, keepdim=True)
