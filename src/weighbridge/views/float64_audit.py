"""Watch a PyTorch forward pass and count what touched a floating tensor below float64. It counts and never decides.

A module that was cast by `.double()` often still computes its norms, softmax and rotary angles in float32; a truth so
made is wrong by more than what it is meant to judge. Only operations of PyTorch in this thread are seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIGITS_BF16 = 8  # significant binary digits of a bfloat16
DIGITS_PLAIN = 4  # a value of at most so many digits (0.5, 0.75, 8) tells nothing about rounding
TELLING = 4  # so many distinct values with more digits do


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
    from torch.utils._python_dispatch import TorchDispatchMode

    audit = Float64Audit()

    def dispatch(_mode: Any, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        audit.note(str(func), _dtypes((args, kwargs, result)))
        return result

    mode: Any = type("Audit", (TorchDispatchMode,), {"__torch_dispatch__": dispatch})
    with mode():
        yield audit


def _dtypes(tree: object) -> set[str]:
    import torch
    from torch.utils import _pytree

    leaves = (leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))
    return {str(leaf.dtype).removeprefix("torch.") for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()}


def rounded(constants: Mapping[str, NDArray[np.float64]]) -> tuple[str, ...]:
    """Name the constants whose every value is a bfloat16, though they are not round numbers.

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
