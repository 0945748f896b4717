"""A reader of checkpoints: `FLAT`, the length of a JSON header, the header, and F32 values one tensor after another."""

from __future__ import annotations

import math
import struct

from weighbridge.core.canonical import closed, loads
from weighbridge.core.errors import SubjectError
from weighbridge.formats.detect import Format
from weighbridge.formats.tensor import Reading, Tensor
from weighbridge.storage.readable import ReadableFile

MAGIC = b"FLAT"
BEGIN = 8  # bytes before the header
MAX_HEADER = 1 << 20


def read(file: ReadableFile) -> Reading:
    """Read the header: the shape of each tensor by name. Every length is held against the bytes that are there."""
    if file.size < BEGIN:
        raise SubjectError("flat-header", "it ends before its header", where=file.name)
    (length,) = struct.unpack("<I", file.read(len(MAGIC), BEGIN))
    offset = BEGIN + length
    if length > MAX_HEADER or offset > file.size:
        what = f"a header of {length} bytes, in a file of {file.size}"
        raise SubjectError("flat-header", what, where=f"{file.name} at byte {len(MAGIC)}")
    shapes = closed(loads(bytes(file.read(BEGIN, offset)), where=file.name), ("tensors",))["tensors"]
    tensors = {}
    for name, shape in shapes.items():
        nbytes = 4 * math.prod(shape)
        where = {"nbytes": nbytes, "offset": offset}
        tensors[name] = Tensor(name=name, dtype="F32", shape=tuple(shape), file=file.name, **where)
        offset += nbytes
    if offset != file.size:
        raise SubjectError("flat-size", f"its tensors take {offset} bytes, there are {file.size}", where=file.name)
    return Reading(format="flat", tensors=tensors)


FLAT = Format(name="flat", magic=MAGIC, read=read)
