"""Read a PyTorch distributed checkpoint: the .distcp files must be, byte by byte, what `.metadata` promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NoReturn

from weighbridge.core import Scalar, SubjectError, quoted
from weighbridge.formats import dcp_metadata, torch_file, zip_archive
from weighbridge.formats.dcp_metadata import Contents, Item, Key, refuse, shown
from weighbridge.formats.pickle_machine import MAX_PICKLE
from weighbridge.formats.tensor import Checksum, Piece, Pieces, Reading, Tensor
from weighbridge.formats.torch_file import WHOLE, in_values
from weighbridge.storage.readable import METADATA, Folder, ReadableFile

COPY_AGAIN = "copy the whole directory again, .metadata and all .distcp files of one save"
COPY_FILES = "copy the files themselves into the directory (cp -L)"


class _Excerpt:
    """A stretch of an open file, read as if it were a file by itself; its bytes count from its own start."""

    __slots__ = ("_start", "name", "size", "whole")

    def __init__(self, whole: ReadableFile, start: int, stop: int) -> None:
        self.whole, self._start = whole, start
        self.name = f"{whole.name}, in the item at byte {start},"
        self.size = stop - start

    @property
    def version(self) -> str:
        return self.whole.version

    @property
    def identity(self) -> str:
        return self.whole.identity

    def read(self, start: int, stop: int) -> memoryview:
        return self.whole.read(self._start + start, self._start + min(stop, self.size))

    gather = read

    def release(self, start: int, stop: int) -> None:
        self.whole.release(self._start + start, self._start + stop)

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        return self.whole.windows(self._start + start, self._start + stop, size)

    def require_unchanged(self) -> None:
        self.whole.require_unchanged()


def parse(metadata: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read the tensors, a note of what is none, and the files by name; refuse with `dcp-…`, `pickle-…` or `zip-…`."""
    contents = dcp_metadata.read(metadata)
    homes: dict[str, ReadableFile] = {}
    for name in sorted({item.file for item in contents.items.values()}):
        if not folder.holds(name):
            _refuse_copy("file", f"{quoted(name)}, which {METADATA} names, is not beside it", metadata)
        if folder.leads_out(name):
            what = f"{quoted(name)} is a link that leads out of the directory"
            raise SubjectError("dcp-path", what, where=metadata.name, remedy=COPY_FILES)
        homes[name] = folder.open(name)
    ends = dict.fromkeys(homes, 0)  # the items of a file follow each other to its end
    for key, item in sorted(contents.items.items(), key=lambda each: each[1]):
        file, cursor = homes[item.file], ends[item.file]
        if item.start < cursor:
            _refuse_copy("overlap", f"{shown(key)} begins {cursor - item.start} bytes before the end of another", file)
        if item.start > cursor:
            _refuse_copy("hole", f"{item.start - cursor} bytes from byte {cursor} on belong to no item", file)
        if item.nbytes > file.size - cursor:
            what = f"{shown(key)} takes {item.nbytes} bytes from byte {cursor} on, {file.size - cursor} are left"
            _refuse_copy("truncated", what, file)
        ends[item.file] += item.nbytes
    for name, end in ends.items():
        if end < homes[name].size:
            _refuse_copy("trailing", f"{homes[name].size - end} bytes follow the last item", homes[name])
    checksums: list[Checksum] = []
    tensors = {name: _tensor(name, contents, homes, checksums) for name in contents.tensors}
    unweighed: dict[str, Scalar] = {"dcp.unweighed_items": len(contents.others)} if contents.others else {}
    reading = Reading(format="torch-dcp", tensors=tensors, metadata=unweighed, checksums=tuple(checksums))
    return reading, {file.name: file for file in (metadata, *homes.values())}


def _tensor(name: str, contents: Contents, homes: Mapping[str, ReadableFile], checksums: list[Checksum]) -> Tensor:
    """Put a tensor together from its pieces, noting the checksums of each."""
    saved = contents.tensors[name]
    pieces = []
    for at, sizes in sorted(saved.blocks):
        item = contents.items[name, at]
        found, sums = _piece((name, at), item, homes[item.file])
        checksums += sums
        if (found.dtype, found.shape) != (saved.dtype, in_values(saved.dtype, sizes)):
            what = f"{shown((name, at))} holds {found.dtype} {list(found.shape)[:8]}"
            refuse("piece", f"{what}, the metadata says {saved.dtype} {list(sizes)[:8]}", homes[item.file])
        pieces.append(Piece(at=at, sizes=sizes, stored=found))
    filled = [piece for piece in pieces if piece.stored.nbytes] or pieces[:1]
    first = filled[0].stored
    shape, nbytes = in_values(saved.dtype, saved.sizes), sum(piece.stored.nbytes for piece in pieces)
    tiled = Pieces(shape=saved.sizes, blocks=tuple(filled)) if len(filled) > 1 else None
    return dataclasses.replace(first, shape=shape, nbytes=nbytes, pieces=tiled, weight=name not in contents.beside)


def _piece(key: Key, item: Item, file: ReadableFile) -> tuple[Tensor, list[Checksum]]:
    """Read the one tensor of an item, and the checksums of its storages; other members are checked against theirs."""
    part, place = _Excerpt(file, item.start, item.start + item.nbytes), f"{key[0]} at byte {item.start}"
    if not bytes(part.read(0, 4)).startswith(zip_archive.MAGICS):
        refuse("item", f"{shown(key)} at byte {item.start} is no archive of torch.save", file)
    members = zip_archive.members(part)
    root = torch_file.root_of(members)
    tensors = torch_file.parse(part, members, root).tensors if root is not None else {}
    if root is None or list(tensors) != [WHOLE]:
        refuse("item", f"{shown(key)} at byte {item.start} is {len(tensors)} tensors by name, not one without", file)
    sums = []
    for member in members.values():
        if member.name.startswith(root + torch_file.DATA):
            extent = (item.start + member.start, item.start + member.stop)
            sums.append(Checksum(place=place, file=file.name, parts=(extent,), stored=member.crc))
        else:
            zip_archive.content(part, member, MAX_PICKLE)
    found = tensors[WHOLE]
    part.release(0, part.size)
    return dataclasses.replace(found, name=key[0], file=file.name, offset=found.offset + item.start), sums


def _refuse_copy(code: str, what: str, file: ReadableFile) -> NoReturn:
    raise SubjectError(f"dcp-{code}", what, where=file.name, remedy=COPY_AGAIN)
