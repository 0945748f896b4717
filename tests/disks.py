"""A disk that refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def failing(at: int, number: int, counter: list[int], real: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an effect so that the one that `counter` counts as the `at`-th raises the error of this number."""

    def effect(*args: Any, **named: Any) -> Any:
        counter[0] += 1
        if counter[0] == at:
            raise OSError(number, os.strerror(number))
        return real(*args, **named)

    return effect
