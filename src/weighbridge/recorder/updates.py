"""What went into an update: the learning rate, the norm of the gradients, and how many updates an optimizer counts."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import SELDOM, Cell, Channel, Watched, is_early, stamps
from weighbridge.recorder.learning.tensor_norms import stacked

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


class StepCounters(Channel):
    """By how many updates the counters of an optimizer's state lag, at most; each began where it was found.

    An optimizer that has state and no counters (momentum) lags by all updates where a tensor's state is gone.
    """

    columns = ("step_counter_lag",)
    every_step = True

    _updates = 0
    _stateful = 0  # tensors that had state when this looked last
    _lost = 0  # updates, when some had none any more
    _blind = False  # an update ran that was not counted, or that may have been called off unseen

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._ahead: dict[int, Any] = {}  # of each tensor's counter before that of the updates

    def update_begins(self) -> None:
        """Count the update for each tensor that has a gradient."""
        amp = hasattr(self.watched.optimizer, "_step_supports_amp_scaling")
        self._blind |= self.watched.scale is not None and amp
        owned = self.watched.owned()
        if len(owned) != len(self._ahead):
            for one in owned:
                if id(one) not in self._ahead:
                    self._ahead[id(one)] = self._counter(one, 0) - self._updates
        if self.watched.early and self._count() < self._stateful:
            self._lost = self._updates
        self._updates += 1
        for one in owned:
            if one.grad is None:
                self._ahead[id(one)] -= 1

    def row(self) -> Mapping[str, Cell]:
        """Compare now and then; an optimizer without counters has nothing to compare."""
        self._blind |= self.watched.compiled
        seldom = not self.watched.early or not is_early(self.watched.step, SELDOM)
        if self._blind or seldom:
            return {}
        counters = ((id(one), self._counter(one, None)) for one in self.watched.owned())
        lags = [self._ahead[one] + self._updates - at for one, at in counters if at is not None and one in self._ahead]
        stateful, self._stateful, lost, self._lost = self._stateful, self._count(), self._lost, 0
        if not lags:
            return {"step_counter_lag": float(lost)} if stateful or self._stateful else {}
        if not (apart := [one for one in lags if isinstance(one, torch.Tensor)]):
            return {"step_counter_lag": float(max(lags))}
        together = [torch.as_tensor(one, device=apart[0].device, dtype=torch.float32) for one in lags]
        return {"step_counter_lag": torch.stack(together).max()}

    def _count(self) -> int:
        state = getattr(self.watched.optimizer, "state", {})
        return sum(bool(state.get(one)) for one in self.watched.owned())

    def _counter(self, parameter: torch.Tensor, default: Any) -> Any:
        """Return the counter: of the host as a number, of a device as a copy that nobody waits for."""
        found = getattr(self.watched.optimizer, "state", {}).get(parameter, {}).get("step", default)
        if not isinstance(found, torch.Tensor):
            return found
        return found.item() if found.device.type == "cpu" else found.detach().clone()
