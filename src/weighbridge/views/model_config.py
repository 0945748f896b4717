"""Read the configuration that lies beside a checkpoint: `config.json`, which says what its tensors mean.

Untrusted JSON: read strictly, and only where it is a regular file of a sensible size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.errors import SubjectError
from weighbridge.views.checkpoint import CheckpointView
from weighbridge.views.mapped_file import MappedFile
from weighbridge.views.strict_json import strict_json

CONFIG = "config.json"
MAX_CONFIG = 4 << 20


def config_beside(view: CheckpointView) -> Mapping[str, Any] | None:
    """Read the `config.json` beside a checkpoint's files, with a text model's own part laid over it, or None.

    Raises:
        SubjectError: `config`, when it is there and cannot be read.
    """
    home = Path(next(iter(view.files), "")).parent / CONFIG
    if not home.exists():
        return None
    file = MappedFile(home)
    if file.size > MAX_CONFIG:
        _refuse(f"has {file.size} bytes, more than the {MAX_CONFIG} that are read", file)
    data = strict_json(file.read(0, file.size), "config", file)
    if not isinstance(data, dict):
        _refuse("is not an object", file)
    assert isinstance(data, dict)
    inner = data.get("text_config")
    return {**data, **inner} if isinstance(inner, dict) else data


def _refuse(what: str, file: MappedFile) -> None:
    raise SubjectError("config", what, where=file.name, remedy="fetch the model's directory again")
