"""A fault: a small patch of a program, where it begins, and which programs it is laid in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Patch = Callable[[Any], None]  # each patches what its own programs have


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`onset` is the first step that it touches."""

    name: str
    group: str
    programs: tuple[str, ...]
    onset: int
    patch: Patch


FAULTS: dict[str, Fault] = {}


def fault(group: str, programs: str, onset: int = 0) -> Callable[[Patch], Patch]:
    """Register a patch by its name."""

    def register(patch: Patch) -> Patch:
        name = patch.__name__
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name=name, group=group, programs=tuple(programs.split()), onset=onset, patch=patch)
        return patch

    return register
