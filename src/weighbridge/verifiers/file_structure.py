"""file_structure: how the files of one checkpoint fit together, and whether what lies beside them contradicts them."""

import contextlib
from pathlib import Path
from typing import Any

from weighbridge.core import Fields, Measurement, SubjectError, SubjectKind, Unmeasured, replace
from weighbridge.formats.detect import homes
from weighbridge.formats.strict_json import strict_json
from weighbridge.quantities.checkpoints import FileStructure, WrongChecksum
from weighbridge.storage.readable import DISTCP, METADATA
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.checkpoint import CheckpointView, Checksum

QUANTITY = "file_structure"
INDEX = ".index.json"


def measure(views: Views, _options: Fields) -> Measurement:
    """Describe every file of the checkpoint, and beside it; refuse with `subject-changed` one written to meanwhile."""
    view: CheckpointView = views[0]
    rows = []
    for name in sorted(view.files):
        nbytes = view.files[name].size
        if name.endswith(INDEX) or Path(name).name == METADATA:
            declared = declared_bytes(view, name) if name.endswith(INDEX) else None
            rows.append(_row(name, "index", nbytes, tensor_bytes=view.nbytes, declared_bytes=declared))
            continue
        stored = [part for tensor in view.tensors.values() for part in tensor.stored if part.file == name]
        size, others = sum(part.nbytes for part in stored), sum(not part.weight for part in stored)
        own = [checksum for checksum in view.checksums if checksum.file == name]
        wrong = tuple(found for checksum in own if (found := _wrong(view, checksum)))
        checked = {"checksums": len(own), "wrong_checksums": wrong}
        rows.append(_row(name, "weights", nbytes, tensor_bytes=size, other_tensors=others, **checked))
    rows += (_row(name, "beside", view.folder.size(name)) for name in beside(view))
    return table(QUANTITY, rows, unit="bytes")


def _wrong(view: CheckpointView, checksum: Checksum) -> WrongChecksum | None:
    found = checksum.found(view.files[checksum.file])
    if found == checksum.stored:
        return None
    return WrongChecksum(place=checksum.place, stored=f"{checksum.stored:#010x}", computed=f"{found:#010x}")


def _row(name: str, role: str, nbytes: int, **found: Any) -> FileStructure:
    known: dict[str, Any] = {"tensor_bytes": 0, "declared_bytes": None, "other_tensors": 0, "checksums": 0}
    known |= {"wrong_checksums": (), **found}
    return FileStructure(name=f"file {Path(name).name}", role=role, bytes=nbytes, **known)


def declared_bytes(view: CheckpointView, name: str) -> float | None:
    """Return the total that an index declares; None where it declares none."""
    file = view.files[name]
    data: Any = strict_json(file.read(0, file.size), "index", file)
    metadata = data.get("metadata") if isinstance(data, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if type(total) in (int, float) else None


def beside(view: CheckpointView) -> list[str]:
    """List files beside the checkpoint that another loader would take for it, or for a part of it."""
    own = {Path(name).name for name in view.files}
    index = next((name for name in own if name.endswith((INDEX, METADATA))), None)
    if index is None:
        found = sorted(name + INDEX for name in own if view.folder.is_visible(name + INDEX))
        return [name for name in found if not _names_alone(view, name, own)]
    suffixes = {Path(name).suffix for name in own} - {Path(index).suffix}
    others = (name for name in view.folder.names() if Path(name).suffix in suffixes and name not in own)
    # What a rank leaves that had nothing to save is empty.
    return sorted(name for name in others if not name.endswith(DISTCP) or view.folder.size(name) != 0)


def _names_alone(view: CheckpointView, index: str, own: set[str]) -> bool:
    with contextlib.suppress(SubjectError):
        return {*homes(view.folder.open(index)).values()} == own
    return False


def extent(views: Views, _options: Fields) -> int:
    """Count the files, and those beside them."""
    return len(views[0].files) + len(beside(views[0]))


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Contradict the last of two checksums, or take the last tensor away where the files have none."""
    view: CheckpointView = views[0]
    if view.checksums:  # two that cost least
        few = sorted(view.checksums, key=lambda one: sum(stop - start for start, stop in one.parts))[:2]
        wrong = replace(few[-1], stored=few[-1].found(view.files[few[-1].file]) ^ 1)
        place, damaged = f"file {Path(wrong.file).name}", replace(view, checksums=(*few[:-1], wrong))

        def noticed(found: Measurement | Unmeasured) -> bool:
            return _wrong(view, wrong) in rows_by_name(found)[place].wrong_checksums

        return Canary(name="one checksum contradicted", place=place, views=(damaged,), seen=noticed)
    names = view.names()
    if not names:
        return NoCanary("there is no tensor to take away")
    last = view.tensor(names[-1])
    kept, holder = view.cut(names[:-1]), f"file {Path(last.file).name}"

    def seen(found: Measurement | Unmeasured) -> bool:
        before, after = rows_by_name(measure((view,), options)), rows_by_name(found)
        others = after.keys() == rows_by_name(measure((kept,), options)).keys()
        return others and after[holder].tensor_bytes == before[holder].tensor_bytes - last.nbytes

    return Canary(name="the last tensor taken away", place=holder, views=(kept,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary)
