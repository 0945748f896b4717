"""Sums of the raw bits of tensors: equal bits give equal sums anywhere, for whole numbers add up in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

MODULUS = 2**53  # a float64 column of a log holds every whole number below exactly
WORDS = {1: torch.uint8, 2: torch.int16}  # by bytes of an element; all others are looked at in words of 4


def bit_sums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return for each tensor the sum of its words, added where it is; int64 `[tensors]`, on the first one's device."""
    found = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        found.append(flat.view(WORDS.get(flat.element_size(), torch.int32)).sum(dtype=torch.int64))
    return torch.stack([one.to(found[0].device) for one in found])


def parameters_sum(sums: torch.Tensor) -> torch.Tensor:
    """Return what a log holds of all parameters at once, below 2^53."""
    return sums.remainder(MODULUS).sum().remainder(MODULUS)
