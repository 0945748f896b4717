"""Read a file of torch.save, a ZIP archive or the five pickles and storages of before 1.6; never imports torch."""

from __future__ import annotations

import struct
from typing import NoReturn

from weighbridge.core import SubjectError, quoted
from weighbridge.formats import torch_pickle, zip_archive
from weighbridge.formats.pickle_machine import DICTIONARY, MAX_PICKLE, SAVE_AGAIN, Made, Vocabulary, read_pickle
from weighbridge.formats.tensor import UNITS, Reading
from weighbridge.formats.torch_pickle import Storage
from weighbridge.formats.zip_archive import Member
from weighbridge.storage.readable import ReadableFile

PICKLE, CONSTANTS, BYTE_ORDER, DATA = "data.pkl", "constants.pkl", "byteorder", "data/"
LEGACY_MAGIC = b"\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019")  # a whole number of ten bytes
PROTOCOL_AND_FRAME = 2, 11  # bytes before it: with the protocol only, or with a frame as well
LEGACY_PROTOCOL = 1001
SIZE = 8  # bytes before each storage
NOTHING = Vocabulary()


def root_of(members: dict[str, Member]) -> str | None:
    """Find the folder, with its slash, that holds the one pickle of a PyTorch archive; None where there is none."""
    roots = {name.removesuffix(PICKLE) for name in members if name == PICKLE or name.endswith("/" + PICKLE)}
    outer = [root for root in roots if root.count("/") <= 1]
    return outer[0] if len(outer) == 1 else None


def parse(file: ReadableFile, members: dict[str, Member], root: str) -> Reading:
    """Read tensors by dotted name and scalars beside them; refuse with `torch-…`, `pickle-…` or `zip-…`."""
    if root + CONSTANTS in members:
        refuse("script", "is a TorchScript program, whose classes are code", file)
    if (order := members.get(root + BYTE_ORDER)) is not None:
        byte_order = bytes(zip_archive.content(file, order, 64))
        if byte_order != b"little":
            shown = quoted(byte_order.decode("ascii", "backslashreplace"))
            refuse("byteorder", f"its byte order is {shown}, not 'little'", file, order.start)
    pickle = members[root + PICKLE]
    zip_archive.content(file, pickle, MAX_PICKLE)
    described, behind = read_pickle(file, pickle.start, pickle.stop, torch_pickle.VOCABULARY)
    if behind != pickle.stop:
        refuse("trailing", f"{pickle.stop - behind} bytes follow the pickle in {quoted(pickle.name)}", file, behind)
    data = root + DATA
    places = {name: Storage(member.start, member.nbytes) for name, member in members.items() if name.startswith(data)}
    storages = {name.removeprefix(data): place for name, place in places.items()}
    tensors, metadata = torch_pickle.tensors_of(described, file, storages)
    known = {reference.key for reference in torch_pickle.references(described, file)}
    unread = next((key for key in storages if key not in known), None)
    if unread is not None:
        refuse("unread", f"no tensor looks into the storage {quoted(data + unread)}", file, storages[unread].start)
    return Reading(format="torch", tensors=tensors, metadata=metadata, checksums=zip_archive.checksums(file, members))


def begins_legacy(head: bytes) -> bool:
    """Return whether a file begins with the magic number of the format before 1.6, whatever its pickle protocol."""
    return head.startswith(b"\x80") and any(head.startswith(LEGACY_MAGIC, at) for at in PROTOCOL_AND_FRAME)


def read_legacy(file: ReadableFile) -> Reading:
    """Read tensors by dotted name and scalars beside them; refuse with `torch-…` or `pickle-…` and the place."""
    _, at = read_pickle(file, 0, file.size, NOTHING)
    version, at = read_pickle(file, at, file.size, NOTHING)
    if version != LEGACY_PROTOCOL:
        refuse("version", f"the protocol is not {LEGACY_PROTOCOL}", file, at)
    system, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(system, Made) or system.callee != DICTIONARY or ("little_endian", True) not in system.pairs:
        refuse("byteorder", "does not say that it is little-endian", file, at)
    described, at = read_pickle(file, behind, file.size, torch_pickle.VOCABULARY)
    keys, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        refuse("storage", "the keys of the storages are no list of different texts", file, at)
    known = {one.key: one for one in torch_pickle.references(described, file)}
    storages, at = dict[str, Storage](), behind  # to the end of the file, each behind its count of elements
    for key in keys:
        reference = known.get(key)
        if reference is None:
            refuse("unread", f"no tensor looks into the storage {quoted(key)}", file, at)
        if at + SIZE > file.size:
            refuse("truncated", f"the size of the storage {quoted(key)} is missing", file, at)
        (count,) = struct.unpack("<Q", file.read(at, at + SIZE))
        nbytes = count * (UNITS[reference.dtype][1] if reference.dtype else 1)
        if nbytes > file.size - at - SIZE:
            what = f"the storage {quoted(key)} takes {nbytes} bytes, {file.size - at - SIZE} are left"
            refuse("truncated", what, file, at)
        storages[key] = Storage(at + SIZE, nbytes)
        at += SIZE + nbytes
    if at < file.size:
        refuse("trailing", f"{file.size - at} bytes after the last storage", file, at)
    tensors, metadata = torch_pickle.tensors_of(described, file, storages)
    return Reading(format="torch-legacy", tensors=tensors, metadata=metadata)


def refuse(code: str, what: str, file: ReadableFile, at: int = 0) -> NoReturn:
    """Refuse a PyTorch file with `torch-…` and the byte."""
    raise SubjectError(f"torch-{code}", what, where=f"{file.name} at byte {at}", remedy=SAVE_AGAIN)
