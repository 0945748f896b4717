"""SHA-256 of what a run is made of at a checkpoint: states by name, dtype, shape and bytes, files by their content."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from weighbridge.recorder.channels import Watched

CHUNK = 1 << 24  # elements that are brought to the host at a time
PLAIN = (type(None), bool, int, float, complex, str, bytes)


def state_sha(state: object) -> str:
    """Hash a state in the order of its names; of what is no tensor, array or plain value, the type alone."""
    found = hashlib.sha256()
    for name, value in sorted(_leaves(state, ()), key=lambda leaf: leaf[0]):
        if not isinstance(value, torch.Tensor):
            said = repr(value) if isinstance(value, PLAIN) else type(value).__qualname__
            found.update(f"{name} {said}\n".encode())
            continue
        tensor = value.detach()
        tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # the part that this rank has
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        tensor = tensor if tensor.is_contiguous() else tensor.cpu().contiguous()
        for part in tensor.reshape(-1).split(CHUNK):
            found.update(part.cpu().view(torch.uint8).numpy())
    return found.hexdigest()


def states(watched: Watched) -> dict[str, str]:
    """Hash the states of a run; a model that would gather its shards for that is left out."""
    model, found = watched.bare(), {"rng_sha": random_state_sha()}
    if all(type(module).__name__ != "FullyShardedDataParallel" for module in model.modules()):
        found["model_sha"] = state_sha(model.state_dict())
    if watched.optimizer is not None:
        found["optimizer_state_sha"] = state_sha(watched.optimizer.state_dict())
    return found


def random_state_sha() -> str:
    """Hash the states that random numbers of this process come from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    numpy = np.random.get_state()
    return state_sha([torch.get_rng_state(), cuda, random.getstate(), numpy])


def _leaves(value: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, (*name, str(key)))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _leaves(one, (*name, f"{number:09}"))
    else:
        yield name, torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
