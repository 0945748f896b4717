"""new_quantity: the largest number of every column of a run. Knows no bound.

A whole instrument, to be replaced: it measures, counts what there is to look at, and lays a canary that it must see.
"""

from __future__ import annotations

import math

from weighbridge.core.model import Fields, Measurement, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import NewQuantity
from weighbridge.verifiers.step_series import spread, stranger
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, table
from weighbridge.views.run import STEP, RunView

QUANTITY = "new_quantity"


def measure(views: Views, _options: Fields) -> Measurement:
    """Return the largest number of every column but the steps."""
    view: RunView = views[0]
    rows = [NewQuantity(column=name, largest=_largest(view, name)) for name in _columns(view)]
    return table(QUANTITY, rows)


def _columns(view: RunView) -> list[str]:
    return [name for name in view.column_names if name != STEP]


def _largest(view: RunView, name: str) -> float | None:
    found = view.column(name)
    return max(filter(math.isfinite, found.value), default=None) if found else None


def extent(views: Views, _options: Fields) -> int:
    """Count the columns."""
    return len(_columns(views[0]))


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Lay a number larger than every other over the last row of the last column."""
    view: RunView = views[0]
    few, names = view.cut(spread(view.rows)), _columns(view)
    if not names or few.dense(STEP).state[-1:] != b"\x01":
        return NoCanary("no column, or no step in the last row")
    strange = stranger(few, names[-1])
    placed = few.overlaid(few.rows - 1, names[-1], strange)
    after = rows_of(measure((placed,), options), NewQuantity)

    def seen(again: Measurement | Unmeasured) -> bool:
        return after[-1].largest == strange and rows_of(again, NewQuantity) == after

    return Canary(name="the largest number last", place=f"{names[-1]}, last row", views=(placed,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
