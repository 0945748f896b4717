"""How a run went through its corpus: tokens, coverage, losses that stand still, the quickest steps. No threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping

from weighbridge.model import Fields, Json, Measurement, Record, SubjectKind, Unmeasured
from weighbridge.run_logs import column_statistics as statistics
from weighbridge.run_logs.cells import NUMBER, Cells
from weighbridge.verifiers.run_facts import declared_tokens, numbers, products, tokens_told
from weighbridge.verifiers.step_series import spread
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "corpus_progress"
LISTED_RUNS = 8
IN_A_ROW = 3  # steps: one short last batch is quick, three in a row are another thing


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Measure tokens consumed and expected, the longest runs of bit-equal losses, the quickest steps, and coverage."""
    view: RunView = views[0]
    columns = {name: statistics.dense(view, name) for name in view.column_names}
    order = statistics.order(columns[STEP])
    fields: dict[str, Json] = {
        "corpus_tokens": corpus_tokens(view),
        "rows": view.rows,
        "steps": statistics.distinct(columns[STEP]),
        "largest_gap": order["largest_gap"],
        **consumed(view),
        **_expected(view, statistics.distinct(columns[STEP])),
        "equal_losses": equal_runs(columns),
        "losses": int(columns["loss"].known.sum()) if "loss" in columns else 0,
        **_quickest(columns),
        "coverage": [_coverage(name, full, columns) for name, full in _full(view) if name in columns],
    }
    return Measurement(
        quantity=QUANTITY, value=Record(fields), by="corpus_progress/1", examined=view.rows, total=view.rows
    )


def corpus_tokens(view: RunView) -> int | None:
    """Give the corpus's length in tokens, as the run reported it."""
    data = view.facts.get("data")
    value = data.get("corpus_tokens") if isinstance(data, Mapping) else view.facts.get("corpus_tokens")
    return value if type(value) is int and value > 0 else None


def consumed(view: RunView) -> Fields:
    """Sum the tokens that the steps consumed, and say from what: a column, a running total, or rate × time."""
    per_step = numbers(view, "tokens")
    total = numbers(view, "tokens_seen")
    if per_step:
        return {"tokens": _finite(math.fsum(per_step)), "tokens_from": "tokens", "tokens_rows": len(per_step)}
    if total:
        return {"tokens": _finite(max(total)), "tokens_from": "tokens_seen", "tokens_rows": len(total)}
    formed = products(view)
    source = "tokens_per_sec × wall_ms" if formed else ""
    return {"tokens": _finite(math.fsum(formed)), "tokens_from": source, "tokens_rows": len(formed)}


def _finite(value: float) -> float | None:
    return value if 0 < value < math.inf else None


def _expected(view: RunView, steps: int) -> Fields:
    """Multiply the steps by the tokens of a step: what was declared, else what was counted or follows."""
    per_step = declared_tokens(view) or next((told.value for told in tokens_told(view)), None)
    return {"tokens_per_step": per_step, "tokens_expected": per_step * steps if per_step else None}


def equal_runs(columns: Mapping[str, statistics.Dense]) -> list[Json]:
    """Give the longest runs of two and more bit-equal losses, the longest first, with what else stood still in them."""
    import numpy as np

    if "loss" not in columns:
        return []
    loss = columns["loss"]
    rows = np.flatnonzero(loss.known)
    bits = loss.values[rows].view(np.int64)
    begins = np.flatnonzero(np.r_[True, bits[1:] != bits[:-1]]) if len(rows) else rows
    lengths = np.diff(np.r_[begins, len(rows)])
    longest = np.argsort(-lengths, kind="stable")[:LISTED_RUNS]
    spans = [rows[begins[at] : begins[at] + lengths[at]] for at in longest if lengths[at] > 1]
    return [_run(columns, span[0], span[-1], len(span)) for span in spans]


def _run(columns: Mapping[str, statistics.Dense], first: int, last: int, length: int) -> Json:
    steps = columns[STEP]
    gradient = columns["grad_norm"].values[first : last + 1] if "grad_norm" in columns else None
    return {
        "first_step": int(steps.values[first]) if steps.known[first] else None,
        "last_step": int(steps.values[last]) if steps.known[last] else None,
        "length": length,
        "loss": float(columns["loss"].values[first]),
        "grad_norm": float(gradient[0]) if gradient is not None else None,
        "grad_norm_equal": bool((gradient == gradient[0]).all()) if gradient is not None else None,
        "last_row": bool(last == len(steps.values) - 1),
    }


def _quickest(columns: Mapping[str, statistics.Dense]) -> Fields:
    """Give the median wall time, and the least time below which no three steps in a row all stay."""
    import numpy as np

    empty: Fields = {"wall_ms_median": None, "quickest_ms": None, "quickest_step": None}
    if "wall_ms" not in columns:
        return empty
    wall, steps = columns["wall_ms"], columns[STEP]
    rows = np.flatnonzero(wall.known)
    if len(rows) < IN_A_ROW:
        return empty
    held = wall.values[rows]
    slowest = np.max(np.lib.stride_tricks.sliding_window_view(held, IN_A_ROW), axis=1)
    at = int(slowest.argmin())
    step = int(steps.values[rows[at]]) if steps.known[rows[at]] else None
    return {"wall_ms_median": float(np.median(held)), "quickest_ms": float(slowest[at]), "quickest_step": step}


def _full(view: RunView) -> list[tuple[str, float | None]]:
    """Name the columns that tell how much of the corpus was seen, with what they hold when all of it was."""
    logged = view.logged_as.get("coverage", "")
    return [("coverage", 100.0 if "pct" in logged else 1.0), ("corpus_position", corpus_tokens(view))]


def _coverage(name: str, full: float | None, columns: Mapping[str, statistics.Dense]) -> Json:
    """Describe where a column ends: its last number, its greatest, and for how many rows it has stood still."""
    import numpy as np

    column = columns[name]
    held = column.values[column.known]
    if not len(held):
        return {"column": name, "full": full, "last": None, "max": None, "still": 0, "since_step": None}
    moved = np.flatnonzero(held != held[-1])
    still = len(held) - (int(moved[-1]) + 1 if len(moved) else 0)
    steps = columns[STEP].values[column.known]
    return {
        "column": name,
        "full": full,
        "last": float(held[-1]),
        "max": float(held.max()),
        "still": still,
        "since_step": int(steps[len(held) - still]),
    }


def extent(views: Views, _options: Fields) -> int:
    """Count the rows that there are."""
    view: RunView = views[0]
    return view.rows


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Repeat losses at both ends of a few rows, and lay known numbers over the last; without losses, over its step."""
    view: RunView = views[0]
    few = view.cut(spread(view.rows))
    last = few.rows - 1
    if not last:
        return NoCanary("a run of one row")
    strange = 1e9 + 7
    laid = _equal_at_both_ends(few, strange) if "loss" in few.cells else few.overlaid(last, STEP, strange)
    others = {name: float(1 << 40) for name in ("tokens", "coverage", "corpus_position") if name in few.cells}
    for name, value in others.items():
        laid = laid.overlaid(last, name, value)
    held = laid.dense("tokens") if "tokens" in few.cells else Cells()
    tokens = math.fsum(value for value, state in zip(held.values, held.state, strict=True) if state == NUMBER)

    def seen(again: Measurement | Unmeasured) -> bool:
        fields = again.value.value if isinstance(again, Measurement) and isinstance(again.value, Record) else {}
        runs, ends = fields.get("equal_losses"), fields.get("coverage")
        assert isinstance(ends, list)
        told = {end["column"]: end["last"] for end in ends}
        if any(told.get(name) != value for name, value in others.items() if name != "tokens"):
            return False
        if "tokens" in others and fields.get("tokens") != _finite(tokens):
            return False
        if "loss" not in few.cells:
            return int(str(fields.get("largest_gap", 0))) > strange // 2
        wanted = {strange} if last < LEAST_FOR_TWO else {strange, strange + 1}
        return isinstance(runs, list) and wanted <= {run["loss"] for run in runs if run["length"] == 2}

    return Canary(name="the last loss repeated", place="loss, last row", views=(laid,), seen=seen)


LEAST_FOR_TWO = 3  # the last row of the fewest rows that hold two pairs


def _equal_at_both_ends(few: RunView, strange: float) -> RunView:
    last = few.rows - 1
    laid = few.overlaid(last - 1, "loss", strange).overlaid(last, "loss", strange)
    if last < LEAST_FOR_TWO:
        return laid
    return laid.overlaid(0, "loss", strange + 1).overlaid(1, "loss", strange + 1)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
