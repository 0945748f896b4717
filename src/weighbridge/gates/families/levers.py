"""Levers: how trials move the samples of a column, by the least that breaks a bound."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from weighbridge.clauses.kind import Evidence

FARTHEST = 1e30
Lever: TypeAlias = Callable[["array[int]", "array[float]", float, Any], None]  # moves samples, by an amount
Moved: TypeAlias = Callable[[Evidence, float], Evidence]


def lift(first: int | None, last: int | None, sign: int) -> Lever:
    """Return the lever that moves the samples between two indices up, or down."""

    def move(_steps: array[int], values: array[float], amount: float, _limits: Any) -> None:
        for at in range(*slice(first, last).indices(len(values))):
            values[at] += sign * amount

    return move


def divide(at: int) -> Lever:
    """Return the lever that makes one sample smaller, and never less than nothing."""
    return lambda _steps, values, amount, _limits: values.__setitem__(at, values[at] / (1 + amount))


def zigzag(_steps: array[int], values: array[float], amount: float, _limits: Any) -> None:
    """Move every other sample up."""
    for at in range(1, len(values), 2):
        values[at] += amount


def by_the_least(evidence: Evidence, move: Moved, breaks: Callable[[Evidence], bool]) -> Evidence:
    """Return what was measured moved by the least that breaks a bound; as far as numbers go where nothing does."""
    most = 1e-9
    while most < FARTHEST and not breaks(move(evidence, most)):
        most *= 4
    least = most / 4
    for _ in range(60 if most < FARTHEST else 0):
        middle = (least + most) / 2
        least, most = (least, middle) if breaks(move(evidence, middle)) else (middle, most)
    return move(evidence, most)


def more_than(name: str, more: int = 1, sign: int = 1) -> Lever:
    """Return the lever that moves the last samples up, or down: so many more than the limit of this name says."""
    return lambda *moved: lift(-getattr(moved[-1], name) - more, None, sign)(*moved)


def out_of_noise(name: str) -> Lever:
    """Return the lever that makes the samples before these last ones noisy, and moves those up."""

    def move(steps: array[int], values: array[float], amount: float, limits: Any) -> None:
        for at in range(len(values) - getattr(limits, name) - 1):
            values[at] -= max(abs(values[at]), 1.0) * (1 + limits.min_rise) * (at % 3)
        more_than(name)(steps, values, amount, limits)

    return move


def early_end(_steps: array[int], values: array[float], amount: float, _limits: Any) -> None:
    """Make the samples fall one by one, and stay where they come to for a greater share of them."""
    stays = round(len(values) * amount / (1 + amount))
    for at in range(len(values)):
        values[at] = 1.0 + max(len(values) - stays - at, 0)


def beyond_the_bound(steps: array[int], values: array[float], amount: float, limits: Any) -> None:
    """Move all samples that are no reference beyond the bound that a contract gives."""
    sign = 1 if limits.at_most is not None or limits.below is not None else -1
    lift({"first": 1, "previous": -1}.get(limits.relative_to), None, sign)(steps, values, amount, limits)


def violations(*, at_the_end: bool) -> Lever:
    """Return the lever that moves one sample more than may lie beyond the bound, each with one beside it that stays."""

    def move(_steps: array[int], values: array[float], amount: float, limits: Any) -> None:
        up = 1 if limits.at_most is not None or limits.below is not None else -1
        from_the_end = at_the_end or len(values) < 2  # a window of one sample begins where it ends
        for turn in range(limits.violations + 1):
            values[-1 - 2 * turn if from_the_end else 1 + 2 * turn] += up * amount

    return move


LEVERS: Mapping[str, Lever] = {
    "the last up": lift(-1, None, 1),
    "the last down": lift(-1, None, -1),
    "the first up": lift(0, 1, 1),
    "the first down": lift(0, 1, -1),
    "all up": lift(None, None, 1),
    "all down": lift(None, None, -1),
    "a zigzag": zigzag,
}
KNOWN = f"; known: {', '.join(map(repr, LEVERS))}, and own_levers"
