"""Which process of a distributed run this is: each writes a directory of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch


def rank_and_world(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return this process's rank and how many there are: of torch.distributed, else as `torchrun` numbers them."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, world = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdecimal() and world.isdecimal() else (0, 1)


def of_rank(directory: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory that this process writes."""
    rank, world = rank_and_world(environment)
    return directory / f"rank-{rank}" if world > 1 else directory
