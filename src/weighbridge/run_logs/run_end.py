"""How a run ended, as its log and the host tell: ended, early, raised, killed, going or unknown."""

import os
import socket
from collections.abc import Collection, Sequence
from typing import Any

from weighbridge.core import Basis, Fields, data, dataclass
from weighbridge.core.pseudonym import key_file, pseudonym
from weighbridge.quantities.facts import ENDS

ENDED, EARLY, RAISED, KILLED, GOING, UNKNOWN = ENDS
SUMMED = "train_runtime"  # the column of a Trainer's last row
# What reports call it (`status`, `state`), in lower case.
STATUS = {said: ended for ended, words in data.table("run_logs/statuses").items() for said in words}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: derived where the log's steps bear out or fall short of what was asked, else reported."""

    ended: str
    basis: Basis = Basis.REPORTED
    by: str = ""
    requested_steps: int | None = None
    taken_steps: int = 0
    contradicted_by: tuple[str, ...] = ()


def run_end(
    facts: Fields, events: Sequence[Fields], steps: int, last_step: float | None = None, *,
    gap: float | None = None, columns: Collection[str] = (),
) -> RunEnd:  # fmt: skip
    """Return how a run of so many recorded steps ended, of which the last has this number and `gap` is the widest."""
    asked = _count(facts.get("requested_steps", facts.get("max_steps")))
    steps += _count(facts.get("first_step")) or 0  # a segment that resumed goes on with the steps of another
    reached = _count(facts.get("global_step"))  # a Trainer counts them, however rarely it logs
    end = next((event for event in reversed(events) if event.get("event") == "end"), None)
    taken = steps
    if end is None and reached is not None:  # an evaluation may stand at step 0, before all steps
        taken = reached if last_step == reached == steps - 1 else max(steps, reached)
    so_far: dict[str, Any] = {"requested_steps": asked, "taken_steps": taken}
    over = (f"{asked} steps were asked for, {taken} were taken",) if asked is not None and taken > asked else ()
    if end is not None:
        by, counted = str(end.get("by") or ""), _count(end.get("steps"))
        other = () if counted in (None, steps) else (f"its end tells of {counted} steps, the log of {steps}",)
        ended = RAISED if by else ENDED if asked is None or steps >= asked else EARLY
        basis = Basis.REPORTED if by or asked is None else Basis.DERIVED
        return RunEnd(ended=ended, basis=basis, by=by, contradicted_by=other + over, **so_far)
    if reached is not None and last_step and gap and reached - last_step > 2 * gap:
        cut = f"{reached} steps were taken, and no row is logged after step {last_step:g}"
        return RunEnd(ended=UNKNOWN, contradicted_by=(*over, cut), requested_steps=asked, taken_steps=int(last_step))
    if asked is not None and reached is not None:
        # A Trainer sums up once it has ended; one that ends by patience keeps a best metric.
        summed = SUMMED in columns and facts.get("best_metric") is None
        basis = Basis.DERIVED if (reached >= asked and last_step == reached) or summed else Basis.REPORTED
        ended = ENDED if reached >= asked else EARLY if summed else UNKNOWN
        return RunEnd(ended=ended, basis=basis, contradicted_by=over, **so_far)
    status = str(facts.get("status", facts.get("state", "")))
    if status.lower() in STATUS:
        return RunEnd(ended=STATUS[status.lower()], by=status, contradicted_by=over, **so_far)
    return RunEnd(ended=_process(facts.get("pid"), facts.get("host")), contradicted_by=over, **so_far)


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _process(pid: object, host: object) -> str:
    """Return what a process that logged no end has come to; of one on another host nothing is known."""
    if type(pid) is not int or pid <= 0 or not host or os.name == "nt":
        return UNKNOWN  # on Windows, signal 0 is Ctrl-C to the whole console
    key = key_file(os.environ)
    try:
        here = pseudonym("host", socket.gethostname(), key) if key and key.exists() else ""
    except (OSError, ValueError):
        return UNKNOWN
    if host != here:
        return UNKNOWN
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return KILLED
    except (OSError, OverflowError):
        return GOING
    return GOING
