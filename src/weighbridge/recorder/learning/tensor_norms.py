"""Norms of many tensors at once: of a shard its part, of a sparse tensor its values, of a complex one both parts."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Sequence

import torch

from weighbridge.recorder.channels import Watched

SAMPLE = 64  # elements of a tensor
SMALL = 2**16  # elements: what is smaller takes longer to ask for than to copy
flattened = torch._C._nn.flatten_dense_tensors  # noqa: SLF001 -- one call for all
VERSION = operator.attrgetter("_version")
DENSE = (torch.Tensor, torch.nn.Parameter)
FLOAT32 = {torch.float32}


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


def stamps(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Return which tensors these are, and torch's count of writes to each."""
    return list(zip(map(id, tensors), map(VERSION, tensors), strict=True))


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
