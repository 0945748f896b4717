"""One column of a run over its steps, as logged: missing cells absent, NaN kept, repeats kept, nothing smoothed."""

import math
from array import array
from collections.abc import Mapping
from typing import Any

from weighbridge.core import Fields, Measurement, Series, SubjectKind, Unmeasured
from weighbridge.quantities.runs import ASKED_FOR, INSIDE, OF_LABELS
from weighbridge.run_logs.log_table import NUMBER
from weighbridge.run_logs.units import promised_unit
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "step_series"
CANARY_ROWS = 8
HUGE = 1e300
WHOLE = 2.0**53  # beyond it a float no longer tells one step from the next


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Return the samples of `column` (`wall_ms` without the option) as a series `[samples]`."""
    view: RunView = views[0]
    name, column = _name(options), view.column(_name(options))
    if column is None:
        why = f"the run logs no column {name!r}; it logs {', '.join(view.column_names)}"
        remedy = f"log it, as rec.step(loss, {name}=…), or map it in the contract's `columns:` to what the log calls it"
        if name in INSIDE:
            option, looked = ASKED_FOR.get(name, ""), not {*view.column_names}.isdisjoint(INSIDE)
            give = f"give the recorder diagnostics=Diagnostics({option})"
            unseen = "pass labels to the model once" if name in OF_LABELS else "diagnostics.jsonl says why it is absent"
            inside = give if option or not looked else unseen
            remedy = f"{inside}, or {remedy}"
        return Unmeasured(code="no-column", why=why, remedy=remedy)
    standard = view.named(name) or name
    if column.unreadable or column.stepless:
        why = f"of {view.rows} cells of {name} {column.unreadable} hold something that is no number"
        why = why if column.unreadable else f"{column.stepless} numbers of {name} stand at no whole step"
        return Unmeasured(code="column-unreadable", why=why, remedy="log a number, NaN or nothing, at a whole step")
    how: Mapping[str, Any] = {"by": "step_series/2", "at": standard, "unit": promised_unit(standard)}
    basis = {standard: view.basis}
    seen = len(column.value) + column.missing
    value = Series(column.step, column.value)
    return Measurement(quantity=QUANTITY, value=value, basis=basis, examined=seen, total=view.rows, **how)


def extent(views: Views, options: Fields) -> int:
    """Count the rows that there are, each of them a sample, a missing or an unreadable cell."""
    view: RunView = views[0]
    return view.rows if view.named(_name(options)) else 0


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Overlay the last row of a few with a number that the column has nowhere."""
    view: RunView = views[0]
    name = view.named(_name(options))
    assert name is not None
    few = view.cut(spread(view.rows))
    if few.dense(STEP).state[-1:] != b"\x01":
        return NoCanary("the last row has no step")
    damaged = few.overlaid(few.rows - 1, name, stranger(few, name))
    column, steps = damaged.dense(name), damaged.dense(STEP)
    cells = zip(column.values, column.state, steps.values, steps.state, strict=True)
    numbers = ((value, step) for value, state, step, placed in cells if state == placed == NUMBER)
    known = array("d", [value for value, step in numbers if step.is_integer() and abs(step) <= WHOLE])

    def seen(again: Measurement | Unmeasured) -> bool:
        if not isinstance(again, Measurement) or not isinstance(again.value, Series):
            return False
        return again.examined == few.rows and array("d", again.value.value).tobytes() == known.tobytes()

    return Canary(name="another number in the last row", place=f"{name}, last row", views=(damaged,), seen=seen)


def spread(rows: int) -> list[int]:
    """Choose at most `CANARY_ROWS` rows, the first and the last among them."""
    last = max(rows - 1, 0)
    return sorted({last * turn // (CANARY_ROWS - 1) for turn in range(CANARY_ROWS)})


def stranger(view: RunView, column: str) -> float:
    """Return a number (a whole one in a column of whole ones) larger than every number in a column."""
    largest = max([0.0, *(value for value in view.dense(column).values if math.isfinite(value))])
    return 2 * largest + 2 if largest < HUGE else math.nextafter(largest, math.inf)


def _name(options: Fields) -> str:
    return str(options.get("column", "wall_ms"))


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
