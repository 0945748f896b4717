"""What a verifier is. A verifier measures; it never decides, knows no threshold, and never imports a gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from weighbridge.errors import SubjectError
from weighbridge.model import Fields, Measurement, Rows, SubjectKind, Unmeasured

Views: TypeAlias = tuple[Any, ...]  # one view a subject, in the order of the need's roles

# Who wants to know how far a long measurement has come: bytes done, and bytes in all.
LISTENER: ContextVar[Callable[[int, int], None]] = ContextVar("LISTENER", default=lambda _done, _whole: None)


class Work(Protocol):
    """A measurement as independent tasks, one a place."""

    def sizes(self) -> Mapping[Any, int]:
        """Give the places that there are to describe, with the bytes to read of each."""

    def row(self, place: Any, /) -> Fields:
        """Describe one place."""

    def near(self, place: Any, /) -> str:
        """Name what is read for a place, so that tasks that read the same can stand side by side."""

    def outline(self) -> str:
        """Tell this work from others; two processes that prepared the same one have the same."""


@dataclass(frozen=True, slots=True)
class Order:
    """How a work is prepared again in another process: a function of a module, and what it is given."""

    prepare: Callable[[Views, Fields], Work]
    views: Views
    options: Fields


# Who does the work where threads of this process do not; the rows come back in the order of its sizes.
ENGINE: ContextVar[Callable[[Work, Order], tuple[Fields, ...]] | None] = ContextVar("ENGINE", default=None)


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
    is noticed. `together`, where there is one, measures several subjects that differ in their last view alone, and
    `measure` must be made of it, so that the canary tries both.
    """

    quantity: str
    kinds: tuple[SubjectKind, ...]
    measure: Callable[[Views, Fields], Measurement | Unmeasured]
    extent: Callable[[Views, Fields], int]
    canary: Callable[[Views, Fields, Measurement], Canary | NoCanary]
    together: Callable[[Sequence[Views], Fields], Sequence[Measurement | Unmeasured | SubjectError]] | None = None


def rows_by_name(found: Measurement | Unmeasured) -> dict[str, Fields]:
    """Take a measured table, by the names of its places; empty where no table was measured."""
    if not isinstance(found, Measurement) or not isinstance(found.value, Rows):
        return {}
    return {str(row["name"]): row for row in found.value.rows}
