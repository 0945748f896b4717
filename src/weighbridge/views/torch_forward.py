"""A PyTorch module as a `ForwardSubject`: captures by forward hooks. It never changes the module that it is given."""

from __future__ import annotations

import copy
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weighbridge.errors import SubjectError
from weighbridge.views.forward_subject import Captured, Forward, Tokens

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

TAP = re.compile(r"(?P<path>[\w.]*?)(?::(?P<side>in|out))?(?:\[(?P<start>\d+):(?P<stop>\d+)\])?")


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a capture point lies in a module: a submodule's first input or its output, or a range of its channels."""

    path: str
    side: str
    channels: slice


def tap(text: str) -> Tap:
    """Read `path`, `path:in`, `path:out` or, for channels of a fused projection, `path:out[0:64]`.

    Raises:
        SubjectError: `tap`, for any other form.
    """
    match = TAP.fullmatch(text)
    if match is None:
        raise SubjectError("tap", f"{text[:80]!r} names no place in a module", remedy="write path, path:in or path:out")
    start, stop = match["start"], match["stop"]
    return Tap(match["path"], match["side"] or "out", slice(int(start), int(stop)) if start else slice(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchForward:
    """A PyTorch module with its capture points and inputs.

    module: in evaluation it must map tokens `[sequences, tokens]` (int64) to anything; only hooks are read.
    taps: capture point id → place in the module (see `tap`). What lies there must be `[sequences, tokens, ...]`;
        a value inside a `forward` is made visible by passing it through an `nn.Identity` submodule.
    tokens: `[sequences, tokens]`, several sequences of several tokens.
    run: how to call the module where `module(tokens)` does not do.
    keep_constants: below float64, leave computed constants (non-persistent buffers) in their own dtype, as loading a
        checkpoint does; otherwise they are cast with the rest, as `module.to(dtype)` does.
    """

    module: torch.nn.Module
    taps: Mapping[str, str]
    tokens: Tokens = ()
    dtype: str = "float32"
    device: str = "cpu"
    checkpoint: str = ""
    run: Callable[[torch.nn.Module, torch.Tensor], object] | None = None
    keep_constants: bool = False

    @property
    def points(self) -> Sequence[str]:
        """Name the capture points."""
        return tuple(self.taps)

    def prepare(self, dtype: str, storage: str) -> Forward:
        """Copy the module, round what it stores to `storage`, and make it compute in `dtype`.

        The copy is taken from the module as the factory gave it, so that a run in a low precision leaves no trace in
        a later one; computed constants are never rounded to `storage`.
        """
        module = _cast(copy.deepcopy(self.module), dtype, storage, self.keep_constants).to(self.device).eval()
        return lambda tokens: self._forward(module, tokens, dtype)

    def weights(self, storage: str) -> Mapping[str, str]:
        """Digest each tensor of the state dict: sha256 over its shape and its bytes in `storage`."""
        return {name: _digest(tensor, storage) for name, tensor in self.module.state_dict().items()}

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        """Give the floating buffers that the state dict does not hold."""
        stored = self.module.state_dict()
        return {
            name: _float64(tensor)
            for name, tensor in self.module.named_buffers()
            if name not in stored and tensor.is_floating_point()
        }

    def _forward(self, module: torch.nn.Module, tokens: Tokens, dtype: str) -> Mapping[str, Captured]:
        import torch

        held: dict[str, Captured] = {}
        ids = torch.tensor([list(row) for row in tokens], dtype=torch.int64, device=self.device)
        with torch.no_grad(), _default_dtype(dtype), ExitStack() as hooks:
            for name, text in self.taps.items():
                hooks.callback(_hook(module, name, tap(text), tuple(ids.shape), held).remove)
            (self.run or (lambda called, given: called(given)))(module, ids)
        return held


def _cast(module: torch.nn.Module, dtype: str, storage: str, keep_constants: bool) -> torch.nn.Module:
    import torch

    stored = set(module.state_dict())
    kept, computed = getattr(torch, storage), getattr(torch, dtype)
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if not tensor.is_floating_point():
            continue
        if name in stored:
            tensor.data = tensor.data.to(kept).to(computed)
        elif dtype == "float64" or not keep_constants:
            tensor.data = tensor.data.to(computed)
    return module


@contextmanager
def _default_dtype(dtype: str) -> Iterator[None]:
    """Let factories inside a float64 forward (`torch.arange`, `torch.full`) make float64, not float32."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if dtype == "float64" else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _hook(
    module: torch.nn.Module, name: str, place: Tap, shape: tuple[int, ...], held: dict[str, Captured]
) -> torch.utils.hooks.RemovableHandle:
    try:
        target = module.get_submodule(place.path)
    except AttributeError:
        raise SubjectError(
            "no-submodule", f"{name}: the module has no part {place.path!r}", remedy="check the tap's path"
        ) from None

    def keep(tensor: object) -> None:
        if name in held:
            raise SubjectError("captured-twice", f"{name} was reached twice in one pass", remedy="tap each call apart")
        held[name] = _captured(name, tensor, place.channels, shape)

    if place.side == "in":
        return target.register_forward_pre_hook(lambda _module, given: keep(given[0] if given else None))
    return target.register_forward_hook(lambda _module, _given, result: keep(_first(result)))


def _first(result: object) -> object:
    return result[0] if isinstance(result, tuple) and result else result


def _captured(name: str, tensor: object, channels: slice, shape: tuple[int, ...]) -> Captured:
    import torch

    if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape[:2]) != shape:
        found = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise SubjectError(
            "point-shape",
            f"{name} holds {found}, not [{shape[0]} sequences, {shape[1]} tokens, …]",
            remedy="tap it where the first two dimensions are sequences and tokens",
        )
    values = _float64(tensor.reshape(*shape, -1)[..., channels])
    return Captured(values=values, dtype=_name(tensor), device=tensor.device.type)


def _float64(tensor: torch.Tensor) -> Any:
    import torch

    # A copy: a later operation in place must not reach what was captured.
    return tensor.detach().to(device="cpu", dtype=torch.float64, copy=True).numpy()


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _digest(tensor: torch.Tensor, storage: str) -> str:
    import torch

    kept = tensor.detach().to(getattr(torch, storage)) if tensor.is_floating_point() else tensor.detach()
    data = kept.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(repr(list(tensor.shape)).encode() + data.tobytes()).hexdigest()
