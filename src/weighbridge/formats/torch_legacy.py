"""Read a PyTorch file as torch.save wrote it before 1.6: five pickles, then each storage behind its size.

Storages are mapped where they lie. The pickles are read as data by `pickle_machine`; torch is never imported.
"""

from __future__ import annotations

import struct

from weighbridge.formats import torch_pickle
from weighbridge.formats.contents import Reading
from weighbridge.formats.pickle_machine import DICTIONARY, Made, Vocabulary, read_pickle
from weighbridge.formats.tensor import UNITS, quoted
from weighbridge.formats.torch_file import refuse
from weighbridge.formats.torch_pickle import Reference, Storage
from weighbridge.storage.readable import ReadableFile

MAGIC = b"\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019")  # a whole number of ten bytes
PROTOCOL_AND_FRAME = 2, 11  # bytes before it: with the protocol only, or with a frame as well
PROTOCOL = 1001
SIZE = 8  # bytes before each storage
NOTHING = Vocabulary()


def begins(head: bytes) -> bool:
    """Return whether a file begins with the magic number of this format, whatever its pickle protocol."""
    return head.startswith(b"\x80") and any(head.startswith(MAGIC, at) for at in PROTOCOL_AND_FRAME)


def read(file: ReadableFile) -> Reading:
    """Read the tensors by dotted name, and the scalars beside them.

    Raises:
        SubjectError: `torch-…` or `pickle-…` with the place and the reason.
    """
    _, at = read_pickle(file, 0, file.size, NOTHING)
    version, at = read_pickle(file, at, file.size, NOTHING)
    if version != PROTOCOL:
        refuse("version", f"the protocol is not {PROTOCOL}", file, at)
    system, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(system, Made) or system.callee != DICTIONARY or ("little_endian", True) not in system.pairs:
        refuse("byteorder", "does not say that it is little-endian", file, at)
    described, at = read_pickle(file, behind, file.size, torch_pickle.VOCABULARY)
    keys, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        refuse("storage", "the keys of the storages are no list of different texts", file, at)
    storages = _storages(file, behind, keys, {told.key: told for told in torch_pickle.references(described, file)})
    tensors, metadata = torch_pickle.tensors_of(described, file, storages)
    return Reading(format="torch-legacy", tensors=tensors, metadata=metadata)


def _storages(file: ReadableFile, at: int, keys: list[str], known: dict[str, Reference]) -> dict[str, Storage]:
    """Place the storages, one behind the other to the end of the file; each is preceded by its count of elements."""
    found: dict[str, Storage] = {}
    for key in keys:
        told = known.get(key)
        if told is None:
            refuse("unread", f"no tensor looks into the storage {quoted(key)}", file, at)
        if at + SIZE > file.size:
            refuse("truncated", f"the size of the storage {quoted(key)} is missing", file, at)
        (count,) = struct.unpack("<Q", file.read(at, at + SIZE))
        nbytes = count * (UNITS[told.dtype][1] if told.dtype else 1)
        if nbytes > file.size - at - SIZE:
            what = f"the storage {quoted(key)} takes {nbytes} bytes, {file.size - at - SIZE} are left"
            refuse("truncated", what, file, at)
        found[key] = Storage(at + SIZE, nbytes)
        at += SIZE + nbytes
    if at < file.size:
        refuse("trailing", f"{file.size - at} bytes after the last storage", file, at)
    return found
