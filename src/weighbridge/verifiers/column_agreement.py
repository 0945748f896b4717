"""How far the columns of several runs agree, step by step: of two runs, or of the ranks of one. No judgement."""

import functools
import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, cast

from weighbridge.core import Basis, Fields, Measurement, Rows, SubjectError, SubjectKind, Unmeasured, np, replace
from weighbridge.quantities.facts import ColumnAgreement, Parting
from weighbridge.run_logs.column_statistics import Floats, Marks, dense
from weighbridge.run_logs.json_log import LAYERS, read_layers
from weighbridge.run_logs.log_table import NUMBER
from weighbridge.verifiers.step_series import WHOLE, spread, stranger
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name
from weighbridge.views.run import STEP, RunView

QUANTITY = "column_agreement"
TWICE = 2.0  # runs that part are listed again when they are so many times as far apart
NAME, MAX_CELLS = "name", 20_000_000
ABSENT = -1.7e308  # no norm is
NO_RANKS = Unmeasured(
    code="no-ranks",
    why="this is the run of one process, or one rank alone",
    remedy="bind the folder in which rank-0, rank-1, … lie",
)


class Aligned(NamedTuple):
    """Numbers and which there are, both `[runs, steps]`; of tensors, a step comes again for each."""

    steps: Floats
    values: Floats
    known: Marks
    tensors: Sequence[str] = ()


def runs_of(views: Views) -> tuple[RunView, ...]:
    """Return the runs that are compared with each other: the views, or the ranks of the one; none where that is one."""
    ranks: tuple[RunView, ...] = views[0].ranks if len(views) == 1 else views
    return ranks if len(ranks) > 1 else ()


def with_last(views: Views, runs: Sequence[RunView]) -> Views:
    """Return the views with other runs, as they were given."""
    return tuple(runs) if len(views) > 1 else (replace(views[0], ranks=tuple(runs)),)


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Compare every column of the runs with the others', over all steps or those of `steps: [first, last]`."""
    runs = runs_of(views)
    if not runs:
        return NO_RANKS
    placed = [_placed(run, options) for run in runs]
    names = dict.fromkeys(name for run in runs for name in run.column_names)
    rows = [_row(name, sum(name in run.cells for run in runs), _aligned(name, runs, placed)) for name in names]
    if len(views) > 1 and any(run.layers for run in runs):
        rows += _of_layers(runs, options)
    basis = Basis.MEASURED if all(run.basis is Basis.MEASURED for run in runs) else Basis.REPORTED
    value, cells = Rows("column", tuple(rows)), sum(run.rows for run in runs) * len(names)
    each: Any = {"by": "column_agreement/1", "basis": {row.column: basis for row in rows}}
    return Measurement(quantity=QUANTITY, value=value, examined=cells, total=cells, **each)


def _placed(run: RunView, options: Fields) -> tuple[Floats, Any]:  # steps, rising, and the last row of each
    steps, window = dense(run, STEP), cast(Any, options.get("steps") or (-WHOLE, WHOLE))
    whole = steps.known & (steps.values == np.floor(steps.values))
    rows = np.flatnonzero(whole & (steps.values >= window[0]) & (steps.values <= window[1]))[::-1]
    found, at = np.unique(steps.values[rows], return_index=True)
    return found, rows[at]


def _aligned(name: str, runs: Sequence[RunView], placed: Sequence[tuple[Floats, Any]]) -> Aligned:
    steps = functools.reduce(np.union1d, (found for found, _ in placed))
    values, known = np.zeros((len(runs), len(steps))), np.zeros((len(runs), len(steps)), dtype=bool)
    for at, (run, (found, rows)) in enumerate(zip(runs, placed, strict=True)):
        if name in run.cells:
            column, places = dense(run, name), np.searchsorted(steps, found)
            values[at, places], known[at, places] = column.values[rows], column.state[rows] == NUMBER
    return Aligned(steps, values, known)


def _row(name: str, logged: int, found: Aligned) -> ColumnAgreement:
    both = found.known.all(axis=0)
    alone = found.steps[found.known.any(axis=0) & ~both]
    steps, values = found.steps[both], found.values[:, both]
    nan, ordered = np.isnan(values), np.sort(values, axis=0)  # NaN last
    with np.errstate(invalid="ignore"):
        apart = np.where((ordered[0] == ordered[-1]) | nan.all(axis=0), 0.0, ordered[-1] - ordered[0])
    apart[nan.any(axis=0) & ~nan.all(axis=0)] = np.inf
    alike = steps[((ordered[1:] == ordered[:-1]) | np.isnan(ordered[:-1])).any(axis=0)]
    moved = (values[:, 1:] != values[:, :-1]) & ~(nan[:, 1:] & nan[:, :-1])
    places = np.flatnonzero(both)
    return ColumnAgreement(
        column=name, runs=logged, whole=bool((values == np.floor(values)).all()), steps=len(np.unique(steps)),
        changes=int(moved.sum(axis=1).min()), unequal=len(np.unique(steps[apart > 0])),
        one_sided=len(np.unique(alone)), first_one_sided=int(alone.min()) if len(alone) else None,
        shared=len(np.unique(alike)), first_shared=int(alike[0]) if len(alike) else None,
        parted=tuple(_parting(found, int(places[at]), float(apart[at])) for at in _farther(apart)),
    )  # fmt: skip


def _farther(apart: Floats) -> Iterator[int]:
    """Yield where runs first differ, where that has doubled since the last such place, and where it is greatest."""
    reached, last = np.maximum.accumulate(apart), 0.0
    while len(reached) and reached[-1] > last:
        more = np.searchsorted(reached, TWICE * last, side="left" if last else "right")
        at = int(more if more < len(reached) else apart.argmax())
        last = reached[at]
        yield at


def _parting(found: Aligned, at: int, difference: float) -> Parting:
    here: list[float] = found.values[:, at].tolist()
    least, *_, most = sorted(range(len(here)), key=lambda run: (math.isnan(here[run]), here[run]))
    ends: Any = {"least": here[least], "greatest": here[most], "least_in": least, "greatest_in": most}
    tensor = found.tensors[at] if found.tensors else ""
    return Parting(step=int(found.steps[at]), difference=difference, tensor=tensor, **ends)


def _of_layers(runs: Sequence[RunView], options: Fields) -> Iterator[ColumnAgreement]:
    """Yield how far what is logged of tensors agrees, one row a field; the files are read side by side."""
    window: Any = options.get("steps") or (-WHOLE, WHOLE)
    logs = [read_layers(run.layers, cast(dict[str, str], run.digests)) if run.layers else iter(()) for run in runs]
    steps, tensors = array("d"), list[str]()
    fields: dict[str, array[float]] = {}
    for rows in zip_longest(*logs, fillvalue={}):
        step, tensor = next((row.get(STEP), row.get(NAME)) for row in rows if row)
        if type(step) is not int or not window[0] <= step <= window[1]:
            continue
        fields = fields or {name: array("d") for row in rows for name in row if name not in (STEP, NAME)}
        if len(steps) * len(fields) > MAX_CELLS:
            what, remedy = f"more than {MAX_CELLS} figures of tensors", "name fewer `steps` under measure:"
            raise SubjectError("too-large", what, where=LAYERS, remedy=remedy)
        steps.append(step)
        tensors.append(str(tensor))
        here = [row if (row.get(STEP), row.get(NAME)) == (step, tensor) else {} for row in rows]
        for name, cells in fields.items():
            cells.extend(_number(row.get(name)) for row in here)
    for name, cells in fields.items():
        values = np.array(cells).reshape(len(steps), len(runs)).T
        known = values != ABSENT
        yield _row(f"layers:{name}", int(known.any(axis=1).sum()), Aligned(np.array(steps), values, known, tensors))


def _number(cell: object) -> float:
    return float(cell) if type(cell) is float or (type(cell) is int and abs(cell) <= WHOLE) else ABSENT


def extent(views: Views, _options: Fields) -> int:
    """Count the cells that there are: the rows of all runs × the columns of any."""
    runs = runs_of(views)
    return sum(run.rows for run in runs) * len({name for run in runs for name in run.column_names})


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Overlay the last row of the last run, of a few rows, in the last column that all log."""
    runs = runs_of(views)
    placed = [_placed(run, options) for run in runs]
    found = functools.reduce(np.intersect1d, (steps for steps, _ in placed))
    shared = [name for name in runs[-1].cells if name != STEP and all(name in run.cells for run in runs)]
    if not shared or not len(found):
        return NoCanary("the runs have no column, or no step, in common")
    name, few_steps = shared[-1], found[spread(len(found))]
    few = [run.cut(rows[np.isin(steps, few_steps)].tolist()) for run, (steps, rows) in zip(runs, placed, strict=True)]
    strange = max(stranger(run, name) for run in few)
    damaged = with_last(views, [*few[:-1], few[-1].overlaid(few[-1].rows - 1, name, strange)])

    def seen(again: Measurement | Unmeasured) -> bool:
        row: ColumnAgreement = rows_by_name(again)[name]
        return (found[-1], strange, len(runs) - 1) in [(one.step, one.greatest, one.greatest_in) for one in row.parted]

    damage = "another number in the last row of the last run"
    return Canary(name=damage, place=f"{name}, last row", views=damaged, seen=seen)


OF_RANKS = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
VERIFIER = replace(OF_RANKS, kinds=(SubjectKind.RUN, SubjectKind.RUN))
