"""The moments of a training step, seen by hooks that torch offers: no code of the user's is replaced or rewritten."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from weighbridge.recorder.channels import MOMENTS, Cell, Channel, Watched, is_early
from weighbridge.recorder.residency import DispatchAudit

Look: TypeAlias = tuple[Channel, Callable[..., Any]]
Failed: TypeAlias = Callable[[str, Exception, tuple[str, ...]], None]
FRAMES = 12  # from an optimizer's hook up to the gradient scaler that called it
BEGINS = {f"{phase}_begins": f"{phase}_ms" for phase in ("fetch", "forward", "backward", "update")}
ENDS = {"batch": "fetch_ms"} | {f"{phase}_ended": f"{phase}_ms" for phase in ("forward", "backward", "update")}
# What dynamo does with the frames that begin: None outside of what is compiled.
frames_are_compiled = torch._C._dynamo.eval_frame.get_eval_frame_callback  # noqa: SLF001
PHASES = ("time", "monotonic_s", *BEGINS.values())
NANOSECOND = 6  # decimals of a millisecond: beyond, a difference of clocks has dust, which hides that they tick


class HookPoints:
    """Call the channels that are due at each moment, with `every` 0 all of them; one that fails goes to `failed`."""

    def __init__(
        self, watched: Watched, channels: Sequence[Channel], every: int, audit: DispatchAudit, failed: Failed
    ) -> None:
        self._watched, self._channels, self._every, self._failed = watched, list(channels), every, failed
        self._audit = audit
        self._handles: list[Any] = []
        self._scaler: torch.amp.GradScaler | None = None
        self._busy = self.sees_updates = False
        self.spent = 0.0  # seconds of looking
        self._began, self._phases = dict[str, float](), dict[str, float]()  # seconds, milliseconds
        self._lists: dict[bool | tuple[bool, ...], dict[str, list[Look]]] = {}  # by which periods are due
        self._due = self._now()

    def open(self) -> None:
        """Look from here on."""
        model, optimizer = self._watched.model, self._watched.optimizer
        self._handles.append(model.register_forward_pre_hook(self._forward_begins, with_kwargs=True))
        self._handles.append(model.register_forward_hook(self._forward_ended, with_kwargs=True))
        own = {one.id for one in self._handles}
        vars(model)["__getstate__"] = lambda: unwatched(model, own)  # what pickle and copy ask for
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(self._or_compiled(self._update_begins)))
            self._handles.append(optimizer.register_step_post_hook(self._or_compiled(self._update_ended)))
            self.sees_updates = True

    def close(self) -> None:
        """Look no more."""
        vars(self._watched.model).pop("__getstate__", None)
        while self._handles:
            self._handles.pop().remove()

    def row(self) -> dict[str, Cell]:
        """Return the figures of the step by column, with the time of day and that of a clock that is never set."""
        found: dict[str, Cell] = {"time": time.time(), "monotonic_s": time.monotonic()}
        found |= {name: round(phase, NANOSECOND) for name, phase in self._phases.items()}
        self._phases = {}
        for answer in self._ask("row"):
            found |= answer
        return found

    def next_step(self, step: int) -> None:
        """Begin a step, in which the model may have other parameters."""
        watched = self._watched
        watched.step, watched.updated, watched.compiled, watched.looked = step, False, False, False
        self._due = self._now()

    def _now(self) -> dict[str, list[Look]]:
        step = self._watched.step
        self._watched.early = not self._every or is_early(step, self._every)
        due = self._watched.early and tuple(is_early(step, one.period) for one in self._channels)
        if due not in self._lists:
            looking = [one for at, one in enumerate(self._channels) if one.every_step or (due and due[at])]
            self._lists[due] = {at: [(one, getattr(one, at)) for one in looking if hasattr(one, at)] for at in MOMENTS}
        return self._lists[due]

    def tell(self, moment: str, *about: Any) -> None:
        """Let the channels look that are due at a moment; a phase is what lies between those of its two ends."""
        if self._busy:
            return
        began = ended = time.perf_counter()
        if self._due[moment]:
            self._ask(moment, *about)
            ended = time.perf_counter()
            self.spent += ended - began
        if moment in BEGINS:
            self._began[BEGINS[moment]] = ended
        elif (phase := ENDS.get(moment, "")) in self._began:
            self._phases[phase] = self._phases.get(phase, 0.0) + (began - self._began.pop(phase)) * 1e3

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Do what is none of the training: no gradients, no channels, no audit."""
        live, self._busy, self._audit.live = self._audit.live, True, False
        try:
            with torch.no_grad():
                yield
        finally:
            self._busy, self._audit.live = False, live

    def _ask(self, moment: str, *about: Any) -> list[Any]:
        # As alone, but at every moment of every step, where generators and context managers are dear.
        live, graded, answers = self._audit.live, torch.is_grad_enabled(), list[Any]()
        self._busy, self._audit.live = True, False
        torch._C._set_grad_enabled(False)  # noqa: SLF001
        try:
            for channel, look in self._due[moment]:
                try:
                    answers.append(look(*about))
                except Exception as problem:  # noqa: BLE001 -- looking must never end a training step
                    self._channels.remove(channel)
                    self._lists.clear()
                    self._due = self._now()
                    self._failed(f"{type(channel).__name__}.{moment}", problem, channel.columns)
        finally:
            torch._C._set_grad_enabled(graded)  # noqa: SLF001
            self._busy, self._audit.live = False, live
            self._watched.norms = self._watched.lowest = None
        return answers

    def _forward_begins(self, _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            self.tell("forward_begins" if torch.is_grad_enabled() else "evaluation_begins", args, kwargs)

    def _forward_ended(self, _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling() or self._busy or not torch.is_grad_enabled():
            return
        if (watched := differentiable(output)) is not None:
            self._await_gradient(watched)
            self.tell("forward_ended", args, kwargs, watched)

    def _await_gradient(self, output: torch.Tensor) -> None:
        # Accelerate hands out a wider copy of the logits, and the loss may have been made of what was copied.
        node, number = output.grad_fn, output.output_nr
        while node is not None and node.name().startswith("ToCopyBackward"):
            node, number = node.next_functions[0]
        seen = False

        def arrived(gradient: torch.Tensor | None) -> None:  # none of a compiled model's output that no loss is made of
            nonlocal seen
            seen = gradient is not None
            if gradient is not None:
                self._backward_begins(gradient)

        def copied(gradients: Sequence[torch.Tensor | None]) -> None:
            nonlocal seen
            if not seen and (gradient := gradients[number]) is not None:
                self._backward_begins(gradient)
            seen = False

        output.register_hook(arrived)  # type: ignore[no-untyped-call]
        if node is not None and node is not output.grad_fn:
            node.register_prehook(copied)

    def _backward_begins(self, gradient: torch.Tensor) -> None:
        if self._busy:
            return
        self.tell("backward_begins", gradient)
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001
        # Of several ranks the reducer queues its own end while the pass goes on: ours then has to come behind it.
        queue(lambda: queue(lambda: self.tell("backward_ended")))

    def _or_compiled(self, look: Callable[[], None]) -> Callable[..., None]:
        # Inside a function that somebody compiles it runs as it is; to see to that costs more than looking.
        apart = torch.compiler.disable(look)  # type: ignore[no-untyped-call]

        def looked(*_: object) -> None:
            if torch.compiler.is_compiling():
                self._watched.compiled = True
            elif frames_are_compiled() is None:
                look()
            else:
                apart()

        return looked

    def _update_begins(self) -> None:
        self._scaler = self._scaler or _scaler_above()
        self._watched.scale = self._scaler._scale if self._scaler is not None else None  # noqa: SLF001
        self.tell("update_begins")

    def _update_ended(self) -> None:
        self._watched.updated = True
        self.tell("update_ended")


def unwatched(model: torch.nn.Module, hooks: set[int]) -> Any:
    """Return the state that a pickle or a copy of a model takes: without these hooks, which belong to the run."""
    state: Any = type(model).__getstate__(model)  # type: ignore[no-untyped-call,unused-ignore]
    if not isinstance(state, dict):  # a class with slots, or one that says otherwise what it is
        return state
    state = {name: value for name, value in state.items() if name != "__getstate__"}
    for name in (name for name in state if name.startswith("_forward_") and "hooks" in name):
        state[name] = type(state[name])((key, hook) for key, hook in state[name].items() if key not in hooks)
    return state


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
        if frame.f_code.co_name == "step" and isinstance(found := frame.f_locals.get("self"), torch.amp.GradScaler):
            return found if found.is_enabled() else None
        frame = frame.f_back
    return None
