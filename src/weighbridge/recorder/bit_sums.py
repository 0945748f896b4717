"""Sums of the raw bits of tensors: they tell whether a weight was written to, and whether two ranks hold the same.

Sums of whole numbers do not depend on the order of adding, so equal bits give equal sums on every device. A single bit
that flips always changes one; values that change places inside a tensor do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

MODULUS = 2**53  # a float64 column of a log holds every whole number below exactly
WORDS = {1: torch.uint8, 2: torch.int16}  # by bytes of an element; all others are looked at in words of 4


def bit_sums(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Return for each tensor the sum of its words mod 2^53, added on its device; each device is asked once."""
    found, of_device = list[int](), defaultdict[torch.device, list[tuple[int, torch.Tensor]]](list)
    with torch.no_grad():
        for at, tensor in enumerate(tensors):
            flat = tensor.detach().reshape(-1)  # in words of at most 4 bytes: beyond bit 52 a flip would be mod 0
            words = flat.view(WORDS.get(flat.element_size(), torch.int32))
            of_device[flat.device].append((at, words.sum(dtype=torch.int64)))
            found.append(0)
        for sums in of_device.values():
            for (at, _), value in zip(sums, torch.stack([one for _, one in sums]).tolist(), strict=True):
                found[at] = value % MODULUS
    return found


def parameters_sum(sums: Sequence[int]) -> int:
    """Return what a log holds of all parameters at once: the column `parameters_sum`."""
    return sum(sums) % MODULUS
