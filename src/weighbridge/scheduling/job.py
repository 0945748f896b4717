"""A job: a measurement as independent tasks, how another process prepares it again, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from weighbridge.model import Fields

# Who wants to know how far a long measurement has come: bytes done, and bytes in all.
LISTENER: ContextVar[Callable[[int, int], None]] = ContextVar("LISTENER", default=lambda _done, _whole: None)


class Job(Protocol):
    """A measurement as independent tasks, one a place."""

    def sizes(self) -> Mapping[Any, int]:
        """Give the places that there are to describe, with the bytes to read of each."""

    def row(self, place: Any, /) -> Fields:
        """Describe one place."""

    def locality(self, place: Any, /) -> str:
        """Name what is read for a place, so that tasks that read the same can stand side by side."""

    def fingerprint(self) -> str:
        """Tell this job from others; two processes that prepared the same one have the same."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """How a job is prepared again in another process: a function of a module, and what it is given."""

    prepare: Callable[[tuple[Any, ...], Fields], Job]
    views: tuple[Any, ...]
    options: Fields


# Who does a job where threads of this process do not; the rows come back in the order of its sizes.
ENGINE: ContextVar[Callable[[Job, JobSpec], tuple[Fields, ...]] | None] = ContextVar("ENGINE", default=None)
