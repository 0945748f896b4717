"""A file or folder elsewhere, asked through fsspec and read by ranges, as one on this machine.

No answer is waited for for ever. What fsspec raises becomes an error of ours without its words, which may hold
credentials. Each call has its own thread, which the process does not wait for. Blocks are kept here: fsspec's caches
know one size, and no two threads. Bytes handed out are never overwritten.
"""

import contextlib
import hashlib
import mmap
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from weighbridge.core import SubjectError, bare, quoted, scheme_of
from weighbridge.storage.readable import BESIDE, USUAL, Place

Answer = TypeVar("Answer")
TIMEOUT_S = 60.0  # for one answer, all its tries together
TRIES = 3  # of a connection that breaks
SMALL, LARGE = 64 << 10, 1 << 20  # bytes fetched at once, for a header and for values
KEPT: Mapping[int, int] = {SMALL: 32, LARGE: 8}  # blocks of each size, over all files of a store
HTTP = frozenset({"http", "https"})
INSTALL = "pip install 'weighbridge[remote]'"
CREDENTIALS = "give this process the credentials that the filesystem reads (its environment, or fsspec's configuration)"
AHEAD = 2  # blocks sent for before they are asked for
MOST_GATHERED = 16 << 20  # bytes of a tensor in another order than row-major
# What a filesystem may tell of a file that changes when its content does.
MARKS = {
    *("blobid", "checksum", "contentmd5", "crc32c", "created", "digest", "etag", "generation", "hex", "lastmodified"),
    *("md5", "md5hash", "modificationtime", "modified", "modify", "mtime", "sha", "size", "updated", "versionid"),
}


class _Store:
    """One filesystem elsewhere, and the blocks last fetched from it."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem
        self._lock = threading.Lock()
        # A filesystem without its own event loop may have one connection, as FTP has, on which calls would mix.
        several = bool(getattr(filesystem, "async_impl", False))
        self._turn: AbstractContextManager[object] = contextlib.nullcontext() if several else threading.Lock()
        self._blocks = {size: OrderedDict[tuple[str, int], Future[bytes]]() for size in KEPT}
        self.fetched = 0  # blocks that have arrived so far
        protocol = filesystem.protocol
        self.over_http = bool(HTTP & set([protocol] if isinstance(protocol, str) else protocol))

    def info(self, path: str, name: str) -> dict[str, Any]:
        """Return what is known of a path, asked anew; refuse with `file-missing` or `remote-…`."""

        def ask() -> dict[str, Any]:
            self._fs.invalidate_cache(path)
            return dict(self._fs.info(path))

        return self._answered(ask, name)

    def names(self, path: str, name: str) -> list[str]:
        """Return the names of the files in a folder; a folder that is not there has none."""

        def ask() -> list[dict[str, Any]]:
            with contextlib.suppress(FileNotFoundError):
                return list(self._fs.ls(path, detail=True))
            return []

        found = self._answered(ask, name)
        return [entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry.get("type") == "file"]

    def below(self, path: str, name: str) -> list[str]:
        """Return the paths of all files in a folder and below, from it on."""

        def ask() -> list[str]:
            root = str(self._fs._strip_protocol(path)).rstrip("/")  # noqa: SLF001
            return sorted(one.partition(f"{root}/")[2] for one in self._fs.find(path))

        return self._answered(ask, name)

    def _answered(self, ask: Callable[[], Answer], name: str) -> Answer:
        def in_turn() -> Answer:
            with self._turn:
                return ask()

        with _as_subject_error(name):
            return _begin(in_turn).result(TIMEOUT_S)

    def begin(self, path: str, size: int, index: int, end: int) -> Future[bytes]:
        """Start fetching one block of a file of `end` bytes, unless it is at hand."""
        blocks, key = self._blocks[size], (path, index)
        with self._lock:
            if (found := blocks.pop(key, None)) is None:
                start = index * size
                found = _begin(lambda: self._fetch(path, start, min(start + size, end)))
            blocks[key] = found
            if len(blocks) > KEPT[size]:
                blocks.popitem(last=False)
        return found

    def _fetch(self, path: str, start: int, stop: int) -> bytes:
        for left in reversed(range(TRIES)):
            try:
                data = self._range(path, start, stop)
                break
            except Exception as problem:  # the connection broke, the answer was short, or the server is busy
                if not left or _explained(problem)[0] not in ("remote-unreadable", "remote-short"):
                    raise
        with self._lock:
            self.fetched += 1  # before anybody may look at them, so that whoever asks for changes asks after this
        return data

    def _range(self, path: str, start: int, stop: int) -> bytes:
        if self.over_http:  # fsspec would read an answer to its end, wherever that is
            from fsspec.asyn import sync

            data: bytes = sync(self._fs.loop, self._answer, path, start, stop)
        else:
            with self._turn:
                data = bytes(self._fs.cat_file(path, start=start, end=stop))
        if len(data) != stop - start:
            what = f"the answer is cut short: {len(data)} of {stop - start} bytes, from byte {start} on"
            raise _AnswerError("remote-short", what)
        return data

    async def _answer(self, path: str, start: int, stop: int) -> bytes:
        """Read no more of an answer than was asked for: it may say no length, or a wrong one, and never end."""
        session, options = await self._fs.set_session(), dict(getattr(self._fs, "kwargs", {}))
        headers = {**options.pop("headers", {}), "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        async with session.get(self._fs.encode_url(path), headers=headers, **options) as answer:
            if answer.status == 416:  # beyond the end
                return b""
            answer.raise_for_status()
            if (packed := answer.headers.get("Content-Encoding", "identity")) not in ("", "identity"):
                raise _AnswerError("remote-packed", f"the answer is packed ({quoted(packed)}), which was not asked for")
            if start and answer.status != 206:
                raise _AnswerError("remote-ranges", "the server gives no ranges of a file, only all of it")
            async for chunk in answer.content.iter_any():
                data += chunk
                if len(data) > stop - start:
                    break
            if len(data) > stop - start and answer.status == 206:
                what = f"the answer is longer than the {stop - start} bytes that were asked for, from byte {start} on"
                raise _AnswerError("remote-long", what)
        return bytes(data[: stop - start])


class _AnswerError(Exception):
    """Other than the bytes that were asked for came: a code, and a text of ours."""


def open_store(url: str) -> tuple[_Store, str]:
    """Return the filesystem that a URL names, and the path in it; refuse with `remote-extra` or `remote-protocol`."""
    name = bare(url)
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise SubjectError("remote-extra", "reading URLs needs fsspec", where=name, remedy=INSTALL) from None
    if "::" in url:
        _refuse_protocol("one URL inside another ('::') is not read", name)
    with _as_subject_error(name):
        try:
            filesystem, path = _begin(lambda: url_to_fs(url)).result(TIMEOUT_S)
        except ImportError as problem:
            what = f"reading {scheme_of(url)}:// needs a package that is not here: {quoted(str(problem)[:200])}"
            raise SubjectError("remote-extra", what, where=name, remedy=f"{INSTALL}, or what is named above") from None
        except ValueError:
            _refuse_protocol(f"fsspec reads no {scheme_of(url)}:// URLs, or not this one", name)
    return _Store(filesystem), path


def _refuse_protocol(what: str, name: str) -> NoReturn:
    raise SubjectError("remote-protocol", what, where=name, remedy="bind a path, or one URL that fsspec reads")


def _begin(call: Callable[[], Answer]) -> Future[Answer]:
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as problem:  # noqa: BLE001 -- whoever waits for the answer gets it
            answer.set_exception(problem)

    threading.Thread(target=run, name="weighbridge-remote", daemon=True).start()
    return answer


@contextlib.contextmanager
def _as_subject_error(name: str) -> Iterator[None]:
    try:
        yield
    except SubjectError:
        raise
    except Exception as problem:  # noqa: BLE001 -- each filesystem has exceptions of its own
        code, what, remedy = _explained(problem)
        raise SubjectError(code, what, where=name, remedy=remedy) from None


def _explained(problem: BaseException) -> tuple[str, str, str]:
    causes = [problem]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    status = next((code for cause in causes if type(code := getattr(cause, "status", None)) is int), None)
    numbered = f" (HTTP status {status})" if status is not None else ""
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return "remote-timeout", f"no answer in {TIMEOUT_S:g} s", "try again, or fetch the file first"
    if status in (401, 403) or any(isinstance(cause, PermissionError) for cause in causes):
        return "remote-access", f"access is refused{numbered}", f"{CREDENTIALS}; a signed link may be expired"
    if status in (404, 410) or (isinstance(problem, FileNotFoundError) and len(causes) == 1):
        return "file-missing", "there is no such file", "check the path of the subject"
    if isinstance(problem, _AnswerError):
        code, what = problem.args
        return code, what, "try again, or fetch the file first" if code == "remote-short" else "fetch the file first"
    if status is not None:
        return "remote-unreadable", f"the server answered{numbered}", "try again, or fetch the file first"
    why = type(causes[-1]).__name__
    return "remote-unreadable", f"it cannot be asked, or the connection broke ({why})", "check the address, try again"


class _RemoteFile:
    """One file of a store; `name` is what messages call it, without credentials."""

    def __init__(self, store: _Store, path: str, name: str) -> None:
        self._store, self._path = store, path
        self.name = bare(name)
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
        return self._path

    def read(self, start: int, stop: int) -> memoryview:
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
        if (fetched := self._store.fetched) == self._checked:
            return
        if _marks(self._store.info(self._path, self.name)) != self._marks:
            remedy = "wait until its writer is done, then measure again"
            what = "the file was replaced while it was being read"
            raise SubjectError("subject-changed", what, where=self.name, remedy=remedy)
        self._checked = max(self._checked, fetched)

    def _assembled(self, start: int, stop: int, size: int, ahead: int) -> memoryview:
        if start >= stop:
            return memoryview(b"")
        first, last = start // size, (stop - 1) // size
        if first == last:
            return memoryview(self._block(size, first, ahead))[start - first * size : stop - first * size]
        # A map of its own is given back whole and at once, which the heap would not do.
        room = mmap.mmap(-1, stop - start, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for index in range(first, last + 1):
            room.write(memoryview(self._block(size, index, ahead))[max(start - index * size, 0) : stop - index * size])
        return memoryview(room).toreadonly()

    def _block(self, size: int, index: int, ahead: int) -> bytes:
        block = self._store.begin(self._path, size, index, self.size)
        for later in range(index + 1, index + 1 + AHEAD):
            if later * size < ahead:
                self._store.begin(self._path, size, later, self.size)
        with _as_subject_error(self.name):  # where it does not come, or not whole
            return block.result(TIMEOUT_S)


def _marks(found: dict[str, Any]) -> dict[str, str]:
    plain = {key.replace("-", "").replace("_", "").lower(): str(value) for key, value in found.items()}
    return {key: value for key, value in plain.items() if key in MARKS}


class _RemoteFolder:
    """A folder elsewhere; `query` is what follows each file's URL, where a server wants a token there."""

    def __init__(self, store: _Store, path: str, name: str, query: str = "") -> None:
        self._store, self._path, self._query = store, path, query
        self._listed: list[str] | None = None
        self.name = self.home = name

    def holds(self, name: str) -> bool:
        return self._is_there(name, "file-missing")

    def is_visible(self, name: str) -> bool:
        """Return whether there is something of this name to be seen; stores may refuse access to what is not there."""
        return self._is_there(name, "file-missing", "remote-access")

    def _is_there(self, name: str, *absent: str) -> bool:
        try:
            self._store.info(self._path_of(name), f"{self.name}/{name}")
        except SubjectError as error:
            if error.code in absent:
                return False
            raise
        return True

    def leads_out(self, name: str) -> bool:
        """Return False: no plain name does."""
        return False

    def names(self) -> list[str]:
        """Return the names of its files, once; over HTTP, which lists nothing, those usual names that are there."""
        if self._listed is None:
            some = filter(self.is_visible, USUAL) if self._store.over_http else self._store.names(self._path, self.name)
            self._listed = list(some)
        return self._listed

    def below(self) -> list[str]:
        """Return the path of every file in it and below; over HTTP, which lists nothing, of the usual ones."""
        if self._store.over_http:
            return [*self.names(), *filter(self.is_visible, BESIDE)]
        return self._store.below(self._path, self.name)

    def size(self, name: str) -> int:
        return self.open(name).size

    def open(self, name: str) -> _RemoteFile:
        return _RemoteFile(self._store, self._path_of(name), f"{self.name}/{name}")

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='') if self._store.over_http else name}{self._query}"


def locate(url: str) -> Place:
    """Return the folder that a URL names, and the file, opened; refuse with `remote-…` what cannot be read."""
    store, whole = open_store(url)
    shown = bare(url)
    path, mark, query = whole.partition("?") if store.over_http else (whole, "", "")
    query = mark + query.partition("#")[0]
    if path.endswith("/") or not (store.over_http or store.info(path, shown).get("type") == "file"):
        return Place(_RemoteFolder(store, path.rstrip("/"), shown.rstrip("/"), query), url=url)
    folder = _RemoteFolder(store, path.rpartition("/")[0], shown.rpartition("/")[0], query)
    return Place(folder, _RemoteFile(store, whole, shown), url)
