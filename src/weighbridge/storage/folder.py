"""The folder of a checkpoint, on this machine or elsewhere: what it holds, and its files opened by name.

Only plain names are ever asked for; whoever takes one from a file has checked it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from weighbridge.storage.readable import ReadableFile

INDEX = "model.safetensors.index.json"
TORCH_NAMES = "pytorch_model.bin.index.json", "pytorch_model.bin"
USUAL = (INDEX, "model.safetensors", *TORCH_NAMES)  # what is asked for where nothing can be listed


def is_plain(name: str) -> bool:
    """Return whether a name from outside is that of a file in the folder itself, and no path."""
    return name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0")


class Folder(Protocol):
    """A folder; `name` is what messages call it."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def home(self) -> str:
        """Return what no other folder has in common, whatever leads there."""

    def holds(self, name: str) -> bool:
        """Return whether there is something of this name."""

    def is_visible(self, name: str) -> bool:
        """Return whether there is something of this name that may be seen."""

    def leads_out(self, name: str) -> bool:
        """Return whether a name leads out of it."""

    def names(self) -> list[str]:
        """Return the names of its files."""

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""

    def open(self, name: str) -> ReadableFile:
        """Return a file, opened.

        Raises:
            SubjectError: where it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Place:
    """Where a checkpoint is: its folder, its file (none where the folder was named), and the URL that said so."""

    folder: Folder
    file: ReadableFile | None = None
    url: str = field(default="", repr=False)
