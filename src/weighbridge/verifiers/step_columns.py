"""Every numeric column of a run: what its cells hold, how its numbers lie, and what they follow from. No judgement."""

from collections.abc import Mapping
from statistics import median

from weighbridge.core import Fields, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StepColumn
from weighbridge.run_logs import column_relations
from weighbridge.run_logs import column_statistics as statistics
from weighbridge.verifiers.run_facts import reported, token_claims
from weighbridge.verifiers.step_series import spread, stranger
from weighbridge.verifiers.verifier import Canary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "step_columns"


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Describe every numeric column over all rows, or over the rows of `steps: [first, last]`, inclusive."""
    view = _windowed(views[0], options)
    if not view.rows:
        why = f"the run has no row in steps {options.get('steps')}"
        return Unmeasured(code="no-rows-in-window", why=why, remedy="choose steps that the run reached")
    columns = {name: statistics.dense(view, name) for name in view.column_names}
    steps, cadences = columns[STEP], statistics.cadences(columns)
    ranks, related = column_relations.rank_correlations(columns), column_relations.relations(columns)
    rows = []
    for name, column in columns.items():
        found = {**statistics.counts(column, steps), **statistics.shape(column), **statistics.levels(column, steps)}
        found |= {**cadences[name], "relations": related[name], "nan_filtered": name in view.nan_filtered}
        found |= dict(zip(("rank_correlation_root_n", "correlated_with"), ranks[name], strict=True))
        found["order"] = statistics.order(column) if name == STEP else None
        found["quick"] = statistics.quick_steps(column, steps) if name.endswith("_ms") else None
        found["rate"] = column_relations.rate_agreement(columns) if name == "tokens_per_sec" else None
        found["flops_per_s"] = _flops_per_s(view, column) if name == "wall_ms" else None
        found["whole_passes"] = name == "corpus_position" and _are_whole_passes(view, columns)
        rows.append(StepColumn(column=name, logged_as=view.logged_as[name] or name, **found))
    basis = dict.fromkeys(columns, view.basis)
    value, total = Rows("column", tuple(rows)), view.rows * len(rows)
    seen = sum(row.samples + row.missing + row.unreadable for row in rows)
    return Measurement(quantity=QUANTITY, value=value, by="step_columns/5", basis=basis, examined=seen, total=total)


def _are_whole_passes(view: RunView, columns: Mapping[str, statistics.Dense]) -> bool:
    """Return whether each step was one pass over the corpus, by its tokens and by the wrap events."""
    position, tokens, steps = columns["corpus_position"], columns.get("tokens"), columns[STEP]
    if tokens is None or not (position.known & tokens.known & steps.known).all():
        return False
    wraps = {step for event in view.events if event.get("event") == "wrap" and type(step := event.get(STEP)) is int}
    return wraps.issuperset(steps.values[1:].tolist()) and bool((position.values == tokens.values).all())


def _flops_per_s(view: RunView, wall_ms: statistics.Dense) -> float | None:
    """Return the work of a step over its median time; None where one of them is unknown."""
    parameters, claim = reported(view, "model", "parameters"), next(token_claims(view), None)
    times = wall_ms.values[wall_ms.known & (wall_ms.values > 0)]
    if not isinstance(parameters, int) or parameters < 1 or claim is None or not len(times):
        return None
    # Forward and backward take 2 and 4 operations for each parameter and token.
    return 6.0 * parameters * claim.value / (float(median(times.tolist())) / 1000)


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


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary:
    """Overlay the last row of the last column, of a few rows, with a number that it has nowhere."""
    view = _windowed(views[0], options)
    few = view.cut(spread(view.rows))
    name = few.column_names[-1]
    strange = stranger(few, name)
    damaged = few.overlaid(few.rows - 1, name, strange)
    numbers = sum(state == 1 for state in damaged.dense(name).state)

    def seen(again: Measurement | Unmeasured) -> bool:
        rows = {row.column: (row.max, row.samples) for row in rows_of(again, StepColumn)}
        return len(rows) == len(few.column_names) and rows.get(name) == (strange, numbers)

    return Canary(name="another number in the last row", place=f"{name}, last row", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
