"""Sums of the raw bits of tensors: equal bits give equal sums anywhere, for whole numbers add up in any order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from weighbridge.recorder.learning.tensor_norms import DENSE, SMALL, flattened, stacked

WORD = 8  # bytes; what is left over is added in words of its own elements
LOW = 2**32 - 1
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def bit_sums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return for each tensor the sum of its words mod 2^64, added where it is; int64 `[tensors]`, on one device."""
    together = [_small(one) for one in tensors]
    sums = _sums([one for one, small in zip(tensors, together, strict=True) if small])
    if all(together):
        return sums
    found = iter(sums.unbind())
    by_tensor = (next(found) if together[at] else _sum(one.detach().reshape(-1)) for at, one in enumerate(tensors))
    return stacked(list(by_tensor))


def parameters_sum(sums: torch.Tensor) -> torch.Tensor:
    """Return what a log holds of all parameters at once, below 2^53; both halves count, so that no bit is lost."""
    return ((sums & LOW) + ((sums >> 32) & LOW)).sum() & (2**53 - 1)


def _small(tensor: torch.Tensor) -> bool:
    plain = tensor.is_cpu and tensor.dtype is torch.float32 and type(tensor) in DENSE
    return plain and (size := tensor.numel()) % 2 == 0 and 0 < size <= SMALL


def _sums(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sums of tensors that take longer to ask for than to copy."""
    if not tensors:
        return torch.zeros(0, dtype=torch.int64)
    begins = itertools.accumulate([one.numel() // 2 for one in tensors[:-1]], initial=0)
    words = flattened(tensors).detach().view(torch.int64).numpy()
    return torch.from_numpy(np.add.reduceat(words, list(begins)))


def _sum(flat: torch.Tensor) -> torch.Tensor:
    size = flat.element_size()
    whole = 0 if flat.storage_offset() * size % WORD else len(flat) * size // WORD * WORD // size
    if whole == len(flat):
        return flat.view(torch.int64).sum()
    return flat[:whole].view(torch.int64).sum() + flat[whole:].view(WORDS[size]).sum(dtype=torch.int64)
