"""The folder that a checkpoint lies in, on this machine or elsewhere: what it holds, and its files opened by name.

Only plain names are ever asked for; whoever takes one from a file has checked it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from weighbridge.files import is_file, is_folder, leads, local_path
from weighbridge.views.mapped_file import MappedFile
from weighbridge.views.readable import ReadableFile

INDEX = "model.safetensors.index.json"
TORCH_NAMES = "pytorch_model.bin.index.json", "pytorch_model.bin"
USUAL = (INDEX, "model.safetensors", *TORCH_NAMES)  # what is asked for where nothing can be listed


class Folder(Protocol):
    """A folder; `name` is what messages call it."""

    @property
    def name(self) -> str:
        """Give the name."""
        ...

    @property
    def home(self) -> str:
        """Tell it from every other folder, whatever leads there."""
        ...

    def holds(self, name: str) -> bool:
        """Tell whether there is something of this name."""
        ...

    def shows(self, name: str) -> bool:
        """Tell whether there is something of this name that may be seen."""
        ...

    def strays(self, name: str) -> bool:
        """Tell whether a name leads out of it."""
        ...

    def names(self) -> list[str]:
        """List the names of its files."""
        ...

    def size(self, name: str) -> int:
        """Count the bytes of a file."""
        ...

    def open(self, name: str) -> ReadableFile:
        """Open a file.

        Raises:
            SubjectError: where it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder on this machine."""

    path: Path

    @property
    def name(self) -> str:
        """Give its path."""
        return str(self.path)

    @property
    def home(self) -> str:
        """Give its path without links."""
        return str(self.path.resolve())

    def holds(self, name: str) -> bool:
        """Tell whether there is something of this name, were it a link that leads nowhere."""
        return leads(self.path / name)

    def shows(self, name: str) -> bool:
        """Tell the same: what may not be read here is an error, never nothing."""
        return self.holds(name)

    def strays(self, name: str) -> bool:
        """Tell whether a name is a link to another folder."""
        return (self.path / name).resolve().parent != self.path.resolve()

    def names(self) -> list[str]:
        """List the names of its regular files."""
        return [path.name for path in self.path.glob("*") if is_file(path)]

    def size(self, name: str) -> int:
        """Count the bytes of a file."""
        return (self.path / name).stat().st_size

    def open(self, name: str) -> MappedFile:
        """Map a file."""
        return MappedFile(self.path / name)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a checkpoint is: its folder, its file (none where the folder was named), and the URL that said so."""

    folder: Folder
    file: ReadableFile | None = None
    url: str = field(default="", repr=False)


def place_of(target: str) -> Place:
    """Find the folder and open the file that a path or URL names.

    Raises:
        SubjectError: where it cannot be read here.
    """
    path = local_path(target)
    if path is None:
        from weighbridge.views import remote_folder  # nothing of what lies elsewhere is loaded for what lies here

        return remote_folder.place_of(target)
    return Place(LocalFolder(path)) if is_folder(path) else Place(LocalFolder(path.parent), MappedFile(path))
