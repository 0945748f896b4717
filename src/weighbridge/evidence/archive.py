"""Bundles in one file: writes a tar of one form, reads zip and tar as hostile, a member at a time, within bounds."""

import collections
import io
import os
import re
import stat
import struct
import weakref
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from weighbridge.core import BundleError, dataclass, quoted, sha256
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.disk import CHUNK, PackedFolder, open_regular

MAX_BYTES = 1 << 30
MAX_MEMBERS, MAX_NAMES = 1 << 16, 4 << 20  # and the letters of all their names
# What little packs may inflate to, on the disk; beyond it, a hundred times the archive.
ALWAYS_INFLATED, MAX_RATIO = 64 << 20, 100
MAX_PACKED = 16 << 20  # what the bundles of one may inflate to in memory; what is not packed is as long as it was
MAX_RECORD = 1 << 16  # of a tar: a longer name, or extended records
BLOCK = 512
SUFFIX = re.compile(r"\.(?:zip|tar|tgz|tar\.gz)$")
UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{0,2}(?:/|$)")
END, ENTRY, LOCAL = struct.Struct("<4s4H2IH"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
ENCRYPTED, STORED, DEFLATED = 1, 0, 8
AGAIN = "fetch the archive again, or have `weighbridge evidence pack` write it"
UNPACK = (
    "if you trust it, unpack it and name the folder; `weighbridge evidence pack` writes archives that inflate nothing"
)
CUT = "is cut short, or bytes follow its end"


def open_archive(path: Path, given: str = "") -> PackedFolder:
    """Return the one bundle that an archive holds, or of several the one whose id begins with `given`."""
    chosen = bundles_in(read_archive(path), path, given)
    if len(chosen) > 1:
        what = f"holds {len(chosen)} bundles"
        raise BundleError("several-bundles", what, where=str(path), remedy="choose one: --id ID12")
    return chosen[0]


class _Member(NamedTuple):
    name: str
    at: int
    packed: int
    size: int
    crc: int | None = None  # in a zip
    deflated: bool = False


class _Archive:
    """An archive while it is read piece by piece; what a gzip inflates to is a file without a name."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.file: IO[bytes] = open_regular(path.resolve(), self.where, MAX_BYTES)
        weakref.finalize(self, self.file.close)
        self.size = os.fstat(self.file.fileno()).st_size
        self.limit = min(max(ALWAYS_INFLATED, MAX_RATIO * self.size), MAX_BYTES)
        self.zipped = self.read(0, 2) == b"\x1f\x8b"
        if self.zipped:
            import tempfile  # costs more than the rest of this module, which all that reads bundles loads

            whole = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the archive
            weakref.finalize(self, whole.close)
            for piece in self._inflated(0, self.size, 31):
                whole.write(piece)
                self.bounded(whole.tell(), self.limit)
            self.file, self.size = whole, whole.tell()

    def read(self, at: int, size: int) -> bytes:
        self.file.seek(at)
        return self.file.read(size)

    def raw(self, at: int, size: int) -> Iterator[bytes]:
        yield from (self.read(start, min(CHUNK, at + size - start)) for start in range(at, at + size, CHUNK))

    def pieces(self, one: _Member) -> Iterator[bytes]:
        seen = crc = 0
        for piece in self._inflated(one.at, one.packed, -15) if one.deflated else self.raw(one.at, one.packed):
            seen, crc = seen + len(piece), zlib.crc32(piece, crc)
            if seen > one.size:
                break
            yield piece
        if seen != one.size or one.crc not in (None, crc):
            _refuse(f"is an archive in which {quoted(one.name)} is damaged", self.where, "archive")

    def _inflated(self, at: int, size: int, window: int) -> Iterator[bytes]:
        stream, ended = zlib.decompressobj(window), False
        for packed in self.raw(at, size):
            if ended:
                _refuse(CUT, self.where, "archive")
            more, found = packed, b""
            while not ended and (more or len(found) == CHUNK):
                try:
                    found = stream.decompress(more, CHUNK)
                except zlib.error:
                    _refuse("is damaged: it does not inflate", self.where, "archive")
                yield found
                more, ended = stream.unconsumed_tail, stream.eof
        if not ended or stream.unused_data:
            _refuse(CUT, self.where, "archive")

    def bounded(self, size: int, limit: int) -> None:
        if size > limit:
            raise BundleError("too-large", f"inflates to more than {limit} bytes", where=self.where, remedy=UNPACK)


@dataclass(frozen=True, slots=True)
class Members(Mapping[str, bytes]):
    """The members of an archive below a folder, by name; each is read when it is asked for, and not kept."""

    archive: _Archive
    found: Mapping[str, _Member]
    names: Sequence[str]
    root: str = ""

    def __getitem__(self, name: str) -> bytes:
        one = self.found[f"{self.root}{name}"]
        self.archive.bounded(one.size, MAX_PACKED if one.deflated or self.archive.zipped else manifest.MAX_FILE)
        whole = io.BytesIO()
        whole.writelines(self.archive.pieces(one))
        return whole.getvalue()

    def __contains__(self, name: object) -> bool:
        return f"{self.root}{name}" in self.found

    def __iter__(self) -> Iterator[str]:
        return (name[len(self.root) :] for name in self.names)

    def __len__(self) -> int:
        return len(self.names)


def bundles_in(files: Members, path: Path, given: str = "") -> tuple[PackedFolder, ...]:
    """Return the bundles among an archive's files whose ids begin with `given`; raise `not-a-bundle` for none."""
    roots = [name.removesuffix(statement.FILE) for name in files if re.search(rf"(?:^|/){statement.FILE}$", name)]
    chosen = [root for root in roots if sha256(files[f"{root}{statement.FILE}"]).startswith(given)]
    if not chosen:
        what = f"holds {len(roots)} bundles, none of the id {given}" if roots else f"there is no {statement.FILE} in it"
        raise BundleError("not-a-bundle", what, where=str(path), remedy="name the folder or the archive of a bundle")
    found, names, archive = [], files.names, files.archive  # those of a folder stand together
    for root in chosen:
        first, last = (cut(names, root, key=lambda name: name[: len(root)]) for cut in (bisect_left, bisect_right))
        found.append(Members(archive, files.found, names[first:last], root))
    inside = (files.found[name] for one in found for name in one.names)
    archive.bounded(sum(one.size for one in inside if one.deflated or archive.zipped), MAX_PACKED)
    named = (root.rstrip("/").rpartition("/")[2] or SUFFIX.sub("", path.name) for root in chosen)
    return tuple(map(PackedFolder, named, found))


def read_archive(path: Path) -> Members:
    """Return the files of a zip, a tar, or a gzipped tar by name, without extracting anything."""
    archive = _Archive(path)
    found, seen, letters = dict[str, _Member](), set[str](), 0
    for one in (_zip if archive.read(0, 2) == b"PK" else _tar)(archive):
        kept = one.name.removesuffix("/").removeprefix("./")
        if kept in ("", ".") and one.name.endswith("/"):
            continue  # the folder that was archived
        if UNSAFE.search(kept):
            _refuse(f"a member's name leads elsewhere or cannot be written everywhere: {quoted(kept)}", archive.where)
        letters += len(kept)
        if kept.casefold() in seen or len(seen) == MAX_MEMBERS or letters > MAX_NAMES:
            what = f"two members have one name but for letter case, or there are too many: {quoted(kept)}"
            _refuse(what, archive.where)
        seen.add(kept.casefold())
        found |= {} if one.name.endswith("/") else {kept: one}
    return Members(archive, found, sorted(found))


def _refuse(what: str, where: str, code: str = "archive-member") -> NoReturn:
    raise BundleError(code, what, where=where, remedy=AGAIN)


def _zip(archive: _Archive) -> Iterator[_Member]:
    """Yield the members that the directory at the end of a zip lists, each compared with its own header."""
    where, left = archive.where, archive.limit
    start = max(0, archive.size - END.size - 0xFFFF)
    tail = archive.read(start, archive.size - start)
    if (found := tail.rfind(b"PK\x05\x06")) < 0 or found + END.size > len(tail):
        _refuse("is a zip without an end: it is cut short", where, "archive")
    end, (_, disk, first, here, count, size, at, comment) = start + found, END.unpack_from(tail, found)
    if disk or first or here != count or at + size != end or end + END.size + comment != archive.size:
        _refuse("is a zip whose directory does not fit the file", where, "archive")
    for _ in range(count):
        entry = archive.read(at, ENTRY.size)
        if at + ENTRY.size > end or not entry.startswith(b"PK\x01\x02"):
            _refuse("is a zip whose directory is damaged", where, "archive")
        fields = ENTRY.unpack(entry)
        flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
        raw, header = archive.read(at + ENTRY.size, fields[10]), fields[16]
        at += ENTRY.size + sum(fields[10:13])
        kind = stat.S_IFMT(fields[15] >> 16)
        name = _decoded(raw, where)
        if flags & ENCRYPTED or method not in (STORED, DEFLATED) or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            _refuse(f"a member is encrypted, packed in an unusual way, or no file: {quoted(name)}", where)
        front = archive.read(header, LOCAL.size + len(raw))
        if header + LOCAL.size > end or not front.startswith(b"PK\x03\x04"):
            _refuse("is a zip whose directory leads nowhere", where, "archive")
        local = LOCAL.unpack_from(front)
        begins = header + LOCAL.size + local[9] + local[10]
        if local[3] != method or local[9] != len(raw) or front[LOCAL.size :] != raw or begins + packed > end:
            _refuse(f"is a zip whose directory and header differ on {quoted(name)}", where, "archive")
        archive.bounded(size, left)
        left -= size
        one = _Member(name, begins, packed, size, crc, method == DEFLATED)
        collections.deque(archive.pieces(one), 0)  # reads all of it, so that what is damaged is refused
        yield one


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        _refuse("a member's name is not UTF-8", where)


def _tar(archive: _Archive) -> Iterator[_Member]:
    """Yield the members of a tar, as POSIX, GNU tar and Python write them; the name of a folder ends in a slash."""
    at, longer, where = 0, "", archive.where
    while header := archive.read(at, BLOCK).rstrip(b"\0"):
        header = header.ljust(min(BLOCK, archive.size - at), b"\0")
        total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
        if len(header) < BLOCK or header[148:156] != b"%06o\0 " % total:
            _refuse(f"is no zip and no tar, or its header at byte {at} is damaged", where, "archive")
        if not re.fullmatch(rb"[0-7]{11}[ \0]", header[124:136]):
            _refuse(f"has a member of no usable size at byte {at}", where, "archive")
        start, size, kind = at + BLOCK, int(header[124:135], 8), header[156:157]
        after = start + size + -size % BLOCK
        if after > archive.size or archive.read(start + size, -size % BLOCK).strip(b"\0"):
            _refuse(f"is cut short, or holds bytes of no member, at byte {at}", where, "archive")
        head = header[345:500].rstrip(b"\0") if header[257:263] == b"ustar\0" else b""
        named = header[:100].partition(b"\0")[0]
        name = longer or _decoded(b"/".join(filter(None, (head, named))), where)
        longer, at = "", after
        if kind in (b"0", b"\0", b"5"):
            yield _Member(f"{name.rstrip('/')}/" if kind == b"5" else name, start, size, size)
            continue
        if size > MAX_RECORD:
            _refuse(f"a member's name or records have {size} bytes, at most {MAX_RECORD} are read", where)
        body = archive.read(start, size)
        if kind == b"L":
            longer = _decoded(body.rstrip(b"\0"), where)
        elif kind == b"x":
            records = dict(re.findall(rb"\d+ ([^=\n]+)=([^\n]*)\n", body))
            if records.keys() & {b"size", b"linkpath"} or any(key.startswith(b"GNU.sparse") for key in records):
                _refuse("a member whose size or target is given in extended records", where)
            longer = _decoded(records.get(b"path", b""), where)
        elif kind != b"g" or re.search(rb"(?:^|\n)\d+ (?:path|size|linkpath)=", body):
            _refuse(f"a link, a device or something else that is no file: {quoted(name)}", where)
    if at + 2 * BLOCK > archive.size or any(piece.strip(b"\0") for piece in archive.raw(at, archive.size - at)):
        _refuse(f"does not end after its last member, at byte {at}", where, "archive")


def pack(folder: PackedFolder) -> bytes:
    """Write a bundle as a tar of one form, sorted, of nobody and no time: the same bundle gives the same bytes."""
    parts = []
    for name, data in sorted(folder.files.items()):
        above, _, last = f"{folder.name}/{name}".rpartition("/")
        if len(last) > 100 or len(above) > 155:
            raise BundleError("file-name", "is too long a name for an archive", where=name)
        zero = "0000000"
        fields = [last, "0000644", zero, zero, f"{len(data):011o}", f"{0:011o}", " " * 8, "0", "", "ustar", "00"]
        fields += ["", "", zero, zero, above]
        header = struct.pack("100s8s8s8s12s12s8s1s100s6s2s32s32s8s8s155s12x", *(word.encode() for word in fields))
        header = header[:148] + b"%06o\0 " % sum(header) + header[156:]
        parts += [header, data, b"\0" * (-len(data) % BLOCK)]
    return b"".join((*parts, b"\0" * 2 * BLOCK))
