"""Sums of the raw bits of tensors: equal bits give equal sums anywhere, for whole numbers add up in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

WORD = 8  # bytes; what is left over is added in words of its own elements
HALF = 2**32
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def bit_sums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return for each tensor the sum of its words mod 2^64, added where it is; int64 `[tensors]`, on one device."""
    found = [_sum(tensor.detach().reshape(-1)) for tensor in tensors]
    return torch.stack([one.to(found[0].device) for one in found])


def parameters_sum(sums: torch.Tensor) -> torch.Tensor:
    """Return what a log holds of all parameters at once, below 2^53; both halves count, so that no bit is lost."""
    return (sums.remainder(HALF) + (sums >> 32).remainder(HALF)).sum().remainder(2**53)


def _sum(flat: torch.Tensor) -> torch.Tensor:
    size = flat.element_size()
    whole = 0 if flat.storage_offset() * size % WORD else len(flat) * size // WORD * WORD // size
    if whole == len(flat):
        return flat.view(torch.int64).sum()
    return flat[:whole].view(torch.int64).sum() + flat[whole:].view(WORDS[size]).sum(dtype=torch.int64)
