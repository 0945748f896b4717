"""A file or folder elsewhere, read by ranges, as one on this machine; bytes handed out are never overwritten."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from weighbridge.core import SubjectError, bare
from weighbridge.storage.readable import BESIDE, USUAL, Place
from weighbridge.storage.remote_store import LARGE, SMALL, Store, open_store

AHEAD = 2  # blocks sent for before they are asked for
MOST_GATHERED = 16 << 20  # bytes of a tensor in another order than row-major
# What a filesystem may tell of a file that changes when its content does.
MARKS = {
    *("blobid", "checksum", "contentmd5", "crc32c", "created", "digest", "etag", "generation", "hex", "lastmodified"),
    *("md5", "md5hash", "modificationtime", "modified", "modify", "mtime", "sha", "size", "updated", "versionid"),
}


class RemoteFile:
    """One file of a store; `name` is what messages call it, without credentials."""

    __slots__ = ("_checked", "_marks", "_path", "_store", "name", "size")

    def __init__(self, store: Store, path: str, name: str = "") -> None:
        self._store, self._path = store, path
        self.name = bare(name or path)
        found = store.info(path, self.name)
        self._marks = _marks(found)
        self._checked = store.fetched
        if found.get("type") == "directory":
            what, remedy = "is a folder, not a file", "bind a checkpoint file, or its folder or index"
            raise SubjectError("file-kind", what, where=self.name, remedy=remedy)
        size = found.get("size")
        if type(size) is not int or size < 0:
            raise SubjectError("remote-size", "its size is not given", where=self.name, remedy="fetch the file first")
        if size == 0:
            remedy = "write the checkpoint again; this one is lost"
            raise SubjectError("empty-file", "the file has no bytes", where=self.name, remedy=remedy)
        self.size = size

    @property
    def version(self) -> str:
        """Return what the filesystem said of it when it was opened, as a digest."""
        marks = "\n".join(f"{key}={value}" for key, value in sorted(self._marks.items()))
        return f"marked as {hashlib.sha256(marks.encode()).hexdigest()[:16]}"

    @property
    def identity(self) -> str:
        """Return its place in the store."""
        return self._path

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop`, of which those beyond the end are left out."""
        stop = min(stop, self.size)
        return self._assembled(start, stop, SMALL if stop - start <= SMALL else LARGE, stop)

    def gather(self, start: int, stop: int) -> memoryview:
        """Fetch all of a tensor whose elements lie in another order; refuse one that is too large."""
        if stop - start > MOST_GATHERED:
            what = f"a tensor of {stop - start} bytes is not in row-major order; {MOST_GATHERED} are read elsewhere"
            remedy = "fetch the file first, or save the tensor contiguous"
            raise SubjectError("remote-order", what, where=f"{self.name} at byte {start}", remedy=remedy)
        return self._assembled(start, stop, LARGE, stop)

    def release(self, start: int, stop: int) -> None:
        """Do nothing: the store keeps only the last few blocks anyway."""

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield bytes `start` to `stop` in steps of `size`, the next blocks already on their way."""
        block = SMALL if stop - start <= SMALL else LARGE
        for at in range(start, stop, size):
            yield self._assembled(at, min(at + size, stop), block, stop)
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise where the filesystem now says otherwise of the file; it is asked if anything was fetched since."""
        fetched = self._store.fetched
        if fetched == self._checked:
            return
        if _marks(self._store.info(self._path, self.name)) != self._marks:
            remedy = "wait until its writer is done, then measure again"
            what = "the file was replaced while it was being read"
            raise SubjectError("subject-changed", what, where=self.name, remedy=remedy)
        self._checked = max(self._checked, fetched)

    def _assembled(self, start: int, stop: int, size: int, ahead: int) -> memoryview:
        """Return bytes `start` to `stop` from blocks of `size`; the next ones before `ahead` are requested early."""
        if start >= stop:
            return memoryview(b"")
        first, last = start // size, (stop - 1) // size
        if first == last:
            return memoryview(self._block(size, first, ahead))[start - first * size : stop - first * size]
        # A map of its own is given back whole and at once, which the heap would not do.
        room = mmap.mmap(-1, stop - start, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for index in range(first, last + 1):
            block = memoryview(self._block(size, index, ahead))
            room.write(block[max(start - index * size, 0) : stop - index * size])
        return memoryview(room).toreadonly()

    def _block(self, size: int, index: int, ahead: int) -> bytes:
        block = self._store.begin(self._path, size, index, self.size)
        for later in range(index + 1, index + 1 + AHEAD):
            if later * size < ahead:
                self._store.begin(self._path, size, later, self.size)
        return self._store.wait(block, self.name)


def _marks(found: dict[str, Any]) -> dict[str, str]:
    plain = {key.replace("-", "").replace("_", "").lower(): str(value) for key, value in found.items()}
    return {key: value for key, value in plain.items() if key in MARKS}


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
        """Return whether there is something of this name to be seen; stores may refuse access to what is not there."""
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

    def below(self) -> list[str]:
        """Return the path of every file in it and below; over HTTP, which lists nothing, of the usual ones."""
        if self._store.over_http:
            return [*self.names(), *filter(self.is_visible, BESIDE)]
        return self._store.below(self._path, self.name)

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""
        return self.open(name).size

    def open(self, name: str) -> RemoteFile:
        """Return a file, opened."""
        return RemoteFile(self._store, self._path_of(name), f"{self.name}/{name}")

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='') if self._store.over_http else name}{self._query}"


def locate(url: str) -> Place:
    """Return the folder that a URL names, and the file, opened; refuse with `remote-…` what cannot be read."""
    store, whole = open_store(url)
    shown = bare(url)
    path, mark, query = whole.partition("?") if store.over_http else (whole, "", "")
    query = mark + query.partition("#")[0]
    if path.endswith("/") or not (store.over_http or store.info(path, shown).get("type") == "file"):
        return Place(RemoteFolder(store, path.rstrip("/"), shown.rstrip("/"), query), url=url)
    folder = RemoteFolder(store, path.rpartition("/")[0], shown.rpartition("/")[0], query)
    return Place(folder, RemoteFile(store, whole, shown), url)
