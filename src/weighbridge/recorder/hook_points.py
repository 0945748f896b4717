"""The moments of a training step, seen by hooks that torch offers: no code of the user's is replaced or rewritten."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from weighbridge.recorder.channels import MOMENTS, Cell, Channel, Watched, is_early
from weighbridge.recorder.residency import DispatchAudit

FRAMES = 12  # from an optimizer's hook up to the gradient scaler that called it


class HookPoints:
    """Call the channels that are due at each moment; one that fails is called no more, and `failed` is called with it.

    With `every` 0 all are due in all steps.
    """

    def __init__(
        self,
        watched: Watched,
        channels: Sequence[Channel],
        every: int,
        audit: DispatchAudit,
        failed: Callable[[Channel, str, Exception], None],
    ) -> None:
        self._watched, self._channels, self._every, self._failed = watched, list(channels), every, failed
        self._audit = audit
        self._handles: list[Any] = []
        self._scaler: torch.amp.GradScaler | None = None
        self._busy = self.sees_updates = False
        self._due = self._now()

    def open(self) -> None:
        """Look from here on."""
        model, optimizer = self._watched.model, self._watched.optimizer
        self._handles += [
            model.register_forward_pre_hook(self._forward_begins, with_kwargs=True),
            model.register_forward_hook(self._forward_ended, with_kwargs=True),
        ]
        if optimizer is not None:
            # What looks at an update runs as it is, even inside a function that somebody compiles.
            before, after = map(torch.compiler.disable, (self._update_begins, self._update_ended))
            self._handles += [
                optimizer.register_step_pre_hook(lambda *_: self._or_compiled(before)),
                optimizer.register_step_post_hook(lambda *_: self._or_compiled(after)),
            ]
            self.sees_updates = True

    def close(self) -> None:
        """Look no more."""
        while self._handles:
            self._handles.pop().remove()

    def fetch_begins(self) -> None:
        """Say that the loader is asked for a batch."""
        self._tell("fetch_begins")

    def batch(self, batch: object) -> None:
        """Say that the loader hands out a batch."""
        self._tell("batch", batch)

    def row(self) -> dict[str, Cell]:
        """Return the figures of the step by column."""
        found: dict[str, Cell] = {}
        with self.alone():
            for channel in self._of_step():
                with self._guarded(channel, "row"):
                    found |= channel.row()
        return found

    def next_step(self, step: int) -> None:
        """Begin a step."""
        self._watched.begin(step)
        self._due = self._now()

    def _now(self) -> dict[str, list[Channel]]:
        self._watched.early = not self._every or is_early(self._watched.step, self._every)
        due = self._of_step()
        return {at: [one for one in due if getattr(type(one), at) is not getattr(Channel, at)] for at in MOMENTS}

    def _of_step(self) -> list[Channel]:
        return [channel for channel in self._channels if self._watched.early or channel.every_step]

    def _tell(self, moment: str, *about: Any) -> None:
        if self._busy or not self._due[moment]:
            return
        with self.alone():
            for channel in self._due[moment]:
                with self._guarded(channel, moment):
                    getattr(channel, moment)(*about)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Do what is none of the training: no gradients, no channels, no audit."""
        self._busy = True  # a forward pass of a channel's own is none of the training
        live, self._audit.live = self._audit.live, False
        try:
            with torch.no_grad():
                yield
        finally:
            self._busy, self._audit.live = False, live

    @contextlib.contextmanager
    def _guarded(self, channel: Channel, moment: str) -> Iterator[None]:
        try:
            yield
        except Exception as problem:  # noqa: BLE001 -- looking must never end a training step
            self._channels.remove(channel)
            self._due = self._now()
            self._failed(channel, moment, problem)

    def _forward_begins(self, _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled():
            self._tell("forward_begins", args, kwargs)

    def _forward_ended(self, _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling() or self._busy or not torch.is_grad_enabled():
            return
        if (watched := differentiable(output)) is not None:
            watched.register_hook(self._backward_begins)  # type: ignore[no-untyped-call]
            self._tell("forward_ended", args, kwargs, watched)

    def _backward_begins(self, gradient: torch.Tensor) -> None:
        if self._busy:
            return
        self._tell("backward_begins", gradient)
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
        # Of several ranks the reducer queues its own end while the pass goes on: ours then has to come behind it.
        queue(lambda: queue(lambda: self._tell("backward_ended")))

    def _or_compiled(self, looked: Callable[[], None]) -> None:
        if torch.compiler.is_compiling():
            self._watched.compiled = True
        else:
            looked()

    def _update_begins(self) -> None:
        self._scaler = self._scaler or _scaler_above()
        self._watched.scale = self._scaler._scale if self._scaler is not None else None  # noqa: SLF001
        self._tell("update_begins")

    def _update_ended(self) -> None:
        self._watched.updated = True
        self._tell("update_ended")


def differentiable(output: Any) -> torch.Tensor | None:
    """Return the logits of what a model returned, else the first of its tensors that has a gradient."""
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad else None
    if isinstance(output, Mapping):
        output = (output.get("logits"), *output.values())
    elif not isinstance(output, (tuple, list)):
        output = (getattr(output, "logits", None),)
    return next((found for one in output if one is not None and (found := differentiable(one)) is not None), None)


def _scaler_above() -> torch.amp.GradScaler | None:
    frame: Any = sys._getframe(1)  # noqa: SLF001 -- a scaler offers no hook, and multiplies all that arrives
    for _ in range(FRAMES):
        if frame is None:
            return None
        if isinstance(found := frame.f_locals.get("self"), torch.amp.GradScaler):
            return found if found.is_enabled() else None
        frame = frame.f_back
    return None
