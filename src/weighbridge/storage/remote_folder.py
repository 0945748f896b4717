"""A folder elsewhere, and the file in it that a URL names."""

from __future__ import annotations

from urllib.parse import quote

from weighbridge.errors import SubjectError
from weighbridge.printable import bare
from weighbridge.storage.folder import USUAL, Place
from weighbridge.storage.remote_file import RemoteFile
from weighbridge.storage.remote_store import Store, open_store


class RemoteFolder:
    """A folder elsewhere; `query` is what follows each file's URL, where a server wants a token there."""

    __slots__ = ("_listed", "_path", "_query", "_store", "home", "name")

    def __init__(self, store: Store, path: str, name: str, query: str = "") -> None:
        self._store, self._path, self._query = store, path, query
        self._listed: list[str] | None = None
        self.name = self.home = name

    def holds(self, name: str) -> bool:
        """Return whether there is something of this name."""
        return self._store.holds(self._path_of(name), f"{self.name}/{name}")

    def is_visible(self, name: str) -> bool:
        """Return whether there is something of this name that may be seen.

        Object stores refuse access to what is not there where they may not be listed, and a signed link opens one file.
        """
        try:
            return self.holds(name)
        except SubjectError as error:
            if error.code == "remote-access":
                return False
            raise

    def leads_out(self, name: str) -> bool:
        """Return False: no plain name does."""
        return False

    def names(self) -> list[str]:
        """Return the names of its files, once; over HTTP, which lists nothing, those usual names that are there."""
        if self._listed is None and self._store.over_http:
            self._listed = [name for name in USUAL if self.is_visible(name)]
        if self._listed is None:
            self._listed = self._store.names(self._path, self.name)
        return self._listed

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""
        return self.open(name).size

    def open(self, name: str) -> RemoteFile:
        """Return a file, opened."""
        return RemoteFile(self._store, self._path_of(name), f"{self.name}/{name}")

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='') if self._store.over_http else name}{self._query}"


def locate(url: str) -> Place:
    """Find the folder and open the file that a URL names.

    Raises:
        SubjectError: `remote-…`, or where it cannot be read.
    """
    store, whole = open_store(url)
    shown = bare(url)
    path, mark, query = whole.partition("?") if store.over_http else (whole, "", "")
    query = mark + query.partition("#")[0]
    if path.endswith("/") or not (store.over_http or store.info(path, shown).get("type") == "file"):
        return Place(RemoteFolder(store, path.rstrip("/"), shown.rstrip("/"), query), url=url)
    folder = RemoteFolder(store, path.rpartition("/")[0], shown.rpartition("/")[0], query)
    return Place(folder, RemoteFile(store, whole, shown), url)
