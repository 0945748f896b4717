"""Put together what goes with one key."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return all that goes with each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return groups
