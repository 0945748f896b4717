"""When a recorder looks closer, beside its schedule: at a loss, a gradient or a tensor that is not as it just was."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median
from typing import Any

WINDOW, FEWEST, AGAIN = 50, 10, 50  # rows before one; the fewest that tell; steps before one is triggered again
RISE, JUMP, SILENT = 2.0, 10.0, 5  # times a mean of losses, times a median of norms, looks in a row without a gradient
NAMED = 8  # tensors in a reason


class Triggers:
    """Why a step is looked at closer; of a loss or a gradient again after 50 steps, of a tensor once."""

    def __init__(self) -> None:
        self._losses: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._norms: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._silent: collections.Counter[str] = collections.Counter()
        self._last: dict[str, int] = {}

    def reasons(self, row: Mapping[str, Any], tensors: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the reasons of a row of steps, and of the rows of its tensors where there are any."""
        usual = fmean(self._losses) if len(self._losses) >= FEWEST else math.inf
        middle = median(self._norms) if len(self._norms) >= FEWEST else math.inf
        found = {
            "loss": _above(row.get("loss"), RISE, usual, f"mean of the {len(self._losses)} losses"),
            "gradient": _above(row.get("grad_norm"), JUMP, middle, f"median of the {len(self._norms)} gradient norms"),
            "dead": self._dead(tensors),
        }
        for name, values in (("loss", self._losses), ("grad_norm", self._norms)):
            if math.isfinite(value := row.get(name, math.nan)):
                values.append(value)
        step = row["step"]
        due = {kind: why for kind, why in found.items() if why and step - self._last.get(kind, -AGAIN) >= AGAIN}
        self._last |= dict.fromkeys(due.keys() - {"dead"}, step)
        return [f"{kind}: {why}" for kind, why in due.items()]

    def _dead(self, tensors: Iterable[Mapping[str, Any]]) -> str:
        """Return which tensors have just had no gradient for so many looks."""
        for one in tensors:
            self._silent[one["name"]] = 0 if one.get("grad_used") else self._silent[one["name"]] + 1
        dead = [name for name, looks in self._silent.items() if looks == SILENT]
        for name in dead:
            self._silent[name] += 1  # said once
        more = f" and {len(dead) - NAMED} more" if len(dead) > NAMED else ""
        return f"{', '.join(dead[:NAMED])}{more} had no gradient in {SILENT} looks" if dead else ""


def _above(value: Any, times: float, usual: float, of: str) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return "it is not finite"
    beyond = usual > 0 and value > times * usual
    return f"{value:.6g} is more than {times:g} times {usual:.6g}, the {of} before it" if beyond else ""
