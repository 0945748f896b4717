"""Which checkpoints of a run are still there when the next one is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple


class _Kept(NamedTuple):
    path: Path
    state: tuple[int, int, int] | None  # inode, size and time; None of what is gone


class ResumeFiles:
    """The checkpoints that were logged, in their order."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def logged(self, path: Path, directory: Path) -> dict[str, Any]:
        """Note one that is whole now, and return what is to be said of it and of those before it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 -- a link stays what it is
        now = _state(path)
        before = self._kept[-1:]
        # One that took the place of another in one move is another file; one that was written over it is the same.
        same = [one.state for one in before if one.path == path]
        replaced = any(state == now or (state and now and state[0] != now[0]) for state in same)
        earlier = [one for one in self._kept if one.path != path and one.state == _state(one.path)]
        latest = None if not before else replaced or before[0] in earlier
        self._kept = [*earlier, _Kept(path, now)]
        inside = path.is_relative_to(home := Path(os.path.abspath(directory)).parent)  # noqa: PTH100
        place = {"path": Path(os.path.relpath(path, home / directory.name)).as_posix()} if inside else {}
        return {"name": path.name, **place, "earlier": len(earlier), **({} if latest is None else {"latest": latest})}


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
