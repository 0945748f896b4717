"""Norms of many tensors at once, and sums of their raw bits: of a shard its part, of a sparse tensor its values.

Equal bits give equal sums anywhere, for whole numbers add up in any order.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from weighbridge.recorder.channels import Watched

SAMPLE = 64  # elements of a tensor
SMALL = 2**16  # elements: what is smaller takes longer to ask for than to copy
flattened = torch._C._nn.flatten_dense_tensors  # noqa: SLF001 -- one call for all
DENSE = (torch.Tensor, torch.nn.Parameter)
FLOAT32 = {torch.float32}
WORD = 8  # bytes; what is left over is added in words of its own elements
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def here(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return what of tensors is on this machine, as dense real numbers."""
    return [one if type(one) in DENSE and not (one.is_sparse or one.is_complex()) else _plain(one) for one in tensors]


def norms(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the 2-norm of each, in float32 or wider; `[tensors]`, on the first one's device."""
    if not tensors:
        return torch.zeros(0)
    kinds = {one.dtype for one in tensors}
    wide = torch.float32 if kinds == FLOAT32 else functools.reduce(torch.promote_types, kinds, torch.float32)
    return stacked(torch._foreach_norm(tensors, 2, dtype=wide))  # noqa: SLF001 -- what clip_grad_norm_ calls


def stacked(scalars: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return scalars as one tensor, on the first one's device."""
    device = scalars[0].device
    return torch.stack([one if one.device == device else one.to(device) for one in scalars])


def gradient_norms(watched: Watched, gradients: list[torch.Tensor]) -> torch.Tensor:
    """Return the norms of all gradients that there are, taken once at each moment of a step."""
    if watched.norms is None:
        watched.norms = norms(here(gradients))
    return watched.norms


def samples(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return a copy of some elements of each, spread over it and padded with 0; `[tensors, elements]`."""
    device = tensors[0].device
    parts = [one if one.numel() <= SMALL else every_so_many(one, SAMPLE) for one in tensors]
    parts = [one if one.device == device else one.to(device) for one in parts]
    places = _places(tuple(one.numel() for one in parts), device)
    return flattened([*parts, parts[0].new_zeros(1)]).float()[places]


@functools.lru_cache(4)
def _places(sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    begins = itertools.accumulate(sizes, initial=0)
    rows = [range(at, at + size, _step(size, SAMPLE)) for at, size in zip(begins, sizes, strict=False)]
    return torch.tensor([[*row, *[sum(sizes)] * (SAMPLE - len(row))] for row in rows], device=device)


def every_so_many(tensor: torch.Tensor, most: int) -> torch.Tensor:
    """Return at most so many elements, evenly spaced by an odd number, so that they are not of one column."""
    size = tensor.numel()
    step = _step(size, most)
    flat = tensor if tensor.is_contiguous() else tensor.reshape(-1)
    return flat.as_strided((-(-size // step),), (step,), flat.storage_offset())


def _step(size: int, most: int) -> int:
    return -(-size // most) | 1


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def bit_sums(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return for each tensor the sum of its words mod 2^64, added where it is; int64 `[tensors]`, on one device."""
    together = [_small(one) for one in tensors]
    if small := list(itertools.compress(tensors, together)):  # they take longer to ask for than to copy
        begins = itertools.accumulate([one.numel() // 2 for one in small[:-1]], initial=0)
        words = flattened(small).detach().view(torch.int64).numpy()
        sums = torch.from_numpy(np.add.reduceat(words, list(begins)))
    else:
        sums = torch.zeros(0, dtype=torch.int64)
    if all(together):
        return sums
    found = iter(sums.unbind())
    by_tensor = (next(found) if together[at] else _sum(one.detach().reshape(-1)) for at, one in enumerate(tensors))
    return stacked(list(by_tensor))


def _small(tensor: torch.Tensor) -> bool:
    plain = tensor.is_cpu and tensor.dtype is torch.float32 and type(tensor) in DENSE
    return plain and (size := tensor.numel()) % 2 == 0 and 0 < size <= SMALL


def _sum(flat: torch.Tensor) -> torch.Tensor:
    size = flat.element_size()
    whole = 0 if flat.storage_offset() * size % WORD else len(flat) * size // WORD * WORD // size
    if whole == len(flat):
        return flat.view(torch.int64).sum()
    return flat[:whole].view(torch.int64).sum() + flat[whole:].view(WORDS[size]).sum(dtype=torch.int64)
