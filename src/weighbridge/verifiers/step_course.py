"""Every column of a run as a picture shows it: least, median and greatest of neighbouring rows; no spike is lost."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured
from weighbridge.quantities.runs import StepCourse
from weighbridge.run_logs.log_table import IS_NUMBER, MISSING, NUMBER, UNREADABLE
from weighbridge.verifiers.step_series import spread, stranger
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.run import STEP, RunView

QUANTITY = "step_course"
BUCKETS, FEWEST, COLUMNS = 800, 50, 64  # of a column; of one among very many; columns that have all of them

NUMBERS, COUNTS = ("least", "median", "greatest"), ("missing", "nan", "zeros")


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Return the course of every column, of every rank."""
    named = list(_columns(views[0]))
    if not named:
        return Unmeasured(code="no-column", why="the run logs no column of numbers", remedy="log the loss of each step")
    many = max(FEWEST, min(BUCKETS, BUCKETS * COLUMNS // len(named)))
    return table(QUANTITY, [_course(*one, many) for one in named], basis=views[0].basis)


def _columns(view: RunView) -> Iterator[tuple[str, RunView, str]]:
    for index, rank in enumerate(view.ranks):
        yield from ((f"rank {index} {name}", rank, name) for name in rank.column_names if name != STEP)
    yield from ((name, view, name) for name in view.column_names if name != STEP)


def _course(name: str, view: RunView, column: str, many: int) -> StepCourse:
    """Put so many rows together that there are at most `many` places."""
    each = max(1, -(-view.rows // many))
    cells, steps, begins = view.dense(column), view.dense(STEP), range(0, view.rows, each)
    firsts = (steps.values[at] if steps.state[at] == NUMBER else None for at in begins)
    step = tuple(int(first) if first is not None and first.is_integer() else first for first in firsts)
    places = [_place(cells.values[at : at + each], cells.state[at : at + each]) for at in begins]
    found: dict[str, Any] = {key: tuple(place[key] for place in places) for key in (*NUMBERS, *COUNTS)}
    found |= {key: () for key in COUNTS if not any(found[key])}
    found |= {"median": (), "greatest": ()} if each == 1 else {}
    return StepCourse(column=name, rows_each=each, rows=view.rows, step=step, **found)


def _place(values: Sequence[float], state: bytearray) -> Mapping[str, float | None]:
    """Return the finite numbers of neighbouring rows at three places of their order, and how many others there are."""
    finite = sorted(filter(math.isfinite, compress(values, state.translate(IS_NUMBER))))
    order = (0, (len(finite) - 1) // 2, -1)
    found: dict[str, float | None] = dict.fromkeys(NUMBERS)
    found |= {key: _short(finite[at]) for key, at in zip(NUMBERS, order, strict=True) if finite}
    found["missing"] = state.count(MISSING) + state.count(UNREADABLE)
    return found | {"nan": state.count(NUMBER) - len(finite), "zeros": finite.count(0.0)}


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def extent(views: Views, _options: Fields) -> int:
    """Count the columns that there are."""
    return len(list(_columns(views[0])))


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Overlay the last row of the last column of a few rows with a number that the column has nowhere."""
    view: RunView = views[0].ranks[-1] if views[0].ranks else views[0]
    name = view.column_names[-1]
    few = view.cut(spread(view.rows))
    strange = stranger(few, name)

    def seen(again: Measurement | Unmeasured) -> bool:
        course: StepCourse = rows_by_name(again)[name]
        return course.least[-1] == _short(strange)

    damaged = few.overlaid(few.rows - 1, name, strange)
    return Canary(name="another number in the last row", place=f"{name}, last row", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
