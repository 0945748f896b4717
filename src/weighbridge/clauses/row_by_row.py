"""A rule over a column as its samples come: in the time of a window, and as the rule judges all of them together."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from weighbridge.clauses.clause import HOLDS
from weighbridge.clauses.kind import Numbers
from weighbridge.core import Fields, Offence, Series, dataclass, field
from weighbridge.figures.figure import Figure, Push

# What a sample is compared with: nothing, a number, or None for a sample that is not compared.
Compared: TypeAlias = Callable[[int, float, Numbers], tuple[float, ...] | None]


@dataclass(slots=True, kw_only=True)
class RunningRule:
    """A rule that judges row by row; it says nothing more behind what leaves the rule itself without a verdict."""

    column: str
    codes: tuple[str, ...]  # that of the bound first
    limits: Any
    must: str
    bound: float
    figure: Figure
    push: Push | None  # None: only what is no number is final
    compared: Compared
    needed: int
    window: tuple[float, float]
    last: float = -math.inf
    silent: bool = False  # behind steps out of order
    adrift: bool = False  # behind a reference that is none: only what is no number is found
    steps: array[float] = field(default_factory=lambda: array("d"))  # until there are enough
    enough: bool = False

    def row(self, step: float | None, numbers: Numbers, _events: Sequence[Fields] = ()) -> Offence | None:
        """Return that the figure of all samples so far is beyond the bound, or that this one is no number."""
        value = numbers.get(self.column)
        if self.silent or value is None or step is None or not step.is_integer():
            return None
        self.silent, self.last = step <= self.last, step
        if not math.isfinite(value) and "not-finite" in self.codes and not self.silent:
            return Offence(place=self.column, code="not-finite", figures={"step": int(step)})
        if self.push is None or self.silent or self.adrift or not self.window[0] <= step <= self.window[1]:
            return None
        compared = self.compared(int(step), value, numbers)
        self.adrift = compared is not None and not all(0 < one < math.inf for one in compared)
        return None if self.adrift or compared is None else self._beyond(int(step), value, compared)

    def _beyond(self, step: int, value: float, compared: tuple[float, ...]) -> Offence | None:
        assert self.push
        found = self.push(step, value, *compared)
        if not self.enough:
            self.steps.append(step)
            of = Series(self.steps, self.steps)  # type: ignore[arg-type]  # the number of samples, not their values
            self.enough = self.figure.samples(of, self.limits) >= self.needed
        if not self.enough or found is None or HOLDS[self.must](found, self.bound):
            return None
        return Offence(
            place=self.column, code=self.codes[0], figures={"step": step, "value": found, "bound": self.bound}
        )
