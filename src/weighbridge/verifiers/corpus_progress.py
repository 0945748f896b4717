"""How a run went through its corpus: tokens, coverage, losses that stand still, quick steps, what is lacking."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

from weighbridge.core import Basis, Fields, Measurement, Record, SubjectKind, Unmeasured, np
from weighbridge.quantities.base import record_of
from weighbridge.quantities.runs import CorpusProgress, Coverage, EqualLosses
from weighbridge.run_logs import column_statistics as statistics
from weighbridge.run_logs.run_end import GOING, UNKNOWN, run_end
from weighbridge.verifiers.run_facts import declared_tokens, extent, failures, numbers, products, token_claims
from weighbridge.verifiers.step_series import spread
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "corpus_progress"


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Measure tokens consumed and expected, the longest runs of bit-equal losses, the quickest steps, and coverage."""
    view: RunView = views[0]
    columns = {name: statistics.dense(view, name) for name in view.column_names}
    order = statistics.order(columns[STEP])
    per_step = declared_tokens(view) or next((claim.value for claim in token_claims(view)), None)
    found: dict[str, Any] = {"rows": view.rows, "steps": order.steps, "largest_gap": order.largest_gap}
    expected = per_step * order.steps if per_step else None
    if per_step is None and (moved := _passed_over(view)) is not None:  # batches that differ in tokens
        per_step, expected = math.ceil(max(numbers(view, "tokens"))), moved
    found |= {"tokens_per_step": per_step, "tokens_expected": expected}
    found |= {"losses": int(columns["loss"].known.sum()) if "loss" in columns else 0}
    consumed, source, rows = _consumed(view)
    found |= {"tokens": _finite(consumed), "tokens_from": source, "tokens_rows": rows}
    found |= {**_lacking("loss", columns.get("loss"), columns[STEP]), **_speed(columns)}
    found |= {"corpus_tokens": corpus_tokens(view), "announced_steps": announced_steps(view)}
    logged: dict[str, Any] = {"gap": order.largest_gap, "columns": view.column_names}
    end = run_end(view.facts, view.events, order.steps, order.last_step, **logged)
    over = bool(end.contradicted_by)  # of too many steps, or a log that lacks its end, however the run will end
    unsure = end.ended in (GOING, UNKNOWN) and end.basis is Basis.REPORTED
    taken = None if unsure and not over else end.taken_steps
    found |= {"requested_steps": end.requested_steps, "taken_steps": taken or None}
    found["failures"] = sum(1 for _ in failures(view, "loss", "tokens", "corpus_position", "wraps", "wall_ms"))
    value = Record(CorpusProgress(equal_losses=equal_runs(columns), coverage=_coverage(view, columns), **found))
    return Measurement(quantity=QUANTITY, value=value, by="corpus_progress/6", examined=view.rows, total=view.rows)


def _passed_over(view: RunView) -> int | None:
    """Return how many tokens the position went on by, pass by pass, where every row has it beside the step's tokens."""
    tokens, positions = numbers(view, "tokens"), numbers(view, "corpus_position")
    every = map(float.is_integer, itertools.chain(tokens, positions))
    if not view.rows == len(tokens) == len(positions) or not all(every):
        return None
    before = [positions[0] - tokens[0], *positions[:-1]]  # a log may begin within a pass
    rows = zip(before, positions, tokens, strict=True)
    return int(math.fsum(now if now < was or now == taken else now - was for was, now, taken in rows)) or None


def corpus_tokens(view: RunView) -> int | None:
    """Return the corpus's length in tokens, as the run reported it."""
    data = view.facts.get("data")
    value = data.get("corpus_tokens") if isinstance(data, Mapping) else view.facts.get("corpus_tokens")
    return value if type(value) is int and value > 0 else None


def _consumed(view: RunView) -> tuple[float, str, int]:
    if rows := numbers(view, "tokens"):
        return math.fsum(rows), "tokens", len(rows)
    if total := numbers(view, "tokens_seen"):
        return max(total), "tokens_seen", len(total)
    formed = products(view)
    return math.fsum(formed), "tokens_per_sec × wall_ms" if len(formed) else "", len(formed)


def _finite(value: float) -> float | None:
    return value if 0 < value < math.inf else None


def announced_steps(view: RunView) -> int | None:
    """Return how many steps the end of the run announces, None where it announces none."""
    ends = [event.get("steps") for event in view.events if event.get("event") == "end"]
    return next((steps for steps in reversed(ends) if type(steps) is int), None)


def equal_runs(columns: Mapping[str, statistics.Dense]) -> tuple[EqualLosses, ...]:
    """Return the runs of equal losses that rounding explains worst, with what else stood still there."""
    if "loss" not in columns:
        return ()
    loss, gradient = columns["loss"], columns.get("grad_norm")
    rows, found = np.flatnonzero(loss.known), []
    for begin, one in statistics.stretches_at(loss, columns[STEP]):
        first, last = int(rows[begin]), int(rows[begin + one.length - 1])
        norms = None if gradient is None else gradient.values[first : last + 1]
        begins, ends = (None if step is None else int(step) for step in (one.first_step, one.last_step))
        found.append(EqualLosses(
            first_step=begins, last_step=ends, length=one.length, loss=one.value, jump=one.jump, changes=one.changes,
            grad_norm=None if norms is None else float(norms[0]), last_row=last == len(loss.values) - 1,
            grad_norm_equal=None if norms is None else bool((norms == norms[0]).all()), dust=one.dust,
        ))  # fmt: skip
    return tuple(found)


def _lacking(what: str, column: statistics.Dense | None, steps: statistics.Dense) -> Mapping[str, Any]:
    every = np.unique(steps.values[steps.known])
    without = every if column is None else np.setdiff1d(every, steps.values[steps.known & column.known])
    return {f"steps_without_{what}": len(without), f"first_without_{what}": int(without[0]) if len(without) else None}


def _speed(columns: Mapping[str, statistics.Dense]) -> Mapping[str, Any]:
    """Return the steps far quicker than the others: by the process's CPU time, which neighbours hardly move."""
    timed = {name: columns[name] for name in ("cpu_ms", "wall_ms") if name in columns}
    whole = (name for name, column in timed.items() if bool((column.known & (column.values > 0)).all()))
    name = next(whole, "wall_ms")
    column, steps = timed.get(name), columns[STEP]
    if column is not None:
        column = statistics.Dense(column.values, column.state, column.known & (column.values > 0))
    quick = statistics.quick_steps(column, steps) if column is not None else None
    return {"speed_from": name, "quick": quick, **_lacking("time", column, steps)}


def _coverage(view: RunView, columns: Mapping[str, statistics.Dense]) -> tuple[Coverage, ...]:
    """Describe where the columns end that say how much of the corpus was seen, and how long they have stood still."""
    whole = 100.0 if "pct" in view.logged_as.get("coverage", "") else 1.0
    full = {"coverage": whole, "corpus_position": corpus_tokens(view)}
    steps, ends = columns[STEP], []
    for name in (name for name in full if name in columns):
        rows = np.flatnonzero(columns[name].known)
        known = columns[name].values[rows]
        moved = np.flatnonzero(known != known[-1:])
        since = int(moved[-1]) + 1 if len(moved) else 0
        last, most = (float(known[-1]), float(known.max())) if len(known) else (None, None)
        step = int(steps.values[rows[since]]) if len(known) and steps.known[rows[since]] else None
        still = len(known) - since
        ends.append(Coverage(column=name, full=full[name], last=last, max=most, still=still, since_step=step))
    return tuple(ends)


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Repeat losses at both ends of a few rows, and put known numbers into the last; without losses, into its step."""
    few: RunView = views[0].cut(spread(views[0].rows))
    last, strange = few.rows - 1, 1e9 + 7
    if not last:
        return NoCanary("the log has one row, and two are needed")
    two = last >= 3  # the last row of the fewest that hold two pairs
    pairs = {last - 1: strange, last: strange} | ({0: strange + 1, 1: strange + 1} if two else {})
    damaged = few if "loss" in few.cells else few.overlaid(last, STEP, strange)
    for row, loss in pairs.items() if "loss" in few.cells else ():
        damaged = damaged.overlaid(row, "loss", loss)
    others: Any = {name: float(1 << 40) for name in ("tokens", "coverage", "corpus_position") if name in few.cells}
    for name, value in others.items():
        damaged = damaged.overlaid(last, name, value)
    if "tokens" in others:
        others["tokens"] = _finite(math.fsum(numbers(damaged, "tokens")))

    def seen(again: Measurement | Unmeasured) -> bool:
        found = record_of(again, CorpusProgress)
        assert found
        ends = {"tokens": found.tokens, **{end.column: end.last for end in found.coverage}}
        repeated = {run.loss for run in found.equal_losses if run.length == 2}
        shown = repeated >= {*pairs.values()} if "loss" in few.cells else found.largest_gap > strange // 2
        return shown and all(ends[name] == value for name, value in others.items())

    return Canary(name="the last loss repeated", place="loss, last row", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
