"""Where a run comes from: process, rank, host pseudonym, commit, versions. Never a name of a person or a machine."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from weighbridge.core import __version__, git
from weighbridge.core.pseudonym import key_file, pseudonym

GIT_SECONDS = 5.0


def provenance() -> dict[str, Any]:
    """Collect the facts that bind a run to one process on one host at one commit, and what ran."""
    built_for = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "weighbridge": __version__}
    return {
        "pid": os.getpid(),
        "host": host(),
        "commit": git.commit(Path(), GIT_SECONDS),
        "dirty": git.is_dirty(Path(), GIT_SECONDS),
        "started": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "versions": versions | {name: version for name, version in built_for.items() if version},
    }


def host() -> str:
    """Return this host's pseudonym, or "" where no key can be kept."""
    with contextlib.suppress(OSError, ValueError):
        key = key_file(os.environ)
        return pseudonym("host", socket.gethostname(), key) if key else ""
    return ""


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
