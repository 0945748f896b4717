"""Patterns of module names that a configuration of others brings: tried only where no name takes long to match."""

import contextlib
import functools
import re

# One character, which may repeat; a group, which may not; what looks ahead or behind.
PART = re.compile(r"(?:\\[.\-\w]|[\w^$|.:/ -]|\[[^\][]+\])(?P<again>[*+?])?|\((?:\?(?:[:=!]|<[=!]))?|\)(?![*+?])")
AGAIN, CHOICES = 3, 16  # each doubles what is tried, or has it grow by the length of the name


@functools.lru_cache(1024)
def is_quick(pattern: str) -> bool:
    """Return whether a text is a pattern that no name takes long to match."""
    parts = [*PART.finditer(pattern)]
    few = sum(bool(one["again"]) for one in parts) <= AGAIN and pattern.count("|") <= CHOICES
    with contextlib.suppress(re.error):
        return few and "".join(one[0] for one in parts) == pattern and re.compile(pattern) is not None
    return False
