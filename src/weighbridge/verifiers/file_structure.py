"""file_structure: how the files of one checkpoint fit together, and whether what lies beside them contradicts them.

One row a file: of the checkpoint itself, and of files beside it that another loader would take instead. Extents are
the readers' business: what overlaps, leaves a hole or ends too soon is never opened. Knows no threshold.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from weighbridge.formats.dcp_metadata import NAME as METADATA
from weighbridge.formats.dcp_metadata import SUFFIX
from weighbridge.formats.strict_json import strict_json
from weighbridge.model import Basis, Fields, Json, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, Checksum

QUANTITY = "file_structure"
INDEX = ".index.json"


def measure(views: Views, _options: Fields) -> Measurement:
    """Describe every file of the checkpoint, and what lies beside it.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    view: CheckpointView = views[0]
    own = [_own(view, name) for name in sorted(view.files)]
    beside = [_row(Path(name), role="beside", nbytes=view.folder.size(name)) for name in _beside(view)]
    rows = (*own, *beside)
    return Measurement(
        quantity=QUANTITY,
        value=Rows("name", rows),
        by="weighbridge.verifiers.file_structure/1",
        unit="bytes",
        basis=dict.fromkeys(rows[0], Basis.MEASURED) if rows else {},
        examined=len(rows),
        total=len(rows),
    )


def _own(view: CheckpointView, name: str) -> Fields:
    """Describe one file of the checkpoint, its checksums computed."""
    path, nbytes = Path(name), view.files[name].size
    if name.endswith(INDEX):
        return _row(path, role="index", nbytes=nbytes, tensor_bytes=view.nbytes, declared_bytes=_declared(view, name))
    if path.name == METADATA:
        return _row(path, role="index", nbytes=nbytes, tensor_bytes=view.nbytes)
    stored = (part for tensor in view.tensors.values() for part in tensor.stored)
    held = sum(part.nbytes for part in stored if part.file == name)
    own = [checksum for checksum in view.checksums if checksum.file == name]
    wrong = [told for checksum in own if (told := _wrong(view, checksum))]
    return _row(path, role="weights", nbytes=nbytes, tensor_bytes=held, checksums=len(own), wrong_checksums=wrong)


def _wrong(view: CheckpointView, checksum: Checksum) -> Json:
    """Compute one checksum, and tell both values where they differ."""
    found = checksum.found(view.files[checksum.file])
    if found == checksum.stored:
        return None
    return {"place": checksum.place, "stored": f"{checksum.stored:#010x}", "computed": f"{found:#010x}"}


def _row(path: Path, *, role: str, nbytes: int, **more: Json) -> Fields:
    told: dict[str, Json] = {"tensor_bytes": 0, "declared_bytes": None, "checksums": 0, "wrong_checksums": []}
    return {"name": f"file {path.name}", "role": role, "bytes": nbytes, **told, **more}


def _declared(view: CheckpointView, name: str) -> Json:
    """Take the total that an index declares; None where it declares none."""
    file = view.files[name]
    data: Any = strict_json(file.read(0, file.size), "index", file)
    metadata = data.get("metadata") if isinstance(data, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if type(total) in (int, float) else None


def _beside(view: CheckpointView) -> list[str]:
    """List files beside the checkpoint that another loader would take for it, or for a part of it."""
    own = {Path(name).name for name in view.files}
    index = next((name for name in own if name.endswith((INDEX, METADATA))), None)
    if index is None:
        return sorted(name + INDEX for name in own if view.folder.is_visible(name + INDEX))
    suffixes = {Path(name).suffix for name in own} - {Path(index).suffix}
    beside = (name for name in view.folder.names() if Path(name).suffix in suffixes and name not in own)
    return sorted(name for name in beside if not _idle(view, name))


def _idle(view: CheckpointView, name: str) -> bool:
    """Tell whether this is what a rank leaves that had nothing to save."""
    return name.endswith(SUFFIX) and view.folder.size(name) == 0


def extent(views: Views, _options: Fields) -> int:
    """Count the files, and those beside them."""
    return len(views[0].files) + len(_beside(views[0]))


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Contradict the last of two checksums, or take the last tensor away where the files carry none."""
    view: CheckpointView = views[0]
    if view.checksums:
        return _contradicted(view)
    names = view.names()
    if not names:
        return NoCanary("there is no tensor to take away")
    last = view.tensor(names[-1])
    kept = view.cut(names[:-1])

    def seen(found: Measurement | Unmeasured) -> bool:
        before, after = _held(measure((view,), options), last.file), _held(found, last.file)
        others = rows_by_name(found).keys() == rows_by_name(measure((kept,), options)).keys()
        return before is not None and after == before - last.nbytes and others

    return Canary(name="the last tensor taken away", place=f"file {Path(last.file).name}", views=(kept,), seen=seen)


def _contradicted(view: CheckpointView) -> Canary:
    """Keep the two checksums that cost least, and say that the last of them should be another."""
    few = sorted(view.checksums, key=lambda one: sum(stop - start for start, stop in one.parts))[:2]
    computed = few[-1].found(view.files[few[-1].file])
    wrong = dataclasses.replace(few[-1], stored=computed ^ 1)
    damaged = dataclasses.replace(view, checksums=(*few[:-1], wrong))
    place = f"file {Path(wrong.file).name}"

    def seen(found: Measurement | Unmeasured) -> bool:
        told: Any = rows_by_name(found)[place]["wrong_checksums"]
        return _wrong(view, wrong) in told

    return Canary(name="one checksum contradicted", place=place, views=(damaged,), seen=seen)


def _held(found: Measurement | Unmeasured, file: str) -> int | None:
    held = rows_by_name(found)[f"file {Path(file).name}"]["tensor_bytes"]
    return held if isinstance(held, int) else None


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary)
