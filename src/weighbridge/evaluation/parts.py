"""Look at a folder that a framework trained into as a whole: its log, its settings, its model and every checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from weighbridge.core import SubjectError, dataclass, exists, is_folder, local_path
from weighbridge.evaluation.inspection import Inspection, inspect
from weighbridge.run_logs.formats.framework_folder import checkpoints_in, log_in
from weighbridge.run_logs.json_log import is_run

MODELS = ("*.safetensors", "*.gguf", "pytorch_model*.bin")  # a Trainer's own; its optimizer.pt is none
LOG, MODEL, SETTINGS, SHOWN = "log", "model", "hparams.yaml", 6
SETTING = re.compile(r"(?m)^(\w+): ([^\s!&*{\[|>].*)$")  # of one plain value


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a folder: what it showed, or why it could not be read, or what it says of itself."""

    name: str
    target: str
    found: Inspection | None = None
    refused: SubjectError | None = None
    says: str = ""


def run_in(target: str) -> str:
    """Return the log in a folder that a framework trained into, else the target itself."""
    path = _of_a_framework(target)
    return str((log_in(path) if path else None) or target)


def _of_a_framework(target: str) -> Path | None:
    path = local_path(target)
    return path if path is not None and is_folder(path) and not is_run(path) else None


def parts_of(target: str) -> list[tuple[str, Path]]:
    """List the parts of a folder of training by their names, the log first; none where it is one log or checkpoint."""
    path = _of_a_framework(target)
    if path is None:
        return []
    try:
        log = log_in(path)
    except SubjectError:
        log = path  # whoever reads it is refused again, and says so
    home = log.parent if log is not None and log != path else path
    settings = [home / SETTINGS] if log is not None and exists(home / SETTINGS) else []
    model = [path] if any(next(path.glob(ending), None) for ending in MODELS) else []
    saved = [*checkpoints_in(path), *sorted((home / "checkpoints").glob("*.ckpt"))]
    found = [*([log] if log is not None else []), *settings, *model, *saved]
    named = [(MODEL if one in model else one.relative_to(path).as_posix(), one) for one in found]
    named = [(LOG if one == log == path else name, one) for name, one in named]
    return named if len(named) > 1 and (log is not None or saved) else []


def look_at(parts: list[tuple[str, Path]], words: Any, progress: Callable[[str], None], **how: bool) -> Iterator[Part]:
    """Look at each part by itself; one that cannot be read keeps no other from being looked at."""
    for name, path in parts:
        part: dict[str, Any] = {"name": name, "target": str(path)}
        if path.name == SETTINGS:
            pairs = SETTING.findall(path.read_text("utf-8", "replace")[: 1 << 16])
            yield Part(**part, says=", ".join(f"{key}: {value.strip()}" for key, value in pairs[:SHOWN]) or "none")
            continue
        try:
            if name == LOG:
                log_in(path)
            yield Part(**part, found=inspect(str(path), words, progress=progress, **how))
        except SubjectError as problem:
            yield Part(**part, refused=problem)
