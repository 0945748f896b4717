"""Which columns a row has: by which channel, in which steps, and which of them a failure makes unreliable."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from weighbridge.quantities.runs import INSIDE
from weighbridge.recorder.beside.memorized import Memorized
from weighbridge.recorder.channels import Channel
from weighbridge.recorder.hook_points import PHASES
from weighbridge.recorder.learning import loss_scale, updates, weights
from weighbridge.recorder.passes import batches, probes

POSITION = ("tokens", "corpus_position", "wraps")
CHANNELS: tuple[type[Channel], ...] = (
    *(updates.Hyperparameters, updates.Norms, updates.StepCounters, loss_scale.LossScale, updates.EditedGradients),
    *(updates.StaleGradients, updates.Ownership, weights.CountedWrites, weights.WeightWrites, weights.Weights),
    *(weights.FirstWeights, batches.Batches, batches.HeldOut, batches.Modes, probes.Evaluations, probes.Targets),
)
SEEN = (*PHASES, *(column for channel in CHANNELS for column in channel.columns))
AT_CADENCE = {column for channel in CHANNELS if not channel.every_step for column in channel.columns}
# The columns and events that a failure in a method makes unreliable; in one that is not listed, all of them.
COSTS = {
    "step": ("loss", "wall_ms", "cpu_ms", "cost_ms", "tokens_per_sec", *POSITION, *SEEN, "skipped", *INSIDE),
    "_watch": (*SEEN, "skipped"),
    "_probe": ("device",),
    "fetching": ("device",),
    "batch_drawn": (*POSITION, "device"),
    "pass_began": POSITION,
    "gave_nothing": POSITION,
    "checkpoint": ("checkpoint",),
    "_digest": ("digests",),
    "_seal": (*Memorized.columns, "digests"),
    "_look_closer": ("analysis",),
}
ALL = (*COSTS["step"], "device")
OWN = frozenset({"step", *COSTS["step"]}).difference(INSIDE)  # which a script may measure itself
P = ParamSpec("P")
S = TypeVar("S")
MAX_MESSAGE = 300
PATH = re.compile(r"(['\"])[^'\"]*[/\\][^'\"]*\1|(?:[A-Za-z]:)?(?<![\w.])[~.]*[/\\][^\s'\":;,)]+")


class MisuseError(TypeError):
    """A call that cannot be recorded as it is."""


def refuse_unknown(requested_device: str, on_fail: str, channels: str) -> None:
    """Raise a ValueError for a word that a recorder does not know."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?|mps|auto", requested_device):
        raise ValueError(f"requested_device is {requested_device!r}; a run asks for cpu, cuda, cuda:N, mps or auto")
    if on_fail not in ("warn", "raise"):
        raise ValueError(f"on_fail is {on_fail!r}; it is warn or raise")
    if channels not in ("default", "all"):
        raise ValueError(f"channels is {channels!r}; it is default, or all to look at everything in every step")


def guarded(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Keep what goes wrong in the recorder out of training, but for a call that could never have worked, at once."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as problem:
            fits = not isinstance(problem, TypeError) or _fits(method, self, *args, **kwargs)
            misused = not fits or isinstance(problem, MisuseError)
            if misused and self._step == self._first_step:
                raise
            self.failed(method.__name__, problem)
            if misused:
                self._next_step()

    return call


def _fits(method: Callable[..., None], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def described(problem: Exception) -> str:
    """Return the type of an exception and what it says, without paths."""
    said = " ".join(PATH.sub("<path>", str(problem)).split())
    return f"{type(problem).__name__}: {said}"[:MAX_MESSAGE] if said else type(problem).__name__
