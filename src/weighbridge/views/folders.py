"""The folder that a checkpoint lies in, on this machine or elsewhere: what it holds, and its files opened by name.

Only plain names are ever asked for; whoever takes one from a file has checked it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from weighbridge.errors import SubjectError
from weighbridge.files import is_file, is_folder, leads, local_path
from weighbridge.urls import bare
from weighbridge.views.mapped_file import MappedFile
from weighbridge.views.readable import ReadableFile
from weighbridge.views.remote_file import RemoteFile
from weighbridge.views.remote_store import Store, open_store

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


class RemoteFolder:
    """A folder elsewhere; `query` is what follows each file's URL, where a server wants a token there."""

    __slots__ = ("_listed", "_path", "_query", "_store", "home", "name")

    def __init__(self, store: Store, path: str, name: str, query: str = "") -> None:
        self._store, self._path, self._query = store, path, query
        self._listed: list[str] | None = None
        self.name = self.home = name

    def holds(self, name: str) -> bool:
        """Tell whether there is something of this name."""
        return self._store.holds(self._path_of(name), f"{self.name}/{name}")

    def shows(self, name: str) -> bool:
        """Tell whether there is something of this name that may be seen.

        Object stores refuse access to what is not there where they may not be listed, and a signed link opens one file.
        """
        try:
            return self.holds(name)
        except SubjectError as error:
            if error.code == "remote-access":
                return False
            raise

    def strays(self, name: str) -> bool:
        """Tell that no plain name does."""
        return False

    def names(self) -> list[str]:
        """List the names of its files, once; over HTTP, which lists nothing, those usual names that are there."""
        if self._listed is None and self._store.over_http:
            self._listed = [name for name in USUAL if self.shows(name)]
        if self._listed is None:
            self._listed = self._store.names(self._path, self.name)
        return self._listed

    def size(self, name: str) -> int:
        """Count the bytes of a file."""
        return self.open(name).size

    def open(self, name: str) -> RemoteFile:
        """Ask for a file."""
        return RemoteFile(self._store, self._path_of(name), f"{self.name}/{name}")

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='') if self._store.over_http else name}{self._query}"


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
        return _elsewhere(target)
    return Place(LocalFolder(path)) if is_folder(path) else Place(LocalFolder(path.parent), MappedFile(path))


def _elsewhere(url: str) -> Place:
    store, whole = open_store(url)
    shown = bare(url)
    path, mark, query = whole.partition("?") if store.over_http else (whole, "", "")
    query = mark + query.partition("#")[0]
    if path.endswith("/") or not (store.over_http or store.info(path, shown).get("type") == "file"):
        return Place(RemoteFolder(store, path.rstrip("/"), shown.rstrip("/"), query), url=url)
    folder = RemoteFolder(store, path.rpartition("/")[0], shown.rpartition("/")[0], query)
    return Place(folder, RemoteFile(store, whole, shown), url)
