"""What a recorder keeps beside the rows: analysis checkpoints, what is known by heart, and which files there are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.recorder.beside.memorized import Log, Memorized, Probes
from weighbridge.recorder.beside.snapshots import Analysis, Snapshots
from weighbridge.recorder.channels import Channel, Watched
from weighbridge.recorder.passes.diagnostics import OneLook

__all__ = ["Analysis", "Beside", "Probes"]
State: TypeAlias = tuple[int, int, int] | None  # inode, size and time of a file; None of what is gone


class Beside:
    """All of it; each part does nothing where nobody asked for it."""

    def __init__(
        self, watched: Watched, log: Log, first_step: int, looks: OneLook, *,
        analysis: Analysis | None, probes: Probes | None,
    ) -> None:  # fmt: skip
        self._snapshots = None if analysis is None else Snapshots(watched, analysis, first_step, looks)
        self._memorized = None if probes is None else Memorized(watched, probes, first_step, log)
        self._resume, self._log, self._named = ResumeFiles(), log, dict[str, Any]()
        self.channels: list[Channel] = [one for one in (self._memorized, self._snapshots) if one]
        self.columns = frozenset(self._memorized.columns if self._memorized else ())

    def sealed(self) -> dict[str, str]:
        """Return the digest of the probes, which are read now."""
        return {"probes": self._memorized.sealed()} if self._memorized else {}

    def named(self, run: str, attempt: int) -> dict[str, Any]:
        """Return what names the run, which every file of it says, too."""
        self._named = {"run": run, "attempt": attempt}
        return self._named

    def recorded(self, directory: Path | None, row: Mapping[str, Any], tensors: list[dict[str, Any]]) -> None:
        """Write what is due of a step, whose row is known; without a directory nothing is written."""
        if self._snapshots and directory and (event := self._snapshots.write(directory, self._named, row, tensors)):
            self._log("analysis", **event)

    def checkpoint(self, path: str | Path | None, directory: Path) -> dict[str, Any]:
        """Return what is said of a checkpoint and those before it; probes are looked at with this step's row."""
        if self._memorized:
            self._memorized.due = True
        return {} if path is None else self._resume.logged(Path(path), directory)

    def ended(self) -> None:
        """Look at the file of probes once more, where it was looked at before."""
        if self._memorized and self._memorized.looked:
            self._memorized.look()


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
