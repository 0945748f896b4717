"""What a verifier is. A verifier measures; it never decides, knows no threshold, and never imports a gate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from weighbridge.core import Basis, Fields, Measurement, Rows, SubjectError, SubjectKind, Unmeasured, dataclass, fields
from weighbridge.quantities import QUANTITIES
from weighbridge.scheduling.threads import Execution

Views: TypeAlias = tuple[Any, ...]  # one view a subject, in the order of the need's roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One known damage of a subject: the views to measure again, cut to a few places, and whether it shows there.

    The damage is in the last of more than one place, so that an instrument that looks only at the first is blind.
    """

    name: str
    place: str
    views: Views
    seen: Callable[[Measurement | Unmeasured], bool]


@dataclass(frozen=True, slots=True)
class NoCanary:
    """Why this subject could not be damaged."""

    why: str


class MeasurementJob(NamedTuple):
    """One of several measurements that are made at once."""

    verifier: "Verifier"
    views: Views


Found: TypeAlias = Measurement | Unmeasured | SubjectError
Batch: TypeAlias = Callable[[Sequence[MeasurementJob], Fields, Execution], Sequence[Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """An instrument for one quantity of subjects of these kinds, with its canary.

    `extent` counts the places, apart from `measure`, so that one that stops early is noticed. `batch` measures at once
    for all verifiers with this `batch` and the same options: one subject, or several that differ in their last view
    alone. `measure` must be made of it, so that the canary tries both. `reading` is what `tensor_walk.batch` reads by.
    """

    quantity: str
    kinds: tuple[SubjectKind, ...]
    measure: Callable[[Views, Fields], Measurement | Unmeasured]
    extent: Callable[[Views, Fields], int]
    canary: Callable[[Views, Fields, Measurement], Canary | NoCanary]
    batch: Batch | None = None
    reading: Any = None


def table(
    quantity: str, rows: Sequence[Any], *, by: str = "", at: str = "", unit: str = "", basis: Basis = Basis.MEASURED
) -> Measurement:
    """Return the measurement of a table in which every place was looked at."""
    known, count = QUANTITIES[quantity], len(rows)
    value, each = Rows(known.key, tuple(rows)), {item.name: basis for item in fields(known.row)}
    by = f"weighbridge.verifiers.{by or quantity}/1"
    return Measurement(quantity=quantity, value=value, by=by, at=at, unit=unit, basis=each, examined=count, total=count)


def rows_by_name(found: Measurement | Unmeasured) -> dict[str, Any]:
    """Return the rows of a measured table by the names of their places; empty where no table was measured."""
    if not isinstance(found, Measurement) or not isinstance(found.value, Rows):
        return {}
    return dict(zip(found.value.places(), found.value.rows, strict=True))


def two_of(names: Sequence[str], size: Callable[[str], float]) -> tuple[str, ...]:
    """Return what a canary keeps: the largest tensor but the first, which it damages, and the smallest before it."""
    later = names[1:] or names
    if not later:
        return ()
    last = max(reversed(later), key=size)
    return (*sorted(names[: names.index(last)], key=size)[:1], last)
