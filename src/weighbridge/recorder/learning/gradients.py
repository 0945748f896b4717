"""What happened to gradients between their arrival and the update, tensor by tensor, which there were, and norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import gradient_norms, here, norms, samples

FAINT = 1e-9  # of the largest norm: what is below is noise of rounding
MOST_NODES = 1000  # of a graph that are gone through: a weight is made in a few
MOST_COPIED = 2**26  # bytes of weights: more are not held twice


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


class Layers(Channel):
    """A row for each tensor that is trained, at the default cadence even where all else is looked at in every step."""

    columns = ("layers",)

    def __init__(self, watched: Watched, every: int) -> None:
        super().__init__(watched)
        self.period = every
        self._norms: dict[str, tuple[list[int], torch.Tensor]] = {}
        self._copies: tuple[list[int], list[torch.Tensor]] | None = None
        self.rows: list[dict[str, Any]] = []  # that are yet to be written

    def backward_ended(self) -> None:
        """Measure the gradients as they arrived."""
        self._take("grad", graded=True)

    def update_begins(self) -> None:
        """Copy the weights of a small model."""
        weights = self.watched.trained()
        if sum(one.numel() * one.element_size() for one in weights) <= MOST_COPIED:
            self._copies = [id(one) for one in weights], [one.clone() for one in here(weights)]

    def update_ended(self) -> None:
        """Measure the gradients as they were used, the weights, and by how much they moved."""
        self._take("grad_used", graded=True)
        self._take("weight", graded=False)
        ids, copies = self._copies or ([], [])
        if ids and ids == self._norms["weight"][0]:
            torch._foreach_sub_(copies, here(self.watched.trained()))
            self._norms["update"] = ids, norms(copies)
        self._copies = None
        if (scale := self.watched.scale) is not None and (arrived := self._norms.get("grad")) is not None:
            self._norms["grad"] = arrived[0], arrived[1] / scale.to(arrived[1].device)

    def row(self) -> dict[str, Cell]:
        """Bring all to the host at once; of a step without an update there is no row."""
        found, self._norms, self._copies = self._norms, {}, None
        if "weight" not in found:
            return {}
        together = iter(torch.cat([one.float() for _, one in found.values()]).tolist())
        by_tensor: dict[int, dict[str, float]] = {}
        for name, (ids, _) in found.items():
            for one in ids:
                by_tensor.setdefault(one, {})[name] = next(together)
        names = ((name, by_tensor.get(id(one))) for name, one in self.watched.model.named_parameters())
        self.rows = [{"step": self.watched.step, "name": name, **given} for name, given in names if given]
        return {}

    def _take(self, name: str, *, graded: bool) -> None:
        owners = [one for one in self.watched.trained() if not graded or one.grad is not None]
        tensors = [one.grad if graded else one for one in owners]
        if owners:
            self._norms[name] = [id(one) for one in owners], norms(here(one for one in tensors if one is not None))
