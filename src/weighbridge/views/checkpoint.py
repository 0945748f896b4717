"""Look at a checkpoint's tensors, whatever its format, without loading them; lay damage over them without copying.

The format is told from the content, never from the suffix. Never writes; never uses a tensor's name as a path.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weighbridge.errors import SubjectError
from weighbridge.files import is_folder
from weighbridge.model import Origin, Scalar
from weighbridge.views import gguf_file, safetensors_file, sharded
from weighbridge.views.mapped_file import MappedFile
from weighbridge.views.tensor import Tensor

ORIGIN_KEY = "weighbridge.origin"  # a specimen carries it, so that it never counts as live

__all__ = ["CheckpointView", "Tensor", "open_checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A checkpoint as it lies on disk, or with damage laid over it.

    `tensors` is by name; `metadata` is the file's own, short values only; `files` are the mapped files by name.
    """

    format: str
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Scalar]
    files: Mapping[str, MappedFile]
    origin: Origin
    patches: Mapping[str, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Name every tensor, sorted."""
        return tuple(sorted(self.tensors))

    def tensor(self, name: str) -> Tensor:
        """Describe one tensor.

        Raises:
            KeyError: there is no such tensor.
        """
        return self.tensors[name]

    def chunks(self, name: str, size: int) -> Iterator[memoryview]:
        """Walk over a tensor's bytes in steps of `size`; what lies behind is given back, so hold on to no chunk."""
        tensor = self.tensors[name]
        windows = self.files[tensor.file].windows(tensor.offset, tensor.offset + tensor.nbytes, size)
        if name not in self.patches:
            return windows
        return (self._patched(name, at, window) for at, window in zip(itertools.count(0, size), windows, strict=False))

    def read(self, name: str, start: int, stop: int) -> memoryview:
        """Look at bytes `start` to `stop` of a tensor; `forget` it when done with a large one."""
        tensor = self.tensors[name]
        stop = min(stop, tensor.nbytes)
        return self._patched(name, start, self.files[tensor.file].read(tensor.offset + start, tensor.offset + stop))

    def forget(self, name: str) -> None:
        """Give back the memory that reading a tensor took."""
        tensor = self.tensors[name]
        self.files[tensor.file].release(tensor.offset, tensor.offset + tensor.nbytes)

    def digest(self) -> dict[str, str]:
        """Digest every file whole: `{file name: sha256}`."""
        return {Path(name).name: file.sha256() for name, file in sorted(self.files.items())}

    def cut(self, names: Iterable[str], elements: int | None = None) -> CheckpointView:
        """Keep only these tensors; one of more than `elements` is seen as its last `elements`, in one dimension.

        `elements` must be a multiple of every dtype's block (256 is).
        """
        kept = {name: self.tensors[name] for name in names}
        tails = {name: _tail(tensor, elements) for name, tensor in kept.items()}
        moved = {name: tails[name].offset - kept[name].offset for name in kept}
        patches = {
            name: tuple((at - moved[name], data) for at, data in self.patches[name])
            for name in kept
            if name in self.patches
        }
        return dataclasses.replace(self, tensors=tails, patches=patches, origin=Origin.SYNTHETIC)

    def overlaid(self, name: str, offset: int, replacement: bytes) -> CheckpointView:
        """Lay other bytes over a tensor, from byte `offset` of it on.

        Raises:
            ValueError: they would not lie inside the tensor.
        """
        if not 0 <= offset <= offset + len(replacement) <= self.tensors[name].nbytes:
            raise ValueError("the replacement does not lie inside the tensor")
        patches = {**self.patches, name: (*self.patches.get(name, ()), (offset, replacement))}
        return dataclasses.replace(self, patches=patches, origin=Origin.SYNTHETIC)

    def _patched(self, name: str, start: int, window: memoryview) -> memoryview:
        touching = [
            (at - start, data)
            for at, data in self.patches.get(name, ())
            if at < start + len(window) and start < at + len(data)
        ]
        if not touching:
            return window
        copy = bytearray(window)
        for at, data in touching:
            first, last = max(at, 0), min(at + len(data), len(copy))
            copy[first:last] = data[first - at : last - at]
        return memoryview(copy)


def _tail(tensor: Tensor, elements: int | None) -> Tensor:
    if elements is None or tensor.elements <= elements:
        return tensor
    per, size = tensor.unit
    nbytes = elements // per * size
    offset = tensor.offset + tensor.nbytes - nbytes
    return dataclasses.replace(tensor, shape=(elements,), nbytes=nbytes, offset=offset)


def open_checkpoint(path: str | os.PathLike[str]) -> CheckpointView:
    """Open a safetensors file, a sharded one by its directory or index, or a GGUF file.

    Raises:
        SubjectError: missing, not a regular file, malformed or hostile, with a stable code, offset and reason.
    """
    path = sharded.checkpoint_in(Path(path)) if is_folder(Path(path)) else Path(path)
    file = MappedFile(path)
    if file.read(0, 4) == gguf_file.MAGIC:
        return _view("gguf", *gguf_file.parse(file), {file.name: file})
    if _looks_like_json(file):
        shards = sharded.parse(file, path.parent)
        return _view("safetensors-sharded", shards.tensors, shards.metadata, shards.files)
    _refuse_foreign(file)
    return _view("safetensors", *safetensors_file.parse(file), {file.name: file})


def _view(
    form: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, Scalar], files: Mapping[str, MappedFile]
) -> CheckpointView:
    # A checkpoint is all that there is to know about it, once it is digested; only its maker can call it less.
    origin = Origin.FIXTURE if metadata.get(ORIGIN_KEY) == Origin.FIXTURE else Origin.LIVE
    return CheckpointView(format=form, tensors=tensors, metadata=metadata, files=files, origin=origin)


def _looks_like_json(file: MappedFile) -> bool:
    """Tell an index from a safetensors file, which begins with a length whose last byte is zero."""
    head = bytes(file.read(0, 8))
    return head.lstrip().startswith(b"{") and 0 not in head


def _refuse_foreign(file: MappedFile) -> None:
    """Name the formats that people bind by mistake, before the header's length makes no sense."""
    head = bytes(file.read(0, 4))
    foreign = next((name for magic, name in FOREIGN.items() if head.startswith(magic)), "")
    if foreign:
        raise SubjectError(
            "checkpoint-format",
            f"is {foreign}, neither safetensors nor GGUF",
            where=file.name,
            remedy="save the weights as safetensors; pickles are never loaded here",
        )


FOREIGN = {
    b"PK\x03\x04": "a ZIP archive (a PyTorch .pt or .bin?)",
    b"\x80\x02": "a Python pickle",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUM": "a NumPy array",
    b"vers": "a Git LFS pointer",
    b"ggml": "a GGML file, older than GGUF",
}
