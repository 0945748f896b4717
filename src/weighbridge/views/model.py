"""Look at a model's forward pass: what it computes at named capture points, whatever stack computes it.

A model subject is a Python factory, named `module:function` or `path/to/file.py:function` by the person at the
keyboard; it returns a `ForwardSubject`. Nothing here runs the factory before it is needed, or names one by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from weighbridge.errors import SubjectError
from weighbridge.limits import nearest
from weighbridge.model import Origin, Unmeasured

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

W = TypeVar("W")
Tokens = Sequence[Sequence[int]]  # [sequences, tokens]

WHOLE = frozenset({"embed", "logits"})  # the two points whose state one word says
STATELESS = frozenset({"q", "k", "v", "qkv"})  # before the bias, after it, or after the rotation: §31 of many a hunt
POINT = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
MAX_SOURCE = 16 << 20  # bytes of a factory's source file


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What one capture point held: float64 values `[sequences, tokens, channels]`, its own dtype, and its device."""

    values: NDArray[np.float64]
    dtype: str
    device: str


Forward = Callable[[Tokens], Mapping[str, Captured]]


@runtime_checkable
class ForwardSubject(Protocol):
    """A stack that can run a model forward and tell what it held at named points. Any stack may implement it.

    points: capture point ids, each saying its state (`L0.attn.q.post_bias`), in the order of computing.
    tokens: `[sequences, tokens]`, token ids; empty where the other side gives them.
    dtype: what it computes in: `float32`, `bfloat16` or `float16`.
    device: where it was asked to compute: `cpu`, `cuda`, `cuda:1`.
    checkpoint: the file that the weights were read from; empty where they came from elsewhere.
    """

    @property
    def points(self) -> Sequence[str]: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def checkpoint(self) -> str: ...

    def prepare(self, dtype: str, storage: str) -> Forward:
        """Make the stack ready to compute in `dtype`, from weights first rounded to `storage`.

        The result maps tokens to what the points held, in the order in which they were computed. A point that was
        not reached is left out. A stack that cannot compute in `dtype` raises `NotImplementedError`.
        """

    def weights(self, storage: str) -> Mapping[str, str]:
        """Digest each weight, by name, after rounding it to `storage`; empty where the stack cannot tell."""

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        """Give the floating constants that were computed, not stored (rotary frequencies); empty where none."""


def check_point(name: str) -> None:
    """Refuse a capture point id that does not say its state.

    Raises:
        SubjectError: `point-id`, for a bare word other than `embed` and `logits`, and for an id that ends in q, k or v.
    """
    last = name.rpartition(".")[2]
    if POINT.fullmatch(name) and (name in WHOLE or ("." in name and last not in STATELESS)):
        return
    raise SubjectError(
        "point-id",
        f"the capture point {name[:60]!r} does not say its state",
        remedy=f"name what was captured, as in L0.attn.q.matmul or L0.attn.q.post_bias; alone only {sorted(WHOLE)}",
    )


# --- The view ---------------------------------------------------------------------------------------------------------


class ModelView:
    """A model seen at its capture points; runs are remembered, so that a cut or damaged view costs no second run."""

    def __init__(self, spec: str, load: Callable[[], object]) -> None:
        self.spec = spec
        self._load = load
        self._loaded: list[ForwardSubject | Unmeasured] = []
        self._runs: dict[object, tuple[Mapping[str, Captured], Any]] = {}
        self._kept: frozenset[str] | None = None
        self._damage: tuple[str, float] | None = None

    def subject(self) -> ForwardSubject | Unmeasured:
        """Run the factory, once; Unmeasured `no-cuda` where it needs CUDA and there is none.

        Raises:
            SubjectError: where the factory raises, or returns something that is not a `ForwardSubject`.
        """
        if not self._loaded:
            self._loaded.append(_checked(self.spec, _made(self.spec, self._load)))
        return self._loaded[0]

    def points(self) -> tuple[str, ...]:
        """Name the capture points that the model declares, in order."""
        subject = self.subject()
        if isinstance(subject, Unmeasured):
            return ()
        return tuple(name for name in subject.points if self._kept is None or name in self._kept)

    def run(
        self, tokens: Tokens, dtype: str, storage: str, watch: Callable[[], AbstractContextManager[W]]
    ) -> tuple[Mapping[str, Captured], W]:
        """Compute in `dtype` from weights rounded to `storage`, with `watch()` around the forward pass alone.

        Raises:
            SubjectError: `forward-raised`, where the model's own code raises.
        """
        key = (repr(tokens), dtype, storage)
        if key not in self._runs:
            self._runs[key] = _run(self.spec, self._known(), tokens, dtype, storage, watch)
        held, watched = self._runs[key]
        return self._seen(held), watched

    def cut(self, points: Sequence[str]) -> ModelView:
        """Look at some of the points only."""
        view = self._again()
        view._kept = frozenset(points)
        return view

    def overlaid(self, point: str, value: float) -> ModelView:
        """Lay `value` over the last channel of the last token of the last sequence at a point."""
        view = self._again()
        view._damage = (point, value)
        return view

    @property
    def origin(self) -> Origin:
        """Say live where the weights were read from a checkpoint that can be digested, synthetic otherwise."""
        subject = self._loaded[0] if self._loaded else None
        named = subject is not None and not isinstance(subject, Unmeasured) and subject.checkpoint
        return Origin.LIVE if named and Path(str(named)).is_file() else Origin.SYNTHETIC

    def digest(self) -> Mapping[str, str]:
        """Digest the factory's source file and, once the factory has run, the checkpoint that it read: sha256."""
        files = [source for source in (_source(self.spec),) if source is not None]
        subject = self._loaded[0] if self._loaded else None
        if subject is not None and not isinstance(subject, Unmeasured) and subject.checkpoint:
            files.append(Path(subject.checkpoint))
        return {path.name: _sha256(path) for path in files}

    def _known(self) -> ForwardSubject:
        subject = self.subject()
        assert not isinstance(subject, Unmeasured)
        return subject

    def _again(self) -> ModelView:
        view = ModelView(self.spec, self._load)
        view._loaded, view._runs = self._loaded, self._runs
        view._kept, view._damage = self._kept, self._damage
        return view

    def _seen(self, held: Mapping[str, Captured]) -> Mapping[str, Captured]:
        kept = {name: item for name, item in held.items() if self._kept is None or name in self._kept}
        if self._damage is not None and self._damage[0] in kept:
            point, value = self._damage
            values = kept[point].values.copy()
            values[-1, -1, -1] = value
            kept[point] = replace(kept[point], values=values)
        return kept


def _run(
    spec: str,
    subject: ForwardSubject,
    tokens: Tokens,
    dtype: str,
    storage: str,
    watch: Callable[[], AbstractContextManager[W]],
) -> tuple[Mapping[str, Captured], W]:
    try:
        forward = subject.prepare(dtype, storage)
        with watch() as watched:
            held = forward(tokens)
    except SubjectError:
        raise
    except Exception as problem:
        raise SubjectError(
            "forward-raised",
            f"the forward pass in {dtype} raised {type(problem).__name__}",
            where=spec,
            remedy="run the model alone in that dtype; --debug shows the traceback",
        ) from problem
    for name, item in held.items():
        _check_values(spec, name, item)
    return held, watched


def _check_values(spec: str, name: str, item: Captured) -> None:
    check_point(name)
    if item.values.ndim == 3 and item.values.dtype == "float64":
        return
    raise SubjectError(
        "point-shape",
        f"{name} holds {item.values.dtype} {list(item.values.shape)}, not float64 [sequences, tokens, channels]",
        where=spec,
        remedy="capture where the first two dimensions are sequences and tokens",
    )


# --- The factory ------------------------------------------------------------------------------------------------------


def open_model(spec: str) -> ModelView:
    """Open a factory named `module:function` or `path/to/file.py:function`; it runs when it is first needed.

    Raises:
        SubjectError: `factory-spec` for any other form, `no-file` where the file is not there.
    """
    place, _, function = spec.rpartition(":")
    if not place or not function.isidentifier():
        raise SubjectError(
            "factory-spec",
            f"{spec[:80]!r} names no factory",
            remedy="write module:function or path/to/file.py:function",
        )
    if place.endswith(".py") and not Path(place).is_file():
        raise SubjectError("no-file", "no such file", where=place, remedy="check the path before the colon")
    return ModelView(spec, lambda: _factory(place, function)())


def _factory(place: str, function: str) -> Callable[[], object]:
    module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    found = getattr(module, function, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    public = [name for name, item in vars(module).items() if callable(item) and not name.startswith("_")]
    raise SubjectError("no-factory", f"no function {function!r}{nearest(function, public)}", where=place)


def _from_file(path: Path) -> ModuleType:
    """Import one file under a name of its own, so that two files of one name stay apart."""
    name = f"weighbridge_factory_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _made(spec: str, load: Callable[[], object]) -> object:
    with _importable(spec):
        try:
            return load()
        except SubjectError:
            raise
        except Exception as problem:
            if _wants_cuda(problem):
                return NO_CUDA
            raise SubjectError(
                "factory-raised",
                f"the factory raised {type(problem).__name__}",
                where=spec,
                remedy="call it from Python; --debug shows the traceback",
            ) from problem


@contextlib.contextmanager
def _importable(spec: str) -> Iterator[None]:
    """Let a factory import its neighbours, as `python file.py` and `python -m module` would."""
    place = spec.rpartition(":")[0]
    added = str(Path(place).resolve().parent) if place.endswith(".py") else str(Path.cwd())
    sys.path.insert(0, added)
    try:
        yield
    finally:
        sys.path.remove(added)


NO_CUDA = Unmeasured(
    code="no-cuda",
    why="the model computes on CUDA and this host has none",
    remedy="run it on a host with a CUDA device, or write `requires: {cuda: true}`",
)


def _checked(spec: str, made: object) -> ForwardSubject | Unmeasured:
    if isinstance(made, Unmeasured):
        return made
    if not isinstance(made, ForwardSubject):
        raise SubjectError(
            "not-a-forward",
            f"the factory returned {type(made).__name__}, which tells no capture points",
            where=spec,
            remedy="return weighbridge.views.torch_forward.TorchForward, or implement ForwardSubject",
        )
    for name in made.points:
        check_point(name)
    if made.device.startswith("cuda") and not _has_cuda():
        return NO_CUDA
    return made


def _wants_cuda(problem: Exception) -> bool:
    words = str(problem).lower()
    return ("cuda" in words or "nvidia" in words) and not _has_cuda()


def _has_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def _source(spec: str) -> Path | None:
    place = spec.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    module = sys.modules.get(place)
    return Path(module.__file__) if module is not None and module.__file__ else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
