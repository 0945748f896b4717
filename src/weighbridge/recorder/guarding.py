"""What goes wrong in the recorder stays out of training, but for a call that could never have worked, at once."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

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
