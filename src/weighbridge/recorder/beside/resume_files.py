"""Which checkpoints of a run are still there when the next one is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class ResumeFiles:
    """The checkpoints that were logged, in their order: inode, size and time of each, None of what is gone."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[int, int, int] | None] = {}

    def logged(self, path: Path, directory: Path) -> dict[str, Any]:
        """Note one that is whole now, and return what is to be said of it and of those before it."""
        path = Path(os.path.abspath(path))  # noqa: PTH100 -- a link stays what it is
        now, before = _state(path), [*self._kept][-1:]
        # One that took the place of another in one move is another file; one that was written over it is the same.
        state = self._kept.pop(path, None)
        replaced = before == [path] and (state == now or bool(state and now and state[0] != now[0]))
        self._kept = {one: state for one, state in self._kept.items() if state == _state(one)}
        latest = {"latest": replaced or before[0] in self._kept} if before else {}
        inside = path.is_relative_to(home := Path(os.path.abspath(directory)).parent)  # noqa: PTH100
        place = {"path": Path(os.path.relpath(path, home / directory.name)).as_posix()} if inside else {}
        found = {"name": path.name, **place, "earlier": len(self._kept), **latest}
        self._kept[path] = now
        return found


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
