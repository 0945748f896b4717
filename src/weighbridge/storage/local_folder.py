"""A folder on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weighbridge.storage.local_files import is_file, lexists
from weighbridge.storage.mapped_file import MappedFile


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
        return lexists(self.path / name)

    def is_visible(self, name: str) -> bool:
        """Tell the same: what may not be read here is an error, never nothing."""
        return self.holds(name)

    def leads_out(self, name: str) -> bool:
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
