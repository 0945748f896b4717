"""files_beside: the files of two bound folders that a loader may read beside the tensors that are compared."""

import contextlib
import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from weighbridge.core import Fields, Measurement, SubjectError, SubjectKind, Unmeasured, dumps, replace
from weighbridge.quantities.checkpoints import FileBeside
from weighbridge.storage.readable import ReadableFile, sha256
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.checkpoint import SETTINGS, WEIGHTS, CheckpointView, SidecarFiles, beside, document_beside

QUANTITY = "files_beside"
PLACED = "weighbridge-canary/model.safetensors"
NOTHING = Unmeasured(code="file-bound", why="two files were bound, and no folder", remedy="bind the folders of both")
ONE_FILE = "the {} is one file, and has nothing beside it"


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Describe each file that either side has; what cannot be opened is equal to nothing."""
    if not any(view.whole for view in views):
        return NOTHING
    listed = [beside(view) for view in views]
    alone = next((name for name, view in zip(("source", "import"), views, strict=True) if not view.whole), "")
    rows = []
    for name in _names(listed):
        role, there = next(one[name] for one in listed if name in one), [name in one for one in listed]
        both = [_content(view, name, whole=all(there)) if here else "" for view, here in zip(views, there, strict=True)]
        why = ONE_FILE.format(alone) if alone and role != WEIGHTS else ""
        rows.append(FileBeside(name=name, role=role, source=both[0], candidate=both[1], why=why))
    return table(QUANTITY, rows)


def _names(listed: Sequence[Any]) -> list[str]:
    """Return the files of either side but those that say its configuration, which is compared by field."""
    return sorted(name for name, role in {**listed[1], **listed[0]}.items() if role != SETTINGS)


def _content(view: CheckpointView, name: str, *, whole: bool) -> str:
    """Return a digest, of both sides where both have the file, of JSON that of what it says; else its size."""
    if whole and name.casefold().endswith(".json"):
        with contextlib.suppress(SubjectError, OSError, ValueError):  # then its bytes are compared
            return f"json:{hashlib.sha256(dumps(document_beside(view, name))).hexdigest()}"
    try:
        file = view.folder.open(name)
        view.sidecars.files[name] = file  # so that it is digested as evidence
        return f"sha256:{sha256(file)}" if whole else f"{file.size} bytes"
    except SubjectError as problem:
        return f"unreadable: {problem.code} ({view.folder.name})"


def extent(views: Views, _options: Fields) -> int:
    """Count the files."""
    return len(_names([beside(view) for view in views]))


def canary(views: Views, _options: Fields, measurement: Measurement) -> Canary:
    """Lay the import's own weights over the last file that is equal on both sides, or under a new name."""
    source, candidate = views
    folder, file = candidate.folder, next(iter(candidate.files.values()))
    both = [name for name, row in rows_by_name(measurement).items() if row.source == row.candidate]
    others = (name for name in both if not name.endswith(".json") and folder.size(name) != file.size)
    place = max(others, default=PLACED)

    def opened(name: str) -> ReadableFile:
        return file if name == place else cast(ReadableFile, folder.open(name))

    placed = {"below": lambda: [place], "open": opened}  # the others cost nothing then
    kept = {of: getattr(folder, of) for of in ("name", "home", "is_visible")}
    damaged = replace(candidate, folder=SimpleNamespace(**kept, **placed), whole=True, sidecars=SidecarFiles())
    places = _names([beside(source), beside(damaged)])

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        right = all(bool(row.candidate) is (name == place) for name, row in after.items())
        return right and [*after] == places and after[place].source != after[place].candidate

    return Canary(name="another file put beside the import", place=place, views=(source, damaged), seen=seen)


KINDS = (SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT)
VERIFIER = Verifier(quantity=QUANTITY, kinds=KINDS, measure=measure, extent=extent, canary=canary)
