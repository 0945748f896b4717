"""How a run went through its corpus: tokens, coverage, losses that stand still, the quickest steps. No threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from weighbridge.model import Fields, Measurement, Record, SubjectKind, Unmeasured
from weighbridge.quantities.base import record_of
from weighbridge.quantities.runs import CorpusProgress, Coverage, EqualLosses
from weighbridge.run_logs import column_statistics as statistics
from weighbridge.verifiers.run_facts import declared_tokens, extent, numbers, products, tokens_told
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
    per_step = declared_tokens(view) or next((told.value for told in tokens_told(view)), None)
    progress = CorpusProgress(
        corpus_tokens=corpus_tokens(view),
        rows=view.rows,
        steps=order.steps,
        largest_gap=order.largest_gap,
        **_consumed(view),
        tokens_per_step=per_step,
        tokens_expected=per_step * order.steps if per_step else None,
        equal_losses=equal_runs(columns),
        losses=int(columns["loss"].known.sum()) if "loss" in columns else 0,
        **_quickest(columns),
        coverage=_coverage(view, columns),
    )
    return Measurement(
        quantity=QUANTITY, value=Record(progress), by="corpus_progress/1", examined=view.rows, total=view.rows
    )


def corpus_tokens(view: RunView) -> int | None:
    """Return the corpus's length in tokens, as the run reported it."""
    data = view.facts.get("data")
    value = data.get("corpus_tokens") if isinstance(data, Mapping) else view.facts.get("corpus_tokens")
    return value if type(value) is int and value > 0 else None


def _consumed(view: RunView) -> Mapping[str, Any]:
    """Sum the tokens that the steps consumed, and tell from what: a column, a running total, or rate × time."""
    per_step, total = numbers(view, "tokens"), numbers(view, "tokens_seen")
    if per_step:
        return {"tokens": _finite(math.fsum(per_step)), "tokens_from": "tokens", "tokens_rows": len(per_step)}
    if total:
        return {"tokens": _finite(max(total)), "tokens_from": "tokens_seen", "tokens_rows": len(total)}
    formed = products(view)
    source = "tokens_per_sec × wall_ms" if formed else ""
    return {"tokens": _finite(math.fsum(formed)), "tokens_from": source, "tokens_rows": len(formed)}


def _finite(value: float) -> float | None:
    return value if 0 < value < math.inf else None


def equal_runs(columns: Mapping[str, statistics.Dense]) -> tuple[EqualLosses, ...]:
    """Return the longest runs of two and more bit-equal losses, the longest first, with what else stood still there."""
    import numpy as np

    if "loss" not in columns:
        return ()
    loss = columns["loss"]
    rows = np.flatnonzero(loss.known)
    bits = loss.values[rows].view(np.int64)
    begins = np.flatnonzero(np.r_[True, bits[1:] != bits[:-1]]) if len(rows) else rows
    lengths = np.diff(np.r_[begins, len(rows)])
    longest = np.argsort(-lengths, kind="stable")[:LISTED_RUNS]
    spans = [rows[begins[at] : begins[at] + lengths[at]] for at in longest if lengths[at] > 1]
    return tuple(_run(columns, span[0], span[-1], len(span)) for span in spans)


def _run(columns: Mapping[str, statistics.Dense], first: int, last: int, length: int) -> EqualLosses:
    gradient = columns["grad_norm"].values[first : last + 1] if "grad_norm" in columns else None
    return EqualLosses(
        first_step=_step(columns, first),
        last_step=_step(columns, last),
        length=length,
        loss=float(columns["loss"].values[first]),
        grad_norm=float(gradient[0]) if gradient is not None else None,
        grad_norm_equal=bool((gradient == gradient[0]).all()) if gradient is not None else None,
        last_row=bool(last == len(columns[STEP].values) - 1),
    )


def _step(columns: Mapping[str, statistics.Dense], row: int) -> int | None:
    steps = columns[STEP]
    return int(steps.values[row]) if steps.known[row] else None


def _quickest(columns: Mapping[str, statistics.Dense]) -> Mapping[str, Any]:
    """Return the median wall time, and the least time below which no three steps in a row all stay."""
    import numpy as np

    rows = np.flatnonzero(columns["wall_ms"].known) if "wall_ms" in columns else ()
    if len(rows) < IN_A_ROW:
        return dict.fromkeys(("wall_ms_median", "quickest_ms", "quickest_step"))
    held = columns["wall_ms"].values[rows]
    slowest = np.max(np.lib.stride_tricks.sliding_window_view(held, IN_A_ROW), axis=1)
    at = int(slowest.argmin())
    return {
        "wall_ms_median": float(np.median(held)),
        "quickest_ms": float(slowest[at]),
        "quickest_step": _step(columns, rows[at]),
    }


def _coverage(view: RunView, columns: Mapping[str, statistics.Dense]) -> tuple[Coverage, ...]:
    """Describe where the columns end that tell how much of the corpus was seen, and how long they have stood still."""
    import numpy as np

    full = {
        "coverage": 100.0 if "pct" in view.logged_as.get("coverage", "") else 1.0,
        "corpus_position": corpus_tokens(view),
    }
    ends = []
    for name in (name for name in full if name in columns):
        rows = np.flatnonzero(columns[name].known)
        held = columns[name].values[rows]
        moved = np.flatnonzero(held != held[-1:])
        since = int(moved[-1]) + 1 if len(moved) else 0
        ends.append(
            Coverage(
                column=name,
                full=full[name],
                last=float(held[-1]) if len(held) else None,
                max=float(held.max()) if len(held) else None,
                still=len(held) - since,
                since_step=_step(columns, rows[since]) if len(held) else None,
            )
        )
    return tuple(ends)


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
    tokens = _finite(math.fsum(numbers(laid, "tokens")))
    wanted = {strange} if last < LEAST_FOR_TWO else {strange, strange + 1}

    def seen(again: Measurement | Unmeasured) -> bool:
        found = record_of(again, CorpusProgress) if isinstance(again, Measurement) else None
        if found is None or ("tokens" in others and found.tokens != tokens):
            return False
        ends = {end.column: end.last for end in found.coverage}
        if any(ends.get(name) != value for name, value in others.items() if name != "tokens"):
            return False
        if "loss" not in few.cells:
            return found.largest_gap > strange // 2
        return wanted <= {run.loss for run in found.equal_losses if run.length == 2}

    return Canary(name="the last loss repeated", place="loss, last row", views=(laid,), seen=seen)


LEAST_FOR_TWO = 3  # the last row of the fewest rows that hold two pairs


def _equal_at_both_ends(few: RunView, strange: float) -> RunView:
    last = few.rows - 1
    laid = few.overlaid(last - 1, "loss", strange).overlaid(last, "loss", strange)
    if last < LEAST_FOR_TWO:
        return laid
    return laid.overlaid(0, "loss", strange + 1).overlaid(1, "loss", strange + 1)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
