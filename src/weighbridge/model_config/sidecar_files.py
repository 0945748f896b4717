"""Open the files that lie beside a checkpoint and say what it means: its configuration, its tokenizer.

Each is opened once, bounded, and kept with the view, so that what was read is what is digested as evidence. Untrusted:
only fixed names are ever opened, and only where they are regular files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats.strict_json import strict_json
from weighbridge.storage.readable import ReadableFile
from weighbridge.views.checkpoint import CheckpointView

CONFIG, MAX_CONFIG = "config.json", 4 << 20


def open_sidecar(view: CheckpointView, name: str, most: int) -> ReadableFile | None:
    """Return a file beside a checkpoint's own, of at most `most` bytes, opened; None where there is none.

    Raises:
        SubjectError: `config` or `file-…`, when it is there and cannot be read; `subject-changed`, when it was written
            to since it was opened.
    """
    if name in view.sidecars.files:
        view.sidecars.files[name].require_unchanged()
        return view.sidecars.files[name]
    if not view.folder.is_visible(name):
        return None
    file = view.folder.open(name)
    if file.size > most:
        refuse(f"has {file.size} bytes, more than the {most} that are read", file)
    view.sidecars.files[name] = file
    return file


def json_beside(view: CheckpointView, name: str, most: int) -> dict[str, Any] | None:
    """Read a JSON object that lies beside a checkpoint, or None; what is no object is refused."""
    file = open_sidecar(view, name, most)
    if file is None:
        return None
    data = strict_json(file.read(0, file.size), "config", file)
    file.require_unchanged()
    if not isinstance(data, dict):
        refuse("is not an object", file)
    return data


def config_beside(view: CheckpointView) -> Mapping[str, Any] | None:
    """Read the `config.json` beside a checkpoint's files, with a text model's own part laid over it, or None."""
    data = json_beside(view, CONFIG, MAX_CONFIG)
    inner = data.get("text_config") if data is not None else None
    return {**data, **inner} if data is not None and isinstance(inner, dict) else data


def text_beside(view: CheckpointView, name: str, most: int) -> str | None:
    """Read a text in UTF-8 that lies beside a checkpoint, or None; what is no such text is refused."""
    file = open_sidecar(view, name, most)
    if file is None:
        return None
    try:
        text = str(file.read(0, file.size), "utf-8")
    except UnicodeDecodeError as problem:
        refuse(f"is not UTF-8 at byte {problem.start}", file)
    file.require_unchanged()
    return text


def refuse(what: str, file: ReadableFile) -> NoReturn:
    """Refuse a file beside a checkpoint, with `config`."""
    raise SubjectError("config", what, where=file.name, remedy="fetch the model's directory again")
