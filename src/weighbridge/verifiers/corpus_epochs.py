"""The epochs of a run, one row a pass over its corpus, with the wrap events that announced it.

An epoch begins where `corpus_position` falls, or is the tokens of a step alone though it was beyond 0; without that
column, where the tokens consumed reach the next multiple of the corpus. An event belongs to the epoch that begins at
its step or one beside it; the n-th that was only computed may begin n steps away, for a loader leaves something over.
Batches drawn at random are one row, in which every event is stray.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from weighbridge.core import Fields, Measurement, Rows, SubjectKind, Unmeasured, dataclass, field
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import CorpusEpoch
from weighbridge.run_logs.log_table import NUMBER
from weighbridge.verifiers.corpus_progress import corpus_tokens
from weighbridge.verifiers.run_facts import numbers, token_claims
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.run import STEP, RunView

QUANTITY = "corpus_epochs"
FAR = 1 << 40  # steps away: from so far no event announces an epoch
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Begun:
    """An epoch: its first row and step, how far from it an event may lie, and the steps of the events in it."""

    row: int
    step: int
    slack: int
    events: list[int] = field(default_factory=list)
    stray: list[int] = field(default_factory=list)


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """List the epochs, with the tokens of each and the wrap events at its beginning."""
    view: RunView = views[0]
    tokens, corpus, sampled = _tokens(view), corpus_tokens(view), is_sampled(view)
    by_position = "corpus_position" in view.cells and not sampled
    if not by_position and (corpus is None or not tokens):
        why = "neither a corpus_position column nor the corpus's length and the tokens of a step are logged"
        remedy = "log corpus_position, or data.corpus_tokens with tokens (or seq_len and batch_size) in run.json"
        return Unmeasured(code="epochs-unknown", why=why, remedy=remedy)
    announced = (event.get(STEP) for event in view.events if event.get("event") == "wrap")
    steps, wraps = _steps(view), sorted(step if type(step) is int else -1 for step in announced)
    begun = _by_position(view, steps, tokens) if by_position else _by_tokens(tokens, steps, corpus or 1)
    begun = begun[:1] if sampled else begun
    for wrap in wraps:
        _sort_in(wrap, begun)
    by = "sampled" if sampled else "corpus_position" if by_position else "tokens"
    ends = [*(item.row for item in begun[1:]), view.rows]
    rows = [
        CorpusEpoch(
            epoch=f"epoch {number}", number=number, by=by, first_step=item.step, complete=number < len(begun),
            last_step=steps[max(end - 1, item.row)], events=len(item.events), event_steps=tuple(item.events[:SHOWN]),
            stray=len(item.stray), stray_steps=tuple(item.stray[:SHOWN]),
            tokens=math.fsum(tokens[item.row : end]) if tokens else None,
        )
        for number, (item, end) in enumerate(zip(begun, ends, strict=True), 1)
    ]  # fmt: skip
    value, looked = Rows("epoch", tuple(rows)), view.rows + len(wraps)
    return Measurement(quantity=QUANTITY, value=value, by="corpus_epochs/3", examined=looked, total=looked)


def is_sampled(view: RunView) -> bool:
    """Return whether the run says that its batches were drawn at random, so that nothing is passed over in order."""
    data = view.facts.get("data")
    return (data.get("sampled") if isinstance(data, Mapping) else view.facts.get("sampled")) is True


def _cells(view: RunView, column: str) -> Iterator[tuple[float, int]]:
    cells = view.dense(column)
    return zip(cells.values, cells.state, strict=True)


def _steps(view: RunView) -> Sequence[int]:
    return [int(value) if state == NUMBER and math.isfinite(value) else -1 for value, state in _cells(view, STEP)]


def _tokens(view: RunView) -> Sequence[float]:
    """Return the tokens of each row `[rows]`: as logged, else the same for all; empty where nothing says."""
    if "tokens" in view.cells:
        return [value if state == NUMBER and 0 <= value < math.inf else 0.0 for value, state in _cells(view, "tokens")]
    claim = next(token_claims(view), None)
    return [float(claim.value)] * view.rows if claim else []


def _by_position(view: RunView, steps: Sequence[int], tokens: Sequence[float]) -> list[Begun]:
    begun, before = [Begun(0, steps[0], 0)] if steps else [], -math.inf
    cells = zip(_cells(view, "corpus_position"), tokens or [0.0] * view.rows, strict=True)
    for row, ((position, state), taken) in enumerate(cells):
        if state == NUMBER and not math.isnan(position):
            # Where each step is a whole pass the position stands still. Rows of one step begin one epoch.
            if position < before or (before > 0 and position == taken and steps[row] != begun[-1].step):
                begun.append(Begun(row, steps[row], 1))
            before = position
    return begun


def _by_tokens(tokens: Sequence[float], steps: Sequence[int], corpus: int) -> list[Begun]:
    begun, before = [Begun(0, steps[0], 0)], 0.0
    for row, more in enumerate(tokens):
        number = int(before // corpus)
        if row and number >= len(begun):
            begun.append(Begun(row, steps[row], number))
        before += more
    if before > len(begun) * corpus:  # the last row ran over the end, and the epoch after it has no row of its own
        begun.append(Begun(len(steps) - 1, steps[-1], len(begun)))
    return begun


def _sort_in(wrap: int, begun: Sequence[Begun]) -> None:
    """Add an event to the epoch that it announces: one that has none yet, else the nearest; else it is stray."""
    near = [item for item in begun[1:] if abs(wrap - item.step) <= item.slack]
    if near:
        min(near, key=lambda item: (len(item.events), abs(wrap - item.step))).events.append(wrap)
        return
    inside = [item for item in begun if item.step <= wrap] or [begun[0]]
    inside[-1].stray.append(wrap)


def extent(views: Views, _options: Fields) -> int:
    """Count the rows and the wrap events that there are."""
    view: RunView = views[0]
    return view.rows + sum(event.get("event") == "wrap" for event in view.events)


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Let the position fall in the last of a few rows, and add wrap events before and after them."""
    few: RunView = views[0].cut(range(min(views[0].rows, 6)))
    steps = _steps(few)
    astray = [min(steps) - FAR, max(steps) + FAR]
    damaged = few.with_events([{"event": "wrap", "step": step} for step in astray])
    positions = few.dense("corpus_position").state[:-1] if "corpus_position" in few.cells else b""
    falls = not is_sampled(few) and NUMBER in positions
    if falls:
        damaged = damaged.overlaid(few.rows - 1, "corpus_position", -1.0)
    tokens = [value for value in numbers(few, "tokens") if 0 < value < math.inf]

    def seen(again: Measurement | Unmeasured) -> bool:
        rows = rows_of(again, CorpusEpoch)
        fell = not falls or (len(rows) > 1 and rows[-1].first_step == steps[-1])
        in_turn = [row.number for row in rows] == list(range(1, len(rows) + 1))
        stray = [wrap for row in rows for wrap in row.stray_steps]
        counted = math.fsum(row.tokens or 0.0 for row in rows) if tokens else 0.0
        return fell and in_turn and stray == astray and math.isclose(counted, math.fsum(tokens))

    return Canary(name="wrap events too many", place="events, first and last", views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
