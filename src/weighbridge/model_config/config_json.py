"""Read the configuration that lies beside a checkpoint: `config.json`, which says what its tensors mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.model_config.sidecar_files import json_beside
from weighbridge.views.checkpoint import CheckpointView

CONFIG = "config.json"
MAX_CONFIG = 4 << 20


def config_beside(view: CheckpointView) -> Mapping[str, Any] | None:
    """Read the `config.json` beside a checkpoint's files, with a text model's own part laid over it, or None.

    Raises:
        SubjectError: `config`, when it is there and cannot be read.
    """
    data = json_beside(view, CONFIG, MAX_CONFIG)
    if data is None:
        return None
    inner = data.get("text_config")
    return {**data, **inner} if isinstance(inner, dict) else data
