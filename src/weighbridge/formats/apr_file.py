"""Read an APR file of version 2, of either generation of dtype codes. No extent in it is believed, no payload read."""

import itertools
import struct
import zlib
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from weighbridge.core import quoted
from weighbridge.formats.strict_json import REMEDY, strict_json
from weighbridge.formats.tensor import GGUF_TYPES, Checksum, Reading, Tensor, short, span
from weighbridge.storage.readable import ReadableFile, refuse_at

MAJOR = 2
HEADER = struct.Struct("<4s2BHIQI2QI20s")
FOOTER = 4  # bytes, the checksum of all before them
ALIGNMENT = 64
ENCRYPTED, COLUMN_MAJOR = 0x4, 0x800
MAX_METADATA = 64 << 20
MAX_NAME, MAX_DIMENSIONS = 256, 8
LEAST_ENTRY = 20  # bytes
UNKNOWN = "unknown in both generations of the format"
OLD, NEW = 2, 30  # codes of BF16 in the two generations of the format
# The size of a tensor tells where another reader takes a code for something else (2, 3, 6 and 7 for Q4_0 to Q5_1).
OWN_CODES = {0: "F32", 1: "F16", OLD: "BF16", 3: "F64", 4: "I32", 5: "I64", 6: "I8", 7: "U8"}
DTYPES: Mapping[int, str] = OWN_CODES | {code: GGUF_TYPES[code][0] for code in (10, 11, 12, 13, 14, 16, 17, NEW)}
OWN_BLOCKS = {8: "AprQ4", 9: "AprQ8", 128: "AprQ4", 129: "AprQ8"}
_refuse = partial(refuse_at, form="apr", remedy=REMEDY)


class _Entry(NamedTuple):
    """What the index says of a tensor; `relative` counts from the start of the data, `at` is the entry's own."""

    name: str
    code: int
    dtype: str
    shape: tuple[int, ...]
    relative: int
    size: int
    at: int


def read(file: ReadableFile) -> Reading:
    """Read the tensors by name, in the order of the index, and the short metadata; refuse with `apr-…` and the byte."""
    if file.size < HEADER.size + FOOTER:
        _refuse("truncated", f"{file.size} bytes hold no header and footer", file, 0)
    header = HEADER.unpack(file.read(0, HEADER.size))
    _, major, minor, flags, count, metadata_at, metadata_size, index_at, data_at, crc, _ = header
    if major != MAJOR:
        _refuse("version", f"version {major}.{minor}; version {MAJOR} is read", file, 4)
    found = zlib.crc32(file.read(44, 64), zlib.crc32(file.read(0, 40)))  # all but itself
    if found != crc:
        _refuse("checksum", f"the header has the CRC-32 {found:08x}, it says {crc:08x}", file, 40)
    if flags & ENCRYPTED:
        _refuse("flags", "the file is encrypted", file, 6)
    if flags & COLUMN_MAJOR:
        _refuse("flags", "the file says that it is column-major, which no reader of the format takes", file, 6)
    sections = [HEADER.size, metadata_at, metadata_at + metadata_size, index_at, data_at, file.size - FOOTER]
    if sections != sorted(sections):
        _refuse("truncated", "metadata, index and data do not follow each other before the end of the file", file, 12)
    if metadata_size > MAX_METADATA:
        _refuse("metadata", f"{metadata_size} bytes of metadata, more than the {MAX_METADATA} that are read", file, 20)
    text = file.read(metadata_at, metadata_at + metadata_size)
    value = strict_json(text, "apr-metadata", file, metadata_at) if metadata_size else {}
    if not isinstance(value, dict):
        _refuse("metadata", "the metadata is not a JSON object", file, metadata_at)
    metadata = {key: short(item) for key, item in value.items()}
    entries = _entries(file, count, index_at, data_at)
    tensors = {entry.name: _tensor(entry, data_at, file) for entry in entries}
    _require_cover(entries, data_at, file)
    old, new = (any(entry.code == code for entry in entries) for code in (OLD, NEW))
    if old and new:  # two writers wrote it
        _refuse("dtype", "BF16 is written as 2 and as 30 in one file", file, index_at)
    metadata["apr.dtype_codes"] = "old (BF16 is 2)" if old else "new (BF16 is 30)" if new else "either"
    (footer,) = struct.unpack("<I", file.read(file.size - FOOTER, file.size))
    file.release(0, data_at)
    sums = ("header", ((0, 40), (44, 64)), crc), ("file", ((0, file.size - FOOTER),), footer)
    checksums = tuple(Checksum(place=place, file=file.name, parts=parts, stored=crc) for place, parts, crc in sums)
    return Reading(format="apr", tensors=tensors, metadata=metadata, checksums=checksums)


def _entries(file: ReadableFile, count: int, at: int, stop: int) -> list[_Entry]:
    if count > (stop - at) // LEAST_ENTRY:
        _refuse("count", f"{count} tensors do not fit into an index of {stop - at} bytes", file, 8)
    entries = []
    for _ in range(count):
        entries.append(_entry(file, at, stop))
        at += LEAST_ENTRY + len(entries[-1].name.encode()) + 8 * len(entries[-1].shape)
    if stop - at >= ALIGNMENT:
        _refuse("hole", f"{stop - at} bytes between the index and the data", file, at)
    return entries


def _entry(file: ReadableFile, at: int, stop: int) -> _Entry:
    def numbers(form: str, start: int) -> tuple[int, ...]:
        end = start + struct.calcsize(form)
        if end > stop:
            _refuse("truncated", "the index runs into the data", file, start + (stop - start) // 8 * 8)
        return struct.unpack(form, file.read(start, end))

    (name_size,) = numbers("<H", at)
    code_at = at + 2 + name_size
    if name_size > MAX_NAME or code_at + 2 > stop:
        _refuse("name", f"a name of {name_size} bytes, at most {MAX_NAME} and before the data", file, at)
    try:
        name = str(file.read(at + 2, code_at), "utf-8")
    except UnicodeDecodeError:
        _refuse("name", "a tensor's name is not UTF-8", file, at + 2)
    code, rank = file.read(code_at, code_at + 2)
    if rank > MAX_DIMENSIONS:
        _refuse("shape", f"{quoted(name)} has {rank} dimensions, at most {MAX_DIMENSIONS} are read", file, code_at + 1)
    if not (dtype := DTYPES.get(code, "")):
        blocks = OWN_BLOCKS.get(code)
        why = f"{blocks}, blocks of APR's own that are not read here" if blocks else UNKNOWN
        _refuse("dtype", f"{quoted(name)} has the dtype code {code}: {why}", file, code_at)
    *shape, relative, size = numbers(f"<{rank + 2}Q", code_at + 2)
    return _Entry(name, code, dtype, tuple(shape), relative, size, at)


def _tensor(entry: _Entry, data_at: int, file: ReadableFile) -> Tensor:
    name, size, end = quoted(entry.name), span(entry.dtype, entry.shape), file.size - FOOTER
    if size is None or size != entry.size:
        needed = "more than can be counted, or no whole blocks" if size is None else f"{size} bytes"
        what = f"{name}: {entry.dtype} {list(entry.shape)} takes {needed}, the index says {entry.size}"
        _refuse("span", what, file, entry.at)
    start = data_at + entry.relative
    if entry.relative % ALIGNMENT:
        _refuse("alignment", f"{name} starts at no multiple of {ALIGNMENT} bytes", file, entry.at)
    if start + size > end:
        _refuse("truncated", f"{name} ends {start + size - end} bytes beyond the end of the data", file, entry.at)
    return Tensor(name=entry.name, dtype=entry.dtype, shape=entry.shape, nbytes=size, offset=start, file=file.name)


def _require_cover(entries: list[_Entry], data_at: int, file: ReadableFile) -> None:
    """Require that names rise, and that the tensors cover the data, each padded to the alignment, and nothing more."""
    for before, entry in itertools.pairwise(entries):  # readers that search need names to rise
        if before.name == entry.name:
            _refuse("twice", f"the tensor {quoted(entry.name)} is given twice", file, entry.at)
        if before.name.encode() > entry.name.encode():
            _refuse("order", f"{quoted(entry.name)} comes after {quoted(before.name)} in the index", file, entry.at)
    cursor = 0
    for entry in sorted(entries, key=lambda entry: (entry.relative, entry.size)):
        gap = entry.relative - cursor
        if gap < 0 and entry.size:
            _refuse("overlap", f"{quoted(entry.name)} starts before the tensor before it ends", file, entry.at)
        if gap >= ALIGNMENT:
            _refuse("hole", f"{gap} bytes before {quoted(entry.name)} belong to none", file, data_at + cursor)
        cursor = max(cursor, entry.relative + entry.size)
    left, padding = file.size - FOOTER - data_at - cursor, -cursor % ALIGNMENT
    if left != padding:
        what = f"{left} bytes between the last tensor and the footer, {padding} belong there"
        _refuse("truncated" if left < padding else "trailing", what, file, data_at + cursor)
