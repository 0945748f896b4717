"""Read a GGUF file's header, or those of all its parts. No count is believed; vocabularies are stepped over."""

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from weighbridge.core import Json, Scalar, SubjectError, dataclass, quoted, replace
from weighbridge.formats.tensor import GGUF_TYPES, Reading, Tensor, span
from weighbridge.storage.readable import WINDOW, Folder, ReadableFile, refuse_at

ALIGNMENT = "general.alignment"
MAX_KEYS, MAX_TENSORS, MAX_DIMENSIONS = 1 << 16, 1 << 20, 8
MAX_STRINGS = 1 << 24  # in one array; the largest vocabularies have 2^18
MAX_NAME = 1 << 16
STRETCH = 1 << 20  # bytes of a vocabulary looked at together
MAX_KEPT = 1 << 10  # longer texts (chat templates, licences) are stepped over
MAX_DEPTH = 4
MAX_TEXT = 1 << 20  # bytes of one text that is read where it lies
MAX_PIECE = 1 << 16  # bytes of one entry of an array of texts
STRIDE = 1 << 12  # entries between two places that are remembered
MAX_NUMBERS = 1 << 12  # entries of an array of numbers that is read at once: one a layer
STRING, ARRAY, UINT32 = 8, 9, 4
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
LEAST_KEY, LEAST_TENSOR, LEAST_STRING, LEAST_ARRAY = 13, 24, 8, 12  # bytes
WRITE_AGAIN = "convert the model again, or fetch it again and compare its size with the source's"
SUFFIX = ".gguf"
PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
MAX_PARTS = 1 << 10
NAMED = 3  # parts, in a message


def read(file: ReadableFile) -> Reading:
    """Read the tensors by name, in header order, and the short metadata; refuse with `gguf-…` and the byte offset."""
    reader = _Reader(file)
    tensors, keys = reader.counts()
    metadata, _ = reader.metadata(keys)
    infos: dict[str, tuple[Tensor, int]] = {}  # offsets count from the start of the data; and where the entry stands
    for _ in range(tensors):
        at = reader.at
        if (name := reader.text("a tensor's name")) in infos:
            reader.refuse("twice", f"the tensor {quoted(name)} is given twice", at)
        infos[name] = reader.tensor(name), at
    alignment = metadata.get(ALIGNMENT, 32)
    assert isinstance(alignment, int)
    if alignment <= 0 or alignment & (alignment - 1):
        reader.refuse("alignment", f"{ALIGNMENT} is {alignment}, not a power of two")
    cursor = start = -(-reader.at // alignment) * alignment
    placed: dict[str, Tensor] = {}  # each at the first aligned byte after the one before it
    for tensor, at in sorted(infos.values(), key=lambda info: (info[0].offset, info[0].nbytes)):
        name, offset = tensor.name, start + tensor.offset
        if offset != cursor:
            code = "overlap" if offset < cursor else "hole"
            reader.refuse(code, f"{quoted(name)} starts at byte {offset}, byte {cursor} is where it belongs", at)
        if (end := offset + tensor.nbytes) > file.size:
            reader.refuse("truncated", f"{quoted(name)} ends at byte {end}, the file at byte {file.size}", offset)
        cursor = -(-end // alignment) * alignment
        placed[name] = replace(tensor, offset=offset)
    if file.size > max(cursor, reader.at):
        reader.refuse("trailing", f"{file.size - cursor} bytes after the last tensor", cursor)
    file.release(0, reader.at)
    return Reading(format="gguf", tensors={name: placed[name] for name in infos}, metadata=metadata)


@dataclass(slots=True)
class _Reader:
    """A place in the header; every step is checked against the end of the file."""

    file: ReadableFile
    at: int = len(b"GGUF")

    def refuse(self, code: str, what: str, at: int | None = None) -> NoReturn:
        refuse_at(code, what, self.file, self.at if at is None else at, form="gguf", remedy=WRITE_AGAIN)

    def skip(self, size: int, what: str) -> None:
        if size > self.file.size - self.at:
            self.refuse("truncated", f"{what} takes {size} bytes, {self.file.size - self.at} are left")
        self.at += size

    def number(self, code: str, what: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]

    def take(self, size: int, what: str) -> memoryview:
        self.skip(size, what)
        return self.file.read(self.at - size, self.at)

    def count(self, what: str, least: int, most: int) -> int:
        """Read a count of things that take at least `least` bytes each."""
        at = self.at
        value: int = self.number("Q", f"the number of {what}")
        left = self.file.size - self.at
        if value > left // least:
            self.refuse("count", f"{value} {what} cannot fit into the {left} bytes that are left", at)
        if value > most:
            self.refuse("count", f"{value} {what}, more than the {most} that are read", at)
        return value

    def text(self, what: str) -> str:
        at = self.at
        if (length := self.number("Q", f"the length of {what}")) > MAX_NAME:
            self.refuse("length", f"{what} is {length} bytes long, at most {MAX_NAME} are read", at)
        start = self.at
        try:
            return str(self.take(length, what), "utf-8")
        except UnicodeDecodeError:
            self.refuse("text", f"{what} is not UTF-8", start)

    def counts(self) -> tuple[int, int]:
        if (version := self.number("I", "the version")) not in (2, 3):
            big = " (a big-endian file?)" if version & 0xFFFF == 0 else ""
            self.refuse("version", f"version {version}{big}; versions 2 and 3 are read", 4)
        return self.count("tensors", LEAST_TENSOR, MAX_TENSORS), self.count("keys", LEAST_KEY, MAX_KEYS)

    def metadata(self, count: int) -> tuple[dict[str, Scalar], dict[str, int]]:
        """Read the short values by key, and where the type of each key's value stands."""
        metadata: dict[str, Scalar] = {}
        where: dict[str, int] = {}
        for _ in range(count):
            at = self.at
            if (key := self.text("a key")) in metadata:
                self.refuse("twice", f"the key {quoted(key)} is given twice", at)
            where[key] = self.at
            kind = self.number("I", "a type")
            if key == ALIGNMENT and kind != UINT32:
                self.refuse("alignment", f"{ALIGNMENT} is not a 32-bit whole number", at)
            metadata[key] = self.value(kind, quoted(key))
        return metadata, where

    def value(self, kind: int, key: str) -> Scalar:
        if kind in SCALARS:
            return self.number(SCALARS[kind], key)  # type: ignore[no-any-return]
        if kind == STRING:
            length = self.number("Q", f"the length of {key}")
            if length <= MAX_KEPT:
                return str(self.take(length, key), "utf-8", "replace")
            self.skip(length, key)
        elif kind == ARRAY:
            self.skip_array(key, 1)
        else:
            self.refuse("type", f"{key} has the unknown type {kind}", self.at - 4)
        return None

    def skip_array(self, key: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self.refuse("depth", f"{key} nests arrays more than {MAX_DEPTH} deep")
        kind = self.number("I", "a type")
        what = f"elements of {key}"
        if kind in SCALARS:
            size = struct.calcsize("<" + SCALARS[kind])
            self.skip(self.count(what, size, self.file.size) * size, what)
        elif kind == STRING:
            count, end = self.count(what, LEAST_STRING, MAX_STRINGS), self.file.size
            while count:  # a stretch of the file at a time
                passed, taken = _strings_in(self.file.read(self.at, min(self.at + STRETCH, end)), count)
                if not passed or self.at + taken > end:
                    self.refuse("truncated", f"{what} run beyond the end of the file")
                self.at += taken
                count -= passed
        elif kind == ARRAY:
            for _ in range(self.count(what, LEAST_ARRAY, MAX_STRINGS)):
                self.skip_array(key, depth + 1)
        else:
            self.refuse("type", f"{key} is an array of the unknown type {kind}", self.at - 4)

    def tensor(self, name: str) -> Tensor:
        """Read dimensions, type and offset; the shape is row-major."""
        at = self.at
        if (rank := self.number("I", "the number of dimensions")) > MAX_DIMENSIONS:
            self.refuse("shape", f"{quoted(name)} has {rank} dimensions, at most {MAX_DIMENSIONS} are read", at)
        # GGUF writes the fastest dimension first.
        shape = tuple(self.number("Q", "a dimension") for _ in range(rank))[::-1]
        if (kind := self.number("I", "a type")) not in GGUF_TYPES:
            self.refuse("type", f"{quoted(name)} has the unknown type {kind}", self.at - 4)
        dtype, block, _ = GGUF_TYPES[kind]
        size = span(dtype, shape)
        if size is None or (shape[-1] if shape else 1) % block:
            what = f"{quoted(name)}: {dtype} {list(shape)} takes more than can be counted, or rows are not whole blocks"
            self.refuse("shape", what, at)
        offset = self.number("Q", "an offset")
        return Tensor(name=name, dtype=dtype, shape=shape, nbytes=size, offset=offset, file=self.file.name)


def _strings_in(stretch: memoryview, most: int) -> tuple[int, int]:
    """Count the strings that begin in a stretch, and the bytes they take; bare, as a vocabulary has 2^18 of them."""
    length_at, at, last = struct.Struct("<Q").unpack_from, 0, len(stretch) - 8
    for passed in range(most):
        if at > last:
            return passed, at
        at += 8 + length_at(stretch, at)[0]
    return most, at


class LongValues:
    """The long values of one file's header, by key; `places` are the bytes at which their types stand."""

    __slots__ = ("end", "file", "marks", "places", "refuse")

    def __init__(self, file: ReadableFile) -> None:
        reader = _Reader(file)
        self.file, self.refuse = file, reader.refuse
        _, self.places = reader.metadata(reader.counts()[1])
        self.end = reader.at
        self.marks: dict[str, dict[int, int]] = {}  # where some entries of an array lie, once walked

    def text(self, key: str) -> str | None:
        """Read a text; None where the key is not there, or holds something else."""
        at = self.places.get(key)
        if at is None or self._number("I", at) != STRING:
            return None
        if (length := self._number("Q", at + 4)) > MAX_TEXT:
            self.refuse("length", f"{quoted(key)} is {length} bytes long, at most {MAX_TEXT} are read", at + 4)
        try:
            return str(self.file.read(at + 12, at + 12 + length), "utf-8")
        except UnicodeDecodeError:
            self.refuse("text", f"{quoted(key)} is not UTF-8", at + 12)

    def numbers(self, key: str, most: int = MAX_NUMBERS) -> Json:
        """Read an array of at most so many numbers; None where the key is not there, or holds something else."""
        found = self._array(key)
        if found is None or found[0] not in SCALARS or found[1] > most:
            return None
        kind, count, at = found
        form = f"<{count}{SCALARS[kind]}"
        return list(struct.unpack(form, self.file.read(at, at + struct.calcsize(form))))

    def digest(self, key: str) -> str:
        """Digest a value as it lies, with its type and its length."""
        start, found = self.places[key], hashlib.sha256()
        behind = ((at - 8 - len(name.encode()), name) for name, at in self.places.items() if at > start)
        end, _ = min(behind, default=(self.end, ""))
        for at in range(start, end, WINDOW):
            found.update(self.file.read(at, min(at + WINDOW, end)))
            self.file.release(at, min(at + WINDOW, end))
        return f"sha256:{found.hexdigest()}"

    def count(self, key: str) -> int | None:
        """Count the entries of an array of texts; None where the key is not there, or holds something else."""
        found = self._array(key)
        return found[1] if found is not None and found[0] == STRING else None

    def strings(self, key: str, start: int = 0) -> Iterator[bytes]:
        """Yield an array of texts from one entry on, giving back what lies behind; nothing where there is none."""
        found = self._array(key)
        if found is None or found[0] != STRING:
            return
        self.file.require_unchanged()
        known = {0: found[2], **self.marks.get(key, {})}  # begin at the last known entry before this one
        begun = max(entry for entry in known if entry <= start)
        behind = at = known[begun]
        for entry in range(begun, found[1]):
            length = self._number("Q", at)
            if entry % STRIDE == 0:
                self.marks.setdefault(key, {})[entry] = at
            if entry >= start:
                if length > MAX_PIECE:
                    self.refuse("length", f"an entry of {quoted(key)} is {length} bytes long, at most {MAX_PIECE}", at)
                yield bytes(self.file.read(at + 8, at + 8 + length))
            at += 8 + length
            if at - behind > WINDOW:
                self.file.release(behind, at)
                behind = at
        self.file.release(behind, at)
        self.file.require_unchanged()

    def _array(self, key: str) -> tuple[int, int, int] | None:
        """Return the type of an array's entries, their count, and where they begin."""
        at = self.places.get(key)
        if at is None or self._number("I", at) != ARRAY:
            return None
        return self._number("I", at + 4), self._number("Q", at + 8), at + 16

    def _number(self, code: str, at: int) -> int:
        value: int = struct.unpack_from("<" + code, self.file.read(at, at + 8))[0]
        return value


def wholes(names: Iterable[str]) -> list[str]:
    """Return the GGUF checkpoints among files, sorted: of one in parts, the first part that is there."""
    found = dict[tuple[str, str], str]()
    for name in sorted(name for name in names if name.endswith(SUFFIX)):
        part = PART.fullmatch(name)
        found.setdefault((part["stem"], part["count"]) if part else (name, ""), name)
    return list(found.values())


def parse(file: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read a file, or all parts of which it is one, with the first's metadata; refuse with `gguf-…`, `shard-…`."""
    part, reading = PART.fullmatch(Path(file.name).name), read(file)
    many = reading.metadata.get(COUNT, 0)
    if (not isinstance(many, int) or many < 2) and (part is None or int(part["count"]) < 2):
        return reading, {file.name: file}
    if part is None or int(part["count"]) != many:
        by_name = f"part {int(part['number'])} of {int(part['count'])}" if part else "no part"
        says = f"its header says {COUNT} {many}" if COUNT in reading.metadata else f"its header has no {COUNT}"
        _refuse("shard-wrong", f"by its name it is {by_name}, and {says}", file)
    if many > MAX_PARTS:
        _refuse("shard-wrong", f"{COUNT} is {many}, more than the {MAX_PARTS} parts that are read", file)
    names = [f"{part['stem']}-{at:05}-of-{part['count']}{SUFFIX}" for at in range(1, int(part["count"]) + 1)]
    if absent := [name for name in names if not folder.holds(name)]:
        listed = ", ".join(map(quoted, absent[:NAMED])) + (", …" if len(absent) > NAMED else "")
        _refuse("shard-missing", f"{len(absent)} of {many} parts are not beside it: {listed}", file)
    files = [file if name == part[0] else folder.open(name) for name in names]
    readings = [reading if part is file else read(part) for part in files]
    whole = Reading(format=reading.format, tensors=_together(files, readings), metadata=readings[0].metadata)
    return whole, {part.name: part for part in files}


def _together(files: list[ReadableFile], readings: list[Reading]) -> dict[str, Tensor]:
    """Return the tensors of all parts, each of which must be the one that its name says."""
    tensors = dict[str, Tensor]()
    for number, (part, reading) in enumerate(zip(files, readings, strict=True)):
        said = reading.metadata.get(NUMBER), reading.metadata.get(COUNT)
        if said != (number, len(files)):
            what = f"its header says {NUMBER} {said[0]} (from 0) and {COUNT} {said[1]}"
            _refuse("shard-wrong", f"by its name it is part {number + 1} of {len(files)}, and {what}", part)
        if twice := reading.tensors.keys() & tensors.keys():
            _refuse("tensor-twice", f"{quoted(min(twice))} is in this part and in another", part)
        tensors |= reading.tensors
    if (declared := readings[0].metadata.get(TENSORS)) != len(tensors):
        _refuse("shard-wrong", f"{len(files)} parts hold {len(tensors)} tensors, {TENSORS} is {declared}", files[0])
    return tensors


def _refuse(code: str, what: str, file: ReadableFile) -> NoReturn:
    remedy = "fetch all parts of one split again, under the names that they had"
    raise SubjectError(code, what, where=file.name, remedy=remedy)
