"""Tables whose values are imported when they are first asked for, so that no command starts with what it never uses."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class OnDemand(Mapping[K, V]):
    """Values that modules of a package hold under one name; `modules` is typed out by hand."""

    package: str
    name: str
    modules: Mapping[K, str]

    def __getitem__(self, key: K) -> V:
        found: V = getattr(importlib.import_module(f"{self.package}.{self.modules[key]}"), self.name)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self.modules

    def __iter__(self) -> Iterator[K]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


@dataclass(frozen=True, slots=True)
class Extended(Mapping[K, V]):
    """A table of the tool, and after it what other packages bring, who are asked only for what it lacks."""

    own: Mapping[K, V]
    brought: Mapping[K, V]

    def __getitem__(self, key: K) -> V:
        return self.own[key] if key in self.own else self.brought[key]

    def __iter__(self) -> Iterator[K]:
        yield from self.own
        yield from self.brought

    def __len__(self) -> int:
        return len(self.own) + len(self.brought)
