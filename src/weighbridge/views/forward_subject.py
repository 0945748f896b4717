"""Look at a model's forward pass: what it computes at named capture points, whatever stack computes it.

A model subject is a Python factory, named `module:function` or `path/to/file.py:function` by the person at the
keyboard; it returns a `ForwardSubject`. Nothing here runs a factory before it is needed, or names one by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from weighbridge.errors import SubjectError
from weighbridge.model import Origin, Unmeasured
from weighbridge.storage.local_files import is_file
from weighbridge.views.factory import Factory, has_cuda

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

W = TypeVar("W")
Tokens = Sequence[Sequence[int]]  # [sequences, tokens]

WHOLE = frozenset({"embed", "logits"})  # the two points whose state one word says
STATELESS = frozenset({"q", "k", "v", "qkv"})  # before the bias, after it, or after the rotation?
POINT = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
DIMENSIONS = 3  # sequences, tokens, channels

NO_CUDA = Unmeasured(
    code="no-cuda",
    why="the model computes on CUDA and this host has none",
    remedy="run it on a host with a CUDA device, or write `requires: {cuda: true}`",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What one capture point held: float64 values `[sequences, tokens, channels]`, its own dtype, and its device."""

    values: NDArray[np.float64]
    dtype: str
    device: str


Forward = Callable[[Tokens], Mapping[str, Captured]]


@runtime_checkable
class ForwardSubject(Protocol):
    """A stack that can run a model forward and tell what it held at named points. Any stack may implement it."""

    @property
    def points(self) -> Sequence[str]:
        """Return the capture points in the order of computing; each id says its state (`L0.attn.q.post_bias`)."""

    @property
    def tokens(self) -> Tokens:
        """Return the token ids, `[sequences, tokens]`; empty where the other side gives them."""

    @property
    def dtype(self) -> str:
        """Return what it computes in: `float32`, `bfloat16` or `float16`."""

    @property
    def device(self) -> str:
        """Return where it was asked to compute: `cpu`, `cuda`, `cuda:1`."""

    @property
    def checkpoint(self) -> str:
        """Return the file that the weights were read from; empty where they came from elsewhere."""

    def prepare(self, dtype: str, storage: str) -> Forward:
        """Make the stack ready to compute in `dtype`, from weights first rounded to `storage`.

        The result maps tokens to what the points held, in the order in which they were computed; a point that was
        not reached is left out.

        Raises:
            NotImplementedError: where this stack cannot compute in `dtype`.
        """

    def weights(self, storage: str) -> Mapping[str, str]:
        """Return a digest of each weight, by name, rounded to `storage` first; empty where the stack cannot tell."""

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        """Return the floating constants that were computed, not stored (rotary frequencies); empty where none."""


def check_point(name: str, where: str = "") -> None:
    """Refuse with `point-id` a bare word other than `embed` and `logits`, and an id that ends in q, k or v."""
    last = name.rpartition(".")[2]
    if POINT.fullmatch(name) and (name in WHOLE or ("." in name and last not in STATELESS)):
        return
    remedy = "name what was captured, as in L0.attn.q.matmul or L0.attn.q.post_bias; bare are only embed and logits"
    raise SubjectError(
        "point-id", f"the capture point {name[:60]!r} does not say its state", where=where, remedy=remedy
    )


def open_model(spec: str) -> ModelView:
    """Open a factory named `module:function` or `path/to/file.py:function`; it runs when it is first needed."""
    return ModelView(Factory.named(spec))


@dataclass(frozen=True, slots=True)
class Memory:
    """What a factory made and what its runs held, shared by all views of one model."""

    loaded: list[ForwardSubject | Unmeasured] = field(default_factory=list)
    runs: dict[object, tuple[Mapping[str, Captured], Any]] = field(default_factory=dict)
    weights: dict[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ModelView:
    """A model seen at its capture points; runs are remembered, so that a cut or damaged view costs no second run.

    `kept` are the only points that are looked at, where it is not None; at `point` one value is another than the
    model's own.
    """

    factory: Factory
    kept: frozenset[str] | None = None
    point: str = ""
    value: float = 0.0
    _memory: Memory = field(default_factory=Memory)

    def subject(self) -> ForwardSubject | Unmeasured:
        """Run the factory, once; Unmeasured `no-cuda` where it needs CUDA and there is none."""
        if not self._memory.loaded:
            self._memory.loaded.append(_load(self.factory))
        return self._memory.loaded[0]

    def points(self) -> tuple[str, ...]:
        """Return the capture points that the model declares, in order."""
        subject = self.subject()
        declared = () if isinstance(subject, Unmeasured) else subject.points
        return tuple(name for name in declared if self.kept is None or name in self.kept)

    def run(
        self, tokens: Tokens, dtype: str, storage: str, watch: Callable[[], AbstractContextManager[W]]
    ) -> tuple[Mapping[str, Captured], W]:
        """Compute in `dtype` from weights rounded to `storage`, with `watch()` around the forward pass alone."""
        key = (tuple(map(tuple, tokens)), dtype, storage)
        if key not in self._memory.runs:
            self._memory.runs[key] = self._forward(tokens, dtype, storage, watch)
        held, watched = self._memory.runs[key]
        shown = {name: item for name, item in held.items() if self.kept is None or name in self.kept}
        if self.point in shown:  # the one damaged array is copied, no other
            values = shown[self.point].values.copy()
            values[-1, -1, -1] = self.value
            shown[self.point] = replace(shown[self.point], values=values)
        return shown, watched

    def weights(self, storage: str) -> Mapping[str, str]:
        """Return a digest of each weight, by name, after rounding it to `storage`; once."""
        if storage not in self._memory.weights:
            subject = self.subject()
            assert not isinstance(subject, Unmeasured)
            self._memory.weights[storage] = subject.weights(storage)
        return self._memory.weights[storage]

    def cut(self, points: Sequence[str]) -> ModelView:
        """Return a view of some of the points only."""
        return replace(self, kept=frozenset(points))

    def overlaid(self, point: str, value: float) -> ModelView:
        """Lay `value` over the last channel of the last token of the last sequence at a point."""
        return replace(self, point=point, value=value)

    @property
    def origin(self) -> Origin:
        """Return LIVE once the weights are known to come from a file that can be digested, SYNTHETIC otherwise."""
        return Origin.LIVE if self._checkpoint() is not None else Origin.SYNTHETIC

    def digest(self) -> Mapping[str, str]:
        """Digest the factory's source file and, once the factory has run, the checkpoint that it read: sha256."""
        return self.factory.digest(self._checkpoint())

    def _checkpoint(self) -> Path | None:
        subject = self._memory.loaded[0] if self._memory.loaded else None
        named = "" if subject is None or isinstance(subject, Unmeasured) else subject.checkpoint
        return Path(named) if named and is_file(Path(named)) else None

    def _forward(
        self, tokens: Tokens, dtype: str, storage: str, watch: Callable[[], AbstractContextManager[W]]
    ) -> tuple[Mapping[str, Captured], W]:
        subject = self.subject()
        assert not isinstance(subject, Unmeasured)
        try:
            forward = subject.prepare(dtype, storage)
            with watch() as watched:
                held = forward(tokens)
        except (SubjectError, KeyboardInterrupt):
            raise
        except BaseException as problem:
            what = f"the forward pass in {dtype} raised {type(problem).__name__}"
            remedy = "run the model alone in that dtype; --debug shows the traceback"
            raise SubjectError("forward-raised", what, where=self.factory.spec, remedy=remedy) from problem
        for name, item in held.items():
            _check_captured(self.factory.spec, name, item)
        return held, watched


def _load(factory: Factory) -> ForwardSubject | Unmeasured:
    made = factory.make()
    if made is None:
        return NO_CUDA
    if not isinstance(made, ForwardSubject) or not _tells(made):
        what = f"the factory returned {type(made).__name__}, which does not tell points, tokens, dtype and device"
        remedy = "return weighbridge.views.torch_forward.TorchForward, or implement ForwardSubject"
        raise SubjectError("not-a-forward", what, where=factory.spec, remedy=remedy)
    for name in made.points:
        check_point(name, factory.spec)
    return NO_CUDA if made.device.startswith("cuda") and has_cuda() is False else made


def _tells(made: ForwardSubject) -> bool:
    """Return whether a subject says of itself what it should; a protocol sees only that the names are there."""
    lists: tuple[object, ...] = (made.points, made.tokens)
    texts = (made.dtype, made.device, made.checkpoint)
    return all(isinstance(each, Sequence) for each in lists) and all(isinstance(t, str) for t in (*texts, *made.points))


def _check_captured(where: str, name: str, item: Captured) -> None:
    check_point(name, where)
    if not isinstance(item, Captured):
        what, remedy = "not a Captured", "return weighbridge.views.forward_subject.Captured for every point"
        raise SubjectError("point-shape", f"{name} holds a {type(item).__name__}, {what}", where=where, remedy=remedy)
    if item.values.ndim != DIMENSIONS or item.values.dtype != "float64":
        what = f"{item.values.dtype} {list(item.values.shape)}, not float64 [sequences, tokens, channels]"
        remedy = "capture where the first two dimensions are sequences and tokens"
        raise SubjectError("point-shape", f"{name} holds {what}", where=where, remedy=remedy)
