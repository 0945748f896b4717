"""A job: a measurement as independent tasks, how another process prepares it again, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from weighbridge.model import Fields

Progress: TypeAlias = Callable[[int, int], None]  # bytes done, and bytes in all


class Job(Protocol):
    """A measurement as independent tasks, one a place."""

    def sizes(self) -> Mapping[Any, int]:
        """Return the places that there are to describe, with the bytes to read of each."""

    def row(self, place: Any, /) -> Any:
        """Describe one place."""

    def locality(self, place: Any, /) -> str:
        """Return what is read for a place, so that tasks that read the same can stand side by side."""

    def fingerprint(self) -> str:
        """Return what this job has of its own; two processes that prepared the same one have the same."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """How a job is prepared again in another process: a function of a module, and what it is given."""

    prepare: Callable[[tuple[Any, ...], Fields], Job]
    views: tuple[Any, ...]
    options: Fields


def unheard(_done: int, _whole: int) -> None:
    """Let progress go by."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How a session has long measurements done.

    `engine` does a job where threads of this process do not, and gives the rows in the order of its sizes.
    """

    engine: Callable[[Job, JobSpec, Progress], tuple[Any, ...]] | None = None
    on_progress: Progress = unheard


HERE = Execution()
