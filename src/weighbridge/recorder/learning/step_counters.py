"""Whether the optimizer's own count of updates is that of the updates that were seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import SELDOM, Cell, Channel, Watched, is_early


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
