"""Typed rows for tests: what is not given is as a typical row has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.core.canonical import build
from weighbridge.core.limits import plain
from weighbridge.quantities import QUANTITIES


def typed(quantity: str, row: Mapping[str, Any]) -> Any:
    """Return the dataclass of a row, read as strictly as from a bundle."""
    known = QUANTITIES[quantity]
    return build(known.row, plain({**known.typical(), **row}))
