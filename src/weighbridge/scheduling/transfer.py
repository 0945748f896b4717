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
class FileIdentity:
    """What tells a file from another one of the same name: size, what it says of its change, a digest of its ends."""

    size: int
    version: str
    ends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedView:
    """A view on its way; `tensors` and `patches` are those of a cut or damaged view, which no file holds.

    `path` may be a URL with its credentials, so it is never shown.
    """

    path: str = field(repr=False)
    files: Mapping[str, FileIdentity]
    tensors: Mapping[str, Tensor] | None
    patches: Mapping[str, tuple[tuple[int, bytes], ...]]


def pack_view(view: CheckpointView) -> PackedView:
    """Take what another process needs to open a view again; it must have been opened by an absolute path."""
    path = view.url or next(iter(view.files))
    assert view.url or Path(path).is_absolute()
    cut = view.origin is Origin.SYNTHETIC
    return PackedView(
        path=path,
        files={name: file_identity(file) for name, file in view.files.items()},
        tensors=dict(view.tensors) if cut else None,
        patches=dict(view.patches),
    )


def unpack_view(packed: PackedView) -> CheckpointView:
    """Open a view where it was carried to.

    Raises:
        SubjectError: `subject-elsewhere`, where another file has its path, or whatever opening it raises.
    """
    view = open_checkpoint(packed.path)
    found = {name: file_identity(file) for name, file in view.files.items()}
    if found != packed.files:
        other = next(name for name in {**packed.files, **found} if found.get(name) != packed.files.get(name))
        raise SubjectError(
            "subject-elsewhere",
            f"a worker found another file under this path: {_told(found.get(other))}, not "
            f"{_told(packed.files.get(other))}",
            where=other,
            remedy="give every worker the same files under the same paths: a shared folder, or copies that keep times",
        )
    if packed.tensors is None:
        return view
    return dataclasses.replace(view, tensors=packed.tensors, patches=packed.patches, origin=Origin.SYNTHETIC)


def file_identity(file: ReadableFile) -> FileIdentity:
    """Tell what a file can be known by on another machine."""
    digest = hashlib.sha256(file.read(0, min(ENDS, file.size)))
    digest.update(file.read(max(file.size - ENDS, 0), file.size))
    file.release(0, file.size)
    return FileIdentity(size=file.size, version=file.version, ends=digest.hexdigest())


def _told(found: FileIdentity | None) -> str:
    if found is None:
        return "none"
    return f"{found.size} bytes {found.version} with ends {found.ends[:12]}"
