"""Every numeric column of a run: what its cells hold, how its numbers lie, and what they follow from. No judgement."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.model import Basis, Fields, Measurement, Origin, Rows, SubjectKind, Unmeasured
from weighbridge.run_logs import column_statistics as statistics
from weighbridge.verifiers.step_series import spread, stranger
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "step_columns"


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Describe every numeric column over all rows, or over the rows of `steps: [first, last]`, inclusive."""
    view = _windowed(views[0], options)
    if not view.rows:
        return Unmeasured(
            code="no-rows-in-window",
            why=f"the run has no row in steps {options.get('steps')}",
            remedy="choose steps that the run reached",
        )
    columns = {name: statistics.dense(view, name) for name in view.column_names}
    ranks, related = statistics.rank_correlations(columns), statistics.relations(columns)
    rows = tuple({**_row(view, name, columns), **ranks[name], "relations": list(related[name])} for name in columns)
    return Measurement(
        quantity=QUANTITY,
        value=Rows("column", rows),
        by="step_columns/1",
        basis=dict.fromkeys(columns, Basis.MEASURED if view.origin is Origin.LIVE else Basis.REPORTED),
        examined=sum(int(str(row[key])) for row in rows for key in ("samples", "missing", "unreadable")),
        total=view.rows * len(rows),
    )


def _row(view: RunView, name: str, columns: Mapping[str, statistics.Dense]) -> Fields:
    named = {"column": name, "logged_as": view.logged_as[name] or name}
    special = statistics.order(columns[STEP]) if name == STEP else {}
    if name == "tokens_per_sec":
        special = statistics.rate_agreement(columns)
    return {**named, **statistics.counts(columns[name], columns[STEP]), **statistics.shape(columns[name]), **special}


def _windowed(view: RunView, options: Fields) -> RunView:
    window = options.get("steps")
    if not isinstance(window, (list, tuple)):
        return view
    first, last = (float(str(end)) for end in window)
    steps = view.dense(STEP)
    return view.cut([row for row, step in enumerate(steps.values) if steps.state[row] and first <= step <= last])


def extent(views: Views, options: Fields) -> int:
    """Count the cells that there are: rows × numeric columns."""
    view = _windowed(views[0], options)
    return view.rows * len(view.column_names)


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Lay a number that it has nowhere over the last row of the last column, of a few rows."""
    view = _windowed(views[0], options)
    if not view.rows or view.column_names[-1] == STEP:
        return NoCanary("no rows, or no column besides the step")
    few = view.cut(spread(view.rows))
    name = few.column_names[-1]
    strange = stranger(few, name)
    laid = few.overlaid(few.rows - 1, name, strange)
    numbers = sum(state == 1 for state in laid.dense(name).state)

    def seen(again: Measurement | Unmeasured) -> bool:
        if not isinstance(again, Measurement) or not isinstance(again.value, Rows):
            return False
        rows = {row["column"]: row for row in again.value.rows}
        row = rows.get(name, {})
        return len(rows) == len(few.column_names) and (row.get("max"), row.get("samples")) == (strange, numbers)

    return Canary(name="another number in the last row", place=f"{name}, last row", views=(laid,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
