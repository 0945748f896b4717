"""What is written down of a failure in the recorder: what failed, why, and what the log lacks for it."""

from __future__ import annotations

import re

MAX_MESSAGE = 300
PATH = re.compile(r"(['\"])[^'\"]*[/\\][^'\"]*\1|(?:[A-Za-z]:)?(?<![\w.])[~.]*[/\\][^\s'\":;,)]+")
POSITION = ("tokens", "corpus_position", "wraps")
UPDATE = ("lr", "grad_norm", "skipped")
COSTS = {
    "step": ("loss", "wall_ms", "cpu_ms", *POSITION, *UPDATE),
    "_watch_updates": UPDATE,
    "_updated": UPDATE,
    "_probe": ("device",),
    "fetching": ("device",),
    "batch_drawn": (*POSITION, "device"),
    "pass_began": POSITION,
    "gave_nothing": POSITION,
}
ALL = (*COSTS["step"], "device")


def costs(during: str) -> tuple[str, ...]:
    """Return the columns and events that a failure there makes unreliable; of one not listed, all."""
    return COSTS.get(during, ALL)


def described(problem: Exception) -> str:
    """Return an exception's type and message on one line, without the paths in it."""
    said = " ".join(PATH.sub("<path>", str(problem)).split())
    return f"{type(problem).__name__}: {said}"[:MAX_MESSAGE] if said else type(problem).__name__
