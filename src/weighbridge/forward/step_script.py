"""One step of a reference as a script of PyTorch's own operations: from the values of a candidate to a point."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from weighbridge.core import SubjectError, dataclass, field, torch
from weighbridge.forward.points import ReachedError
from weighbridge.forward.stacks import Tokens, Torch, captured
from weighbridge.forward.trace_file import Trace
from weighbridge.forward.widened import listening, rebuilt, tensors_in, unwatched, widened

SAME, RESHAPES = ("alias", "detach", "lift_fresh"), ("view", "_unsafe_view", "reshape")
EXACT = 1e-9  # relative L2: what a script may differ from the pass that it was written from


@dataclass(slots=True)
class Recording:
    """The operations of a pass, with all that they were given and made, so that no tensor's place is used twice."""

    calls: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of weights and points, by storage
    since: dict[int, int] = field(default_factory=dict)  # by storage: the call before which its values were replaced
    begun: bool = False

    def operation(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make and record an operation as it is asked for, before it is widened."""
        made = func(*args, **kwargs)
        if self.begun:
            self.calls.append((func, args, kwargs, made))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step: the lines of a function of two dtypes, what it starts from by name, and what it makes in float64."""

    lines: tuple[str, ...]
    given: Mapping[str, Any]
    truth: Any

    def made(self, wide: Any, wider: Any) -> Any:
        """Run the lines, with values and weights in one dtype, and what the model widens itself in another."""
        scope: dict[str, Any] = {"torch": torch, "aten": torch.ops.aten, "kept": self.given}
        exec("\n    ".join(("def step(d, w):", *self.lines)), scope)  # noqa: S102 -- lines that this module wrote
        with torch.no_grad():
            return scope["step"](wide, wider)


def step_of(reference: Torch, tokens: Tokens, trace: Trace, point: str, made_from: Collection[str]) -> Step:
    """Return the step that makes a point of the values in a trace before it; refuse one that cannot be written."""
    record, reached = Recording(begun=not made_from), list[torch.Tensor]()
    tensors = (*reference.plain.named_parameters(), *reference.plain.named_buffers())
    record.names.update((_pointer(one), name) for name, one in tensors)

    def visit(name: str, made: torch.Tensor) -> torch.Tensor | None:
        if name == point:
            reached.append(made)
            raise ReachedError
        record.begun |= name in made_from
        with unwatched():
            if trace.shape(name) != tuple(made.shape):
                return None
            replaced = captured(trace, name, made).to(made.dtype)
            for one in (made, replaced):
                record.names[_pointer(one)], record.since[_pointer(one)] = name, len(record.calls)
            return replaced

    with suppress(ReachedError), rebuilt(reference.plain), widened(), listening(record.operation):
        reference.forward(tokens, visit, casts=frozenset(trace.tensors))
    if not reached or not reached[0].is_floating_point():
        what = f"the reference makes no values at {point!r} that a script could make again"
        raise SubjectError("trace-step", what, remedy="name a point of floating values, as `trace points` lists them")
    lines, given = _written(record, reached[0], getattr(torch, trace.facts.dtype))
    step = Step(lines=lines, given=given, truth=reached[0])
    try:
        apart = step.made(torch.float64, torch.float64) - step.truth
        far, why = float(apart.norm() / step.truth.norm().clamp(min=1e-300)), "it comes to {:.2g} elsewhere"
    except RuntimeError as problem:  # a kernel that knows no float64
        far, why = math.inf, str(problem).partition("\n")[0][:120]
    if not far <= EXACT:
        what = f"the operations that make {point!r} do not make it again alone: {why.format(far)}"
        raise SubjectError("trace-step", what, remedy="name a point before or behind it")
    return step


def _written(record: Recording, last: torch.Tensor, dtype: Any) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Return the lines of what a tensor needs, and the tensors that nothing in them makes."""
    needed, storages, kept = {id(last)}, {_pointer(last)}, list[int]()
    for at in range(len(record.calls) - 1, -1, -1):
        func, args, kwargs, made = record.calls[at]
        outputs, inputs = tensors_in(made), tensors_in((args, kwargs))
        writes = func._schema.is_mutable and any(_pointer(one) in storages for one in inputs)  # noqa: SLF001
        live = (one for one in outputs if at >= record.since.get(_pointer(one), 0))
        if writes or any(id(one) in needed for one in live):
            kept.append(at)
            needed.update(id(one) for one in inputs)
            storages.update(_pointer(one) for one in inputs)
    return _lines([record.calls[at] for at in reversed(kept)], record, last, dtype)


def _lines(
    calls: Sequence[tuple[Any, Any, Any, Any]], record: Recording, last: torch.Tensor, dtype: Any
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    names, given, lines = dict[int, str](), dict[str, Any](), dict[str, str]()
    shaped: dict[str, str] = {}  # of what was only given another shape, what it was before

    def named(one: torch.Tensor) -> str:
        pointer = _pointer(one)
        if id(one) not in names:
            known = record.names.get(pointer, "given")
            name = known if known not in given else f"{known}.{len(given)}"
            names[id(one)] = f"x{len(given)}"
            short = one.to(dtype) if one.is_floating_point() else one  # as the candidate has it
            given[name] = (short if bool((short == one).all()) else one).detach().clone().contiguous()
            to = "" if not one.is_floating_point() else ".to(d)" if pointer in record.names else ".to(w)"
            lines[names[id(one)]] = f'kept["{name}"]{to}'
        return names[id(one)]

    for count, (func, args, kwargs, made) in enumerate(calls):
        own, overload = f"v{count}", func.__name__.removesuffix(".default")
        if overload in SAME:
            names[id(made)] = named(args[0])
            continue
        words = [_literal(one, named) for one in args]
        words += [f"{key}={_literal(one, named)}" for key, one in kwargs.items()]
        space = "aten" if func.namespace == "aten" else f"torch.ops.{func.namespace}"
        if overload in RESHAPES:
            shaped[own] = words[0] = shaped.get(words[0], words[0])
            overload = "reshape"
        lines[own] = f"{space}.{overload}({', '.join(words)})"
        parts = enumerate(made) if isinstance(made, (tuple, list)) else ((None, made),)
        names.update((id(one), own if part is None else f"{own}[{part}]") for part, one in parts)
    wanted, read = [f"return {named(last)}"], set(re.findall(r"\b[xv]\d+\b", named(last)))
    for name, line in reversed(lines.items()):
        if name in read or line.partition("(")[0].endswith("_"):  # what is written in place has no other reader
            read.update(re.findall(r"\b[xv]\d+\b", line))
            wanted.append(f"{name} = {line}")
    return tuple(reversed(wanted)), given


def _literal(value: Any, named: Callable[[torch.Tensor], str]) -> str:
    """Return an argument as it is written; float64 is what a pass was widened to, float32 what a model widens to."""
    if isinstance(value, torch.Tensor):
        return named(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_literal(one, named) for one in value)}]"
    if isinstance(value, torch.dtype):
        return {torch.float64: "d", torch.float32: "w"}.get(value, str(value))
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return str(value) if isinstance(value, (torch.memory_format, torch.layout)) else repr(value)


def _pointer(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
