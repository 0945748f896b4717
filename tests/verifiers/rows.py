"""Measure checkpoints, and read the rows by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from weighbridge.canonical import dumps
from weighbridge.model import Measurement, Rows
from weighbridge.verifiers.verifier import Canary, Verifier, Views
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint


def view_of(folder: Path, **tensors: Any) -> CheckpointView:
    """Open a file that the library of its format wrote."""
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / "x.safetensors")
    return open_checkpoint(folder / "x.safetensors")


def rows_of(verifier: Verifier, *views: CheckpointView, **options: Any) -> dict[str, Any]:
    found = verifier.measure(views, options)
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    dumps([dict(row) for row in found.value.rows])  # plain JSON, no NumPy scalar
    return {str(row["name"]): row for row in found.value.rows}


def canary_seen(verifier: Verifier, views: Views, measure: Callable[..., Any] | None = None) -> bool:
    """Return whether `measure`, or the verifier itself, sees the canary over these views."""
    whole = verifier.measure(views, {})
    assert isinstance(whole, Measurement)
    canary = verifier.canary(views, {}, whole)
    assert isinstance(canary, Canary)
    return canary.seen((measure or verifier.measure)(canary.views, {}))
