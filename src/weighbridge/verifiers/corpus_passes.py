"""The passes of a run over its corpus, one row a pass, with the wrap events that announced it.

A pass begins where `corpus_position` falls; without that column, where the tokens consumed reach the next multiple of
the corpus. An event belongs to the pass that begins at its step or one beside it. Passes that were only computed drift
by what a loader leaves over, at most a step a pass, so the n-th may begin n steps away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from weighbridge.model import Fields, Json, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.run_logs.cells import NUMBER, Cells
from weighbridge.verifiers.corpus_progress import corpus_tokens
from weighbridge.verifiers.run_facts import tokens_told
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "corpus_passes"
CANARY_ROWS = 6
FAR = 1 << 40  # steps away: from so far no event announces a pass


@dataclass(frozen=True, slots=True)
class Begun:
    """A pass: its first row, its first step, and how far from it an event may lie."""

    row: int
    step: int
    slack: int


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """List the passes over the corpus, with the tokens of each and the wrap events at its beginning."""
    view: RunView = views[0]
    tokens = _tokens(view)
    corpus = corpus_tokens(view)
    by_position = "corpus_position" in view.cells
    if not by_position and (corpus is None or not tokens):
        return Unmeasured(
            code="passes-unknown",
            why="neither a corpus_position column nor the corpus's length and the tokens of a step are logged",
            remedy="log corpus_position, or data.corpus_tokens with tokens (or seq_len and batch_size) in run.json",
        )
    steps = _steps(view)
    begun = _by_position(view, steps) if by_position else _by_tokens(tokens, steps, corpus or 1)
    return Measurement(
        quantity=QUANTITY,
        value=Rows("pass", tuple(_rows(view, begun, steps, tokens, by_position=by_position))),
        by="corpus_passes/1",
        examined=view.rows + len(_wraps(view)),
        total=view.rows + len(_wraps(view)),
    )


def _steps(view: RunView) -> Sequence[int]:
    cells = view.dense(STEP)
    pairs = zip(cells.values, cells.state, strict=True)
    return [int(value) if state == NUMBER and math.isfinite(value) else -1 for value, state in pairs]


def _tokens(view: RunView) -> Sequence[float]:
    """Give the tokens of each row `[rows]`: as logged, else the same for all; empty where nothing tells."""
    if "tokens" in view.cells:
        cells = view.dense("tokens")
        pairs = zip(cells.values, cells.state, strict=True)
        return [value if state == NUMBER and 0 <= value < math.inf else 0.0 for value, state in pairs]
    told = next(tokens_told(view), None)
    return [float(told.value)] * view.rows if told else []


def _by_position(view: RunView, steps: Sequence[int]) -> list[Begun]:
    cells = view.dense("corpus_position")
    begun = [Begun(0, steps[0], 0)] if steps else []
    before = -math.inf
    for row, (position, state) in enumerate(zip(cells.values, cells.state, strict=True)):
        if state == NUMBER and not math.isnan(position):
            if position < before:
                begun.append(Begun(row, steps[row], 1))
            before = position
    return begun


def _by_tokens(tokens: Sequence[float], steps: Sequence[int], corpus: int) -> list[Begun]:
    begun = [Begun(0, steps[0], 0)]
    before = 0.0
    for row, more in enumerate(tokens):
        number = int(before // corpus)
        if row and number >= len(begun):
            begun.append(Begun(row, steps[row], number))
        before += more
    if before > len(begun) * corpus:  # the last row ran over the end, and the pass after it has no row of its own
        begun.append(Begun(len(steps) - 1, steps[-1], len(begun)))
    return begun


def _wraps(view: RunView) -> list[int]:
    """List the steps of the wrap events, in order; an event without a whole step counts at step -1."""
    steps = (event.get(STEP) for event in view.events if event.get("event") == "wrap")
    return sorted(step if type(step) is int else -1 for step in steps)


def _rows(
    view: RunView, begun: Sequence[Begun], steps: Sequence[int], tokens: Sequence[float], *, by_position: bool
) -> list[Fields]:
    events: list[list[int]] = [[] for _ in begun]
    stray: list[list[int]] = [[] for _ in begun]
    for wrap in _wraps(view):
        near = _announced(wrap, begun, events)
        (events[near] if near else stray[_inside(wrap, begun)]).append(wrap)
    ends = [*(item.row for item in begun[1:]), view.rows]
    return [
        {
            "pass": f"pass {number + 1}",
            "number": number + 1,
            "by": "corpus_position" if by_position else "tokens",
            "first_step": item.step,
            "last_step": steps[max(end - 1, item.row)],
            "complete": number + 1 < len(begun),
            "tokens": math.fsum(tokens[item.row : end]) if tokens else None,
            "events": len(events[number]),
            "event_steps": _few(events[number]),
            "stray": len(stray[number]),
            "stray_steps": _few(stray[number]),
        }
        for number, (item, end) in enumerate(zip(begun, ends, strict=True))
    ]


def _few(steps: list[int]) -> Json:
    return list(steps[:8])


def _announced(wrap: int, begun: Sequence[Begun], events: Sequence[list[int]]) -> int:
    """Find the pass after the first that an event announces: one that has none yet, else the nearest; 0 for none."""
    near = [at for at, item in enumerate(begun) if at and abs(wrap - item.step) <= item.slack]
    return min(near, key=lambda at: (len(events[at]), abs(wrap - begun[at].step)), default=0)


def _inside(wrap: int, begun: Sequence[Begun]) -> int:
    return max((at for at, item in enumerate(begun) if item.step <= wrap), default=0)


def extent(views: Views, _options: Fields) -> int:
    """Count the rows and the wrap events that there are."""
    view: RunView = views[0]
    return view.rows + sum(event.get("event") == "wrap" for event in view.events)


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Let the position fall in the last of a few rows, and add wrap events before and after them."""
    view: RunView = views[0]
    few = view.cut(range(min(view.rows, CANARY_ROWS)))
    steps = _steps(few)
    astray = [min(steps) - FAR, max(steps) + FAR]
    laid = few.with_events([{"event": "wrap", "step": step} for step in astray])
    falls = "corpus_position" in few.cells and NUMBER in few.dense("corpus_position").state[:-1]
    if falls:
        laid = laid.overlaid(few.rows - 1, "corpus_position", -1.0)
    held = few.dense("tokens") if "tokens" in few.cells else Cells()
    tokens = [
        value for value, state in zip(held.values, held.state, strict=True) if state == NUMBER and 0 < value < math.inf
    ]

    def seen(again: Measurement | Unmeasured) -> bool:
        if not isinstance(again, Measurement) or not isinstance(again.value, Rows) or not again.value.rows:
            return False
        rows = again.value.rows
        fell = not falls or (len(rows) > 1 and rows[-1]["first_step"] == steps[-1])
        in_turn = [row["number"] for row in rows] == list(range(1, len(rows) + 1))
        told = [wrap for row in rows for wrap in _whole(row["stray_steps"])]
        counted = [float(str(row["tokens"])) for row in rows] if tokens else []
        return fell and in_turn and told == astray and math.isclose(math.fsum(counted), math.fsum(tokens))

    return Canary(name="wrap events too many", place="events, first and last", views=(laid,), seen=seen)


def _whole(steps: Json) -> list[int]:
    return [step for step in steps if isinstance(step, int)] if isinstance(steps, list) else []


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
