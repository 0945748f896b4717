"""What a verifier is. A verifier measures; it never decides, knows no threshold, and never imports a gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from weighbridge.errors import SubjectError
from weighbridge.model import Fields, Measurement, Rows, SubjectKind, Unmeasured

Views: TypeAlias = tuple[Any, ...]  # one view a subject, in the order of the need's roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One known damage of a subject, laid over it: the views to measure again, and whether the damage shows there.

    The views are cut down to a few places (always more than one where there is more than one, the damage in the
    last), so that an instrument that looks only at the first place is blind, and trials stay cheap.
    """

    name: str
    place: str
    views: Views
    seen: Callable[[Measurement | Unmeasured], bool]


@dataclass(frozen=True, slots=True)
class NoCanary:
    """Why no damage could be laid over this subject."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """An instrument for one quantity of subjects of these kinds, with its canary.

    `extent` counts the places that there are to look at, apart from `measure`, so that an instrument that stops early
    is noticed. `batch`, where there is one, measures several subjects that differ in their last view alone, and
    `measure` must be made of it, so that the canary tries both.
    """

    quantity: str
    kinds: tuple[SubjectKind, ...]
    measure: Callable[[Views, Fields], Measurement | Unmeasured]
    extent: Callable[[Views, Fields], int]
    canary: Callable[[Views, Fields, Measurement], Canary | NoCanary]
    batch: Callable[[Sequence[Views], Fields], Sequence[Measurement | Unmeasured | SubjectError]] | None = None


def rows_by_name(found: Measurement | Unmeasured) -> dict[str, Fields]:
    """Take a measured table, by the names of its places; empty where no table was measured."""
    if not isinstance(found, Measurement) or not isinstance(found.value, Rows):
        return {}
    return {str(row["name"]): row for row in found.value.rows}
