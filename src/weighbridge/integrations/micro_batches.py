"""One row an update, of what a framework tells of its micro-batches; what fails here is an event of the run."""

import functools
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from weighbridge.core import dataclass, field
from weighbridge.recorder import Recorder


def quietly(method: Callable[..., None]) -> Callable[..., None]:
    """Keep what goes wrong in a method out of training: its owner learns of it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as problem:  # noqa: BLE001 -- recording must never end a training
            self.failed(method.__name__, problem)

    return call


def while_open(method: Callable[..., None]) -> Callable[..., None]:
    """Call a method of a callback quietly, and only while it records."""
    quiet = quietly(method)
    return functools.wraps(method)(lambda self, *args, **named: self.recorder and quiet(self, *args, **named))


@dataclass(slots=True)
class Update:
    """What its row will say of the update under way; `parts` counts its losses, `norm` is of unclipped gradients."""

    loss: torch.Tensor | float | None = 0.0  # none once one of them could not be read
    parts: int = 0
    tokens: int | None = None
    norm: torch.Tensor | float | None = None
    scalars: dict[str, Any] = field(default_factory=dict)


class UpdateRecorder(Recorder):
    """A recorder that hears of micro-batches, and writes a row with the mean of their losses, if any is known."""

    _drawn = _waits = False
    _began: bool | None = None  # a pass that has no batch yet: whether the one before ran dry

    def __init__(self, directory: str | Path, model: torch.nn.Module, *args: Any, **options: Any) -> None:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module  # what it hands on can be a copy of the logits that no loss is made of
        super().__init__(directory, model, *args, **options)
        self.update = Update()

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        self._write_waiting()
        super().__exit__(kind, *about)

    def passed(self, passes: float) -> None:
        """Go on after so many passes: of a broken one nobody here has counted the first tokens."""
        whole = passes > 0 and passes.is_integer()
        self._began = True if whole else None
        self._position.passing, self._position.wraps = passes > 0, int(passes) - whole

    def next_pass(self, *, dry: bool) -> None:
        """Begin a new pass over the corpus, if a batch was drawn in the one before; `dry` where that one ran out."""
        if self._drawn:
            self._began, self._drawn = dry, False

    @quietly
    def training_batch(self, batch: object) -> None:
        """Write the row that waits, and count a batch that is about to be trained on."""
        self._write_waiting()
        if self._began is not None:
            self.pass_began(dry=self._began)
        self._drawn, self._began = True, None
        self.batch_drawn(batch)

    @quietly
    def micro_loss(self, loss: torch.Tensor | float) -> None:
        """Add a loss, at once: what a captured graph returned is overwritten by its next run."""
        so_far, self.update.loss, self.update.parts = self.update.loss, None, self.update.parts + 1
        if isinstance(loss, torch.Tensor):  # MPS has no float64
            loss = loss.detach().to(torch.float32 if loss.device.type == "mps" else torch.float64)
        self.update.loss = None if so_far is None else so_far + loss

    def updated(self, *, waits: bool = False) -> None:
        """Write the row of an update; with `waits`, when the next batch is drawn, for an evaluation may come first."""
        self._waits = True
        if waits:
            self._audit.ops.pause()  # what an evaluation does is none of the step's ops
        else:
            self._write_waiting()

    def _write_waiting(self) -> None:
        if self._waits:
            done, self.update, self._waits = self.update, Update(), False
            loss: Any = done.loss / done.parts if done.parts and done.loss is not None else None
            super().step(loss, grad_norm=done.norm, tokens=done.tokens, **done.scalars)


class Recording:
    """What the callbacks share: a recorder that begins and ends with a training, and its options."""

    def __init__(self, directory: str | Path, **options: Any) -> None:
        inspect.signature(Recorder).bind(directory, None, **options)  # a wrong name is refused now, not hours later
        self._directory, self._options = directory, options
        self._undo: list[Callable[[], None]] = []
        self.recorder: Any = None

    def failed(self, during: str, problem: Exception) -> None:
        """Log what went wrong with the run, or warn where there is none."""
        if self.recorder is not None:
            self.recorder.failed(during, problem)
        elif self._options.get("on_fail") == "raise":
            raise problem
        else:
            said = f"weighbridge callback: {during}: {problem}; training goes on, and this run is not recorded"
            warnings.warn(said, RuntimeWarning, stacklevel=3)

    def begin(self, model: torch.nn.Module, optimizer: Any, passes: float, **facts: Any) -> None:
        """Open a run, after so many passes over the corpus; one that an exception left open is closed."""
        self.finish()
        recorder = UpdateRecorder(self._directory, model, optimizer, **{**facts, **self._options})
        recorder.passed(passes)
        self.recorder = recorder.__enter__()

    def finish(self, kind: type[BaseException] | None = None) -> None:
        """Close the run, and take back what was put around methods."""
        while self._undo:
            self._undo.pop()()
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.__exit__(kind, None, None)

    @quietly
    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Close the run, as both frameworks call it."""
        self.finish()

    def around(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        """Until the run ends, let `call`, which is given the method first, stand for a method of this one object."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return (method if self.recorder is None else functools.partial(call, method))(*args, **kwargs)

        setattr(owner, name, ours)
        self._undo.append(lambda: setattr(owner, name, method) if vars(owner).get(name) is ours else None)
