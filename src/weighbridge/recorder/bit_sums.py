"""Sums of the raw bits of tensors: equal bits give equal sums anywhere, for whole numbers add up in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weighbridge.recorder.learning.tensor_norms import DENSE, stacked

WORD = 8  # bytes; what is left over is added in words of its own elements
SMALL = 2**16  # elements
HALF = 2**32
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def bit_sums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return for each tensor the sum of its words mod 2^64, added where it is; int64 `[tensors]`, on one device."""
    found: list[torch.Tensor | None] = [None if _small(one) else _sum(one.detach().reshape(-1)) for one in tensors]
    by_device: dict[torch.device, list[int]] = {}
    for at, tensor in enumerate(tensors):
        if found[at] is None:
            by_device.setdefault(tensor.device, []).append(at)
    for places in by_device.values():  # those that take longer to ask for than to copy, together
        for at, one in zip(places, _sums([tensors[at].detach() for at in places]).unbind(), strict=True):
            found[at] = one
    return stacked([one for one in found if one is not None])


def parameters_sum(sums: torch.Tensor) -> torch.Tensor:
    """Return what a log holds of all parameters at once, below 2^53; both halves count, so that no bit is lost."""
    return (sums.remainder(HALF) + (sums >> 32).remainder(HALF)).sum().remainder(2**53)


def _small(tensor: torch.Tensor) -> bool:
    size = tensor.numel()
    plain = tensor.dtype is torch.float32 and type(tensor) in DENSE and not tensor.is_mps
    return plain and size % 2 == 0 and 0 < size <= SMALL


def _sums(tensors: list[torch.Tensor]) -> torch.Tensor:
    words = torch._C._nn.flatten_dense_tensors(tensors).view(torch.int64)  # noqa: SLF001
    last = torch.tensor([one.numel() // 2 for one in tensors]).cumsum(0) - 1
    totals = words.cumsum(0)[last.to(words.device)]
    return totals.diff(prepend=totals.new_zeros(1))


def _sum(flat: torch.Tensor) -> torch.Tensor:
    size = flat.element_size()
    whole = 0 if flat.storage_offset() * size % WORD else len(flat) * size // WORD * WORD // size
    if whole == len(flat):
        return flat.view(torch.int64).sum()
    return flat[:whole].view(torch.int64).sum() + flat[whole:].view(WORDS[size]).sum(dtype=torch.int64)
