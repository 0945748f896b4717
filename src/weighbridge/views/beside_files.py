"""What of a bound folder a loader may read beside the tensors that are read: `beside_files.yaml`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from weighbridge.core import quoted, table
from weighbridge.formats.strict_json import strict_json
from weighbridge.views.checkpoint import MAX_CONFIG, CheckpointView, open_sidecar, refuse

TABLE = "views/beside_files"
ASIDE, OTHER, SETTINGS, STRUCTURE, WEIGHTS, UNKNOWN = "aside", "other", "settings", "structure", "weights", "unknown"
MODULES = "modules.json"


def role_of(name: str, *, of_module: bool = False) -> str:
    """Return what a file is, by its path in the folder; one of a module is never aside for the folder that it is in."""
    folded = name.casefold()
    for role, globs in table(TABLE).items():
        for glob in globs:
            anywhere = glob.startswith("*") or "/" in glob
            free = of_module and "/" in glob and role in (ASIDE, OTHER)
            may_fit = all(part in folded for part in glob.split("*"))  # else no expression need be made of it
            if may_fit and (anywhere or "/" not in folded) and not free and fnmatchcase(folded, glob):
                return str(role)
    return UNKNOWN


def beside(view: CheckpointView) -> Mapping[str, str]:
    """Return the role of each file that some loader may read, by its path; none where no folder was bound."""
    if not view.whole:
        return {}
    known: Mapping[str, str] | None = view.sidecars.read.get(TABLE)
    if known is None:
        known = view.sidecars.read[TABLE] = _beside(view)
    return known


def _beside(view: CheckpointView) -> Mapping[str, str]:
    own = {Path(name).name for name in view.files}
    modules = document_beside(view, MODULES)
    paths = [str(one["path"]).casefold() for one in modules.values() if isinstance(one, dict) and one.get("path")]
    for path in paths:
        if path.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", path):
            what = f"{MODULES} names the module {quoted(path)}, which lies outside the folder"
            refuse(what, view.sidecars.files[MODULES])
    within = tuple(posixpath.normpath(path) + "/" for path in paths)
    found = {name: role_of(name, of_module=name.casefold().startswith(within)) for name in view.folder.below()}
    return {name: role for name, role in found.items() if name not in own and role != ASIDE}


def document_beside(view: CheckpointView, name: str) -> Mapping[str, Any]:
    """Read a JSON file beside a checkpoint, an entry of a list by its number; empty where there is none."""
    file = open_sidecar(view, name, MAX_CONFIG)
    data = strict_json(file.read(0, file.size), "config", file, lenient=True) if file is not None else {}
    if isinstance(data, list):
        return {str(at): entry for at, entry in enumerate(data)}
    return data if isinstance(data, dict) else {"": data}
