"""A PyTorch module as a `ForwardSubject`: captures by forward hooks. It never changes the module that it is given.

And an audit, which counts what touched a floating tensor below float64, and decides nothing. A module that was cast by
`.double()` often still computes its norms, softmax and rotary angles in float32; a truth so made is wrong by more than
what it is meant to judge. Only operations of PyTorch in this thread are seen.
"""

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

DIGITS_BF16 = 8  # significant binary digits of a bfloat16
DIGITS_PLAIN = 4  # a value of at most so many digits (0.5, 0.75, 8) tells nothing about rounding
TELLING = 4  # so many distinct values with more digits do
TAP = re.compile(r"(?P<path>[\w.]*?)(?::(?P<side>in|out))?(?:\[(?P<start>\d+):(?P<stop>\d+)\])?")


@dataclass(frozen=True, slots=True)
class Tap:
    """Where a capture point lies in a module: a submodule's first input or its output, or a range of its channels."""

    path: str
    side: str
    channels: slice


def tap(text: str) -> Tap:
    """Read `path`, `path:in`, `path:out` or, for channels of a fused projection, `path:out[0:64]`."""
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
        """Return the capture points."""
        return tuple(self.taps)

    def prepare(self, dtype: str, storage: str) -> Forward:
        """Copy the module, round what it stores to `storage`, and make it compute in `dtype`.

        The copy is taken from the module as the factory gave it, so that a run in a low precision leaves no trace in
        a later one; computed constants are never rounded to `storage`.
        """
        module = _cast(copy.deepcopy(self.module), dtype, storage, self.keep_constants).to(self.device).eval()
        return lambda tokens: self._forward(module, tokens, dtype)

    def weights(self, storage: str) -> Mapping[str, str]:
        """Return a digest of each tensor of the state dict: sha256 over its shape and its bytes in `storage`."""
        import torch

        digests = {}
        for name, tensor in self.module.state_dict().items():
            kept = tensor.to(getattr(torch, storage)) if tensor.is_floating_point() else tensor
            data = kept.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            digests[name] = hashlib.sha256(repr(list(tensor.shape)).encode() + data.tobytes()).hexdigest()
        return digests

    def constants(self) -> Mapping[str, NDArray[np.float64]]:
        """Return the floating buffers that the state dict does not hold."""
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
        what = f"{name}: the module has no part {place.path!r}"
        raise SubjectError("no-submodule", what, remedy="check the tap's path") from None

    def keep(tensor: object) -> None:
        if name in held:
            raise SubjectError("captured-twice", f"{name} was reached twice in one pass", remedy="tap each call apart")
        held[name] = _captured(name, tensor, place.channels, shape)

    if place.side == "in":
        return target.register_forward_pre_hook(lambda _module, given: keep(given[0] if given else None))
    return target.register_forward_hook(
        lambda _module, _given, result: keep(result[0] if isinstance(result, tuple) and result else result)
    )


def _captured(name: str, tensor: object, channels: slice, shape: tuple[int, ...]) -> Captured:
    import torch

    if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape[:2]) != shape:
        found = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        what = f"{name} holds {found}, not [{shape[0]} sequences, {shape[1]} tokens, …]"
        remedy = "tap it where the first two dimensions are sequences and tokens"
        raise SubjectError("point-shape", what, remedy=remedy)
    values = _float64(tensor.reshape(*shape, -1)[..., channels])
    return Captured(values=values, dtype=str(tensor.dtype).removeprefix("torch."), device=tensor.device.type)


def _float64(tensor: torch.Tensor) -> Any:
    import torch

    # A copy: a later operation in place must not reach what was captured.
    return tensor.detach().to(device="cpu", dtype=torch.float64, copy=True).numpy()


@dataclass(slots=True)
class Float64Audit:
    """What an audited pass did: operations on floating tensors, those below float64, and the first of these."""

    operations: int = 0
    lower: int = 0
    first: str = ""

    def note(self, operation: str, dtypes: set[str]) -> None:
        """Count one operation that read or wrote floating tensors of these dtypes."""
        below = sorted(dtypes - {"float64", "complex128"})
        self.operations += bool(dtypes)
        self.lower += bool(below)
        self.first = self.first or (f"{operation} in {below[0]}" if below else "")


@contextmanager
def float64_audit() -> Iterator[Float64Audit]:
    """Audit every PyTorch operation inside the block by a dispatch mode, its inputs and outputs alike."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    audit = Float64Audit()

    def dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = [leaf for leaf in _pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        floating = (leaf for leaf in leaves if leaf.is_floating_point() or leaf.is_complex())
        audit.note(str(func), {str(leaf.dtype).removeprefix("torch.") for leaf in floating})
        return result

    mode: Any = type("Audit", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
    with mode():
        yield audit


def rounded(constants: Mapping[str, NDArray[np.float64]]) -> tuple[str, ...]:
    """Return the names of the constants whose every value is a bfloat16, though they are not round numbers.

    Casting a model to bfloat16 and back to float64 leaves its computed constants (rotary frequencies) rounded for
    good. Integers and values of few digits are left out of account; float16 rounding of small constants is not seen.
    """
    return tuple(name for name, values in constants.items() if _is_rounded(values))


def _is_rounded(values: NDArray[np.float64]) -> bool:
    import numpy as np

    finite = np.unique(values[np.isfinite(values)])
    if not np.array_equal(finite, _to_digits(finite, DIGITS_BF16)):
        return False
    telling = (finite != np.rint(finite)) & (finite != _to_digits(finite, DIGITS_PLAIN))
    return int(np.count_nonzero(telling)) >= TELLING


def _to_digits(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    import numpy as np

    mantissa, exponent = np.frexp(values)
    near: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
    return near
