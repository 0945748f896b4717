"""Which checkpoints there are, and SHA-256 of what a run is made of at one: states by name, dtype, shape and bytes."""

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from weighbridge.recorder.channels import Watched

CHUNK = 1 << 24  # elements that are brought to the host at a time
PLAIN = (type(None), bool, int, float, complex, str, bytes)
State: TypeAlias = tuple[int, int, int] | None  # inode, size and time of a file; None of what is gone


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
    return state_sha([torch.get_rng_state(), cuda, random.getstate(), np.random.get_state()])


def _leaves(value: Any, name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, (Mapping, list, tuple)):
        named = value.items() if isinstance(value, Mapping) else ((f"{at:09}", one) for at, one in enumerate(value))
        for key, one in named:
            yield from _leaves(one, (*name, str(key)))
    else:
        yield name, torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


class ResumeFiles:
    """The checkpoints that were logged, in their order, and what each was then."""

    def __init__(self) -> None:
        self._kept: list[tuple[Path, State]] = []

    def logged(self, path: Path, directory: Path) -> dict[str, Any]:
        """Note one that is whole now, and return what is to be said of it and of those before it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 -- a link stays what it is
        now, before = _state(path), self._kept[-1:]
        # One that took the place of another in one move is another file; one that was written over it is the same.
        same = [state for other, state in before if other == path]
        replaced = any(state == now or (state and now and state[0] != now[0]) for state in same)
        earlier = [(other, state) for other, state in self._kept if other != path and state == _state(other)]
        self._kept = [*earlier, (path, now)]
        inside = path.is_relative_to(home := Path(os.path.abspath(directory)).parent)  # noqa: PTH100
        place = {"path": Path(os.path.relpath(path, home / directory.name)).as_posix()} if inside else {}
        latest = {"latest": replaced or before[0] in earlier} if before else {}
        return {"name": path.name, **place, "earlier": len(earlier), **latest}


def _state(path: Path) -> State:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
