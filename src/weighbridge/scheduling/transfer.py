"""Carry a view to another process: its path and what tells its files from others travel, never their payload.

The files must be the same there: a different one under the same path is an error, never another answer.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weighbridge.errors import SubjectError
from weighbridge.formats.tensor import Tensor
from weighbridge.model import Origin
from weighbridge.storage.readable import ReadableFile
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

ENDS = 1 << 20  # bytes digested at either end of a file; headers and directories stand there


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What tells a file from another one of the same name: size, what it says of its change, a digest of its ends."""

    size: int
    version: str
    ends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A view on its way; `tensors` and `patches` are those of a cut or damaged view, which no file holds.

    `path` may be a URL with its credentials, so it is never shown.
    """

    path: str = field(repr=False)
    files: Mapping[str, Likeness]
    tensors: Mapping[str, Tensor] | None
    patches: Mapping[str, tuple[tuple[int, bytes], ...]]


def carry(view: CheckpointView) -> Carried:
    """Take what another process needs to open a view again; it must have been opened by an absolute path."""
    path = view.url or next(iter(view.files))
    assert view.url or Path(path).is_absolute()
    cut = view.origin is Origin.SYNTHETIC
    return Carried(
        path=path,
        files={name: likeness(file) for name, file in view.files.items()},
        tensors=dict(view.tensors) if cut else None,
        patches=dict(view.patches),
    )


def open_carried(carried: Carried) -> CheckpointView:
    """Open a view where it was carried to.

    Raises:
        SubjectError: `subject-elsewhere`, where another file has its path, or whatever opening it raises.
    """
    view = open_checkpoint(carried.path)
    found = {name: likeness(file) for name, file in view.files.items()}
    if found != carried.files:
        other = next(name for name in {**carried.files, **found} if found.get(name) != carried.files.get(name))
        raise SubjectError(
            "subject-elsewhere",
            f"a worker found another file under this path: {_told(found.get(other))}, not "
            f"{_told(carried.files.get(other))}",
            where=other,
            remedy="give every worker the same files under the same paths: a shared folder, or copies that keep times",
        )
    if carried.tensors is None:
        return view
    return dataclasses.replace(view, tensors=carried.tensors, patches=carried.patches, origin=Origin.SYNTHETIC)


def likeness(file: ReadableFile) -> Likeness:
    """Tell what a file can be known by on another machine."""
    digest = hashlib.sha256(file.read(0, min(ENDS, file.size)))
    digest.update(file.read(max(file.size - ENDS, 0), file.size))
    file.release(0, file.size)
    return Likeness(size=file.size, version=file.version, ends=digest.hexdigest())


def _told(found: Likeness | None) -> str:
    if found is None:
        return "none"
    return f"{found.size} bytes {found.version} with ends {found.ends[:12]}"
