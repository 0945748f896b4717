"""Read an APR file of version 2, of either generation of its dtype codes, and never trust an extent in it.

Parses untrusted bytes: the header must have its checksum, every count and length is held against the bytes that are
left, and the size of a tensor must be what its shape and dtype take. Nothing is read from the payload.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple, NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats.contents import Checksum, Reading
from weighbridge.formats.strict_json import REMEDY, strict_json
from weighbridge.formats.tensor import Tensor, quoted, span
from weighbridge.model import Scalar
from weighbridge.storage.readable import ReadableFile

MAGIC = b"APR\0"
MAJOR = 2
HEADER = struct.Struct("<4s2BHIQI2QI20s")
CHECKED = (0, 40), (44, 64)  # bytes that the header's checksum covers
FOOTER = 4  # bytes, the checksum of all before them
ALIGNMENT = 64
ENCRYPTED, COLUMN_MAJOR = 0x4, 0x800
MAX_METADATA = 64 << 20
MAX_NAME, MAX_DIMENSIONS = 256, 8
MAX_TEXT = 1 << 10
LEAST_ENTRY = 20  # bytes
GENERATION = "apr.dtype_codes"

# The code of each dtype; those that mean the same in both generations first. The size of a tensor tells which one it
# is where another reader takes a code for something else (2 for Q4_0, 3 for Q4_1, 6 for Q5_0, 7 for Q5_1).
BOTH: Mapping[int, str] = {
    0: "F32", 1: "F16", 3: "F64", 4: "I32", 5: "I64", 6: "I8", 7: "U8", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS",
}  # fmt: skip
OLD: Mapping[int, str] = {2: "BF16"}
NEW: Mapping[int, str] = {30: "BF16"}
OWN_BLOCKS = {8: "AprQ4", 9: "AprQ8", 128: "AprQ4", 129: "AprQ8"}


class _Header(NamedTuple):
    """The fields of the header that say where things are."""

    tensors: int
    metadata_at: int
    metadata_size: int
    index_at: int
    data_at: int


class _Entry(NamedTuple):
    """What the index says about one tensor; `relative` counts from the start of the data, `at` is the entry's own."""

    name: str
    code: int
    dtype: str
    shape: tuple[int, ...]
    relative: int
    size: int
    at: int


def read(file: ReadableFile) -> Reading:
    """Read the tensors by name, in the order of the index, and the short metadata.

    Raises:
        SubjectError: `apr-…` with the byte offset and the reason.
    """
    header = _header(file)
    metadata = _metadata(file, header)
    entries = list(_entries(file, header))
    tensors = {entry.name: _tensor(entry, header, file) for entry in entries}
    _require_order(entries, file)
    _require_cover(entries, header, file)
    metadata[GENERATION] = _generation({entry.code for entry in entries}, file, header)
    file.release(0, header.data_at)
    return Reading(format="apr", tensors=tensors, metadata=metadata, checksums=_checksums(file))


def _checksums(file: ReadableFile) -> tuple[Checksum, ...]:
    (header,) = struct.unpack("<I", file.read(40, 44))
    (footer,) = struct.unpack("<I", file.read(file.size - FOOTER, file.size))
    return (
        Checksum(place="header", file=file.name, parts=CHECKED, stored=header),
        Checksum(place="file", file=file.name, parts=((0, file.size - FOOTER),), stored=footer),
    )


def _header(file: ReadableFile) -> _Header:
    if file.size < HEADER.size + FOOTER:
        _refuse("truncated", f"{file.size} bytes hold no header and footer", file, 0)
    told = HEADER.unpack(file.read(0, HEADER.size))
    if told[1] != MAJOR:
        _refuse("version", f"version {told[1]}.{told[2]}; version {MAJOR} is read", file, 4)
    found = zlib.crc32(file.read(44, 64), zlib.crc32(file.read(0, 40)))
    if found != told[9]:
        _refuse("checksum", f"the header has the CRC-32 {found:08x}, it says {told[9]:08x}", file, 40)
    if told[3] & ENCRYPTED:
        _refuse("flags", "the file is encrypted", file, 6)
    if told[3] & COLUMN_MAJOR:
        _refuse("flags", "the file says that it is column-major, which no reader of the format takes", file, 6)
    header = _Header(told[4], told[5], told[6], told[7], told[8])
    sections = (
        HEADER.size,
        header.metadata_at,
        header.metadata_at + header.metadata_size,
        header.index_at,
        header.data_at,
    )
    if list(sections) != sorted(sections) or header.data_at > file.size - FOOTER:
        _refuse("truncated", "metadata, index and data do not follow each other before the end of the file", file, 12)
    return header


def _metadata(file: ReadableFile, header: _Header) -> dict[str, Scalar]:
    """Read the metadata's texts and numbers; what is nested or long becomes None."""
    if header.metadata_size > MAX_METADATA:
        what = f"{header.metadata_size} bytes of metadata, more than the {MAX_METADATA} that are read"
        _refuse("metadata", what, file, 20)
    data = file.read(header.metadata_at, header.metadata_at + header.metadata_size)
    value = strict_json(data, "apr-metadata", file, header.metadata_at) if len(data) else {}
    if not isinstance(value, dict):
        _refuse("metadata", "the metadata is not a JSON object", file, header.metadata_at)
    return {key: _short(item) for key, item in value.items()}


def _short(item: object) -> Scalar:
    if isinstance(item, (bool, int, float)):
        return item
    return item if isinstance(item, str) and len(item) <= MAX_TEXT else None


def _entries(file: ReadableFile, header: _Header) -> Iterator[_Entry]:
    if header.tensors > (header.data_at - header.index_at) // LEAST_ENTRY:
        what = f"{header.tensors} tensors do not fit into an index of {header.data_at - header.index_at} bytes"
        _refuse("count", what, file, 8)
    at = header.index_at
    for _ in range(header.tensors):
        entry, at = _entry(file, at, header.data_at)
        yield entry
    if header.data_at - at >= ALIGNMENT:
        _refuse("hole", f"{header.data_at - at} bytes between the index and the data", file, at)


def _entry(file: ReadableFile, at: int, stop: int) -> tuple[_Entry, int]:
    name_size = _number(file, "<H", at, stop)
    if name_size > MAX_NAME or at + 4 + name_size > stop:
        _refuse("name", f"a name of {name_size} bytes, at most {MAX_NAME} and before the data", file, at)
    try:
        name = str(file.read(at + 2, at + 2 + name_size), "utf-8")
    except UnicodeDecodeError:
        _refuse("name", "a tensor's name is not UTF-8", file, at + 2)
    code_at = at + 2 + name_size
    code, rank = file.read(code_at, code_at + 2)
    if rank > MAX_DIMENSIONS:
        _refuse("shape", f"{quoted(name)} has {rank} dimensions, at most {MAX_DIMENSIONS} are read", file, code_at + 1)
    dtype = BOTH.get(code) or OLD.get(code) or NEW.get(code) or ""
    if not dtype:
        _refuse("dtype", f"{quoted(name)} has the dtype code {code}: {_unread(code)}", file, code_at)
    numbers = [_number(file, "<Q", code_at + 2 + 8 * index, stop) for index in range(rank + 2)]
    entry = _Entry(name, code, dtype, tuple(numbers[:rank]), numbers[-2], numbers[-1], at)
    return entry, code_at + 2 + 8 * (rank + 2)


def _unread(code: int) -> str:
    if code in OWN_BLOCKS:
        return f"{OWN_BLOCKS[code]}, blocks of APR's own that are not read here"
    return "unknown in both generations of the format"


def _number(file: ReadableFile, form: str, at: int, stop: int) -> int:
    if at + struct.calcsize(form) > stop:
        _refuse("truncated", "the index runs into the data", file, at)
    value: int = struct.unpack(form, file.read(at, at + struct.calcsize(form)))[0]
    return value


def _tensor(entry: _Entry, header: _Header, file: ReadableFile) -> Tensor:
    size = span(entry.dtype, entry.shape)
    if size is None or size != entry.size:
        needed = "more than can be counted, or no whole blocks" if size is None else f"{size} bytes"
        what = f"{quoted(entry.name)}: {entry.dtype} {list(entry.shape)} takes {needed}, the index says {entry.size}"
        _refuse("span", what, file, entry.at)
    start = header.data_at + entry.relative
    if entry.relative % ALIGNMENT:
        _refuse("alignment", f"{quoted(entry.name)} starts at no multiple of {ALIGNMENT} bytes", file, entry.at)
    if start + size > file.size - FOOTER:
        beyond = start + size - (file.size - FOOTER)
        _refuse("truncated", f"{quoted(entry.name)} ends {beyond} bytes beyond the end of the data", file, entry.at)
    return Tensor(
        name=entry.name, dtype=entry.dtype, shape=entry.shape, nbytes=size, offset=start, file=file.name
    )  # fmt: skip


def _require_order(entries: list[_Entry], file: ReadableFile) -> None:
    """Require that names rise, as readers that search need it; equal ones would be two tensors for two readers."""
    for before, entry in itertools.pairwise(entries):
        if before.name == entry.name:
            _refuse("twice", f"the tensor {quoted(entry.name)} is given twice", file, entry.at)
        if before.name.encode() > entry.name.encode():
            _refuse("order", f"{quoted(entry.name)} comes after {quoted(before.name)} in the index", file, entry.at)


def _require_cover(entries: list[_Entry], header: _Header, file: ReadableFile) -> None:
    """Require that the tensors cover the data, each padded to the alignment: no hole, no overlap, nothing after."""
    cursor = 0
    for entry in sorted(entries, key=lambda entry: (entry.relative, entry.size)):
        if entry.relative < cursor and entry.size:
            _refuse("overlap", f"{quoted(entry.name)} starts before the tensor before it ends", file, entry.at)
        if entry.relative - cursor >= ALIGNMENT:
            what = f"{entry.relative - cursor} bytes before {quoted(entry.name)} belong to none"
            _refuse("hole", what, file, header.data_at + cursor)
        cursor = max(cursor, entry.relative + entry.size)
    left, padding = file.size - FOOTER - header.data_at - cursor, -cursor % ALIGNMENT
    if left != padding:
        what = f"{left} bytes between the last tensor and the footer, {padding} belong there"
        _refuse("truncated" if left < padding else "trailing", what, file, header.data_at + cursor)


def _generation(codes: set[int], file: ReadableFile, header: _Header) -> str:
    """Tell which generation of dtype codes the file uses; a code of each would mean that two writers wrote it."""
    old, new = bool(codes & OLD.keys()), bool(codes & NEW.keys())
    if old and new:
        _refuse("dtype", "BF16 is written as 2 and as 30 in one file", file, header.index_at)
    return "old (BF16 is 2)" if old else "new (BF16 is 30)" if new else "either"


def _refuse(code: str, what: str, file: ReadableFile, at: int) -> NoReturn:
    raise SubjectError(f"apr-{code}", what, where=f"{file.name} at byte {at}", remedy=REMEDY)
