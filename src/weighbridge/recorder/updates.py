"""What went into an update: the learning rate, and the norm of the gradients as they arrived and as they were used."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import Cell, Channel
from weighbridge.recorder.learning.tensor_norms import stacked, stamps

LAYOUT, PLAIN = operator.attrgetter("layout"), (torch.Tensor, torch.float32)


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside what Accelerate, Lightning and the like have put around it."""
    wrappers = dict[int, Any]()
    while hasattr(inner := getattr(optimizer, "optimizer", None), "param_groups") and id(inner) not in wrappers:
        wrappers[id(optimizer)], optimizer = optimizer, inner
    return optimizer


class Hyperparameters(Channel):
    """The learning rate of the first parameter group and the largest weight decay, as used, and how often in a step."""

    columns = ("lr", "weight_decay", "updates")
    every_step = True

    def update_ended(self) -> None:
        """Read them before a schedule moves them."""
        self._look()
        self.found["updates"] = float(self.found.get("updates") or 0) + 1

    def row(self) -> Mapping[str, Cell]:
        """Return them; of a step without an update, what they are."""
        if not self.found:
            self._look()
        if self.watched.optimizer is not None and not self.watched.compiled:
            self.found.setdefault("updates", 0.0)
        return super().row()

    def _look(self) -> None:
        if groups := getattr(self.watched.optimizer, "param_groups", None):
            self.found["lr"] = float(groups[0]["lr"])
            if decays := [float(group["weight_decay"]) for group in groups if "weight_decay" in group]:
                self.found["weight_decay"] = max(decays)


class Norms(Channel):
    """The 2-norm of all gradients after the last backward pass of a step, and as the update left them."""

    columns = ("grad_norm", "grad_norm_used", "gradients_finite")
    every_step = True

    _arrived: torch.Tensor | None = None
    _used: torch.Tensor | None = None
    _stamps: list[tuple[int, int]] | None = None

    def backward_ended(self) -> None:
        """Measure the norm as it arrived."""
        gradients = self.watched.gradients()
        self._arrived, self._stamps = self._norm(gradients), stamps(gradients)

    def update_ended(self) -> None:
        """Measure the norm that was used, after an update's closure; where no gradient was written to, it is the same.

        Torch counts what is written to a tensor, but not all of it (`.data`, under an audit): now and then it is taken.
        """
        gradients, scale = self.watched.gradients(), self.watched.scale
        counted = self._arrived is not None and scale is None and not self.watched.early
        same = counted and stamps(gradients) == self._stamps
        self._used = self._arrived if same else self._norm(gradients)
        if scale is not None and self._arrived is not None:
            self._arrived = self._arrived / scale.to(self._arrived.device)

    def row(self) -> Mapping[str, Cell]:
        """Return both; of a step in which the optimizer made no update, whether the gradients were finite."""
        arrived, used = self._arrived, self._used
        self._arrived = self._used = None
        if used is None and self.watched.compiled:
            used = self._norm(self.watched.gradients())
        if used is None and self.watched.optimizer is None:  # a script that updates by hand: nobody knows when
            return {} if arrived is None else {"grad_norm": arrived}
        if used is None:
            return {"gradients_finite": None if arrived is None else torch.isfinite(arrived)}
        return {"grad_norm": used if arrived is None else arrived, "grad_norm_used": used}

    def _norm(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        if not gradients:
            return None
        strided = {*map(LAYOUT, gradients)} == {torch.strided}
        dense = gradients if strided else [one.coalesce().values() if one.is_sparse else one for one in gradients]
        found = stacked(torch._foreach_norm(dense))  # noqa: SLF001 -- as clip_grad_norm_
        if strided and self.watched.early and {(type(one), one.dtype) for one in dense} == {PLAIN}:
            self.watched.norms = found  # of others, what `gradient_norms` says is wider, or of a part
        norm: torch.Tensor = torch.linalg.vector_norm(found)
        return norm
