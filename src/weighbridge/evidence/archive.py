"""Bundles in one file: writes a tar of one form, reads zip and tar as hostile; nothing is extracted, all is bounded."""

from __future__ import annotations

import re
import stat
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from weighbridge.core import BundleError, quoted, sha256
from weighbridge.evidence import statement
from weighbridge.evidence.disk import read_regular

MAX_BYTES = 1 << 30
MAX_MEMBERS = 1 << 16
# What little packs may inflate to; beyond it, a hundred times the archive.
ALWAYS_INFLATED, MAX_RATIO = 64 << 20, 100
BLOCK = 512
SUFFIX = re.compile(r"\.(?:zip|tar|tgz|tar\.gz)$")
UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{0,2}(?:/|$)")
END, ENTRY, LOCAL = struct.Struct("<4s4H2IH"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
ENCRYPTED, STORED, DEFLATED = 1, 0, 8
AGAIN = "fetch the archive again, or have `weighbridge evidence pack` write it"


@dataclass(frozen=True, slots=True)
class PackedFolder:
    """The folder of a bundle inside an archive, or of one to be packed: its own name, and its files by name."""

    name: str
    files: Mapping[str, bytes]

    def read(self, name: str, limit: int) -> bytes:
        """Return a file, or raise `missing-file` or `too-large`."""
        if name not in self.files:
            raise BundleError("missing-file", "is missing", where=name)
        if len(self.files[name]) > limit:
            raise BundleError("too-large", f"has more than {limit} bytes", where=name)
        return self.files[name]

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yield every name, and that it is a file's: what is none was refused with the archive."""
        yield from ((name, True) for name in sorted(self.files))


def open_archive(path: Path, given: str = "") -> PackedFolder:
    """Return the one bundle that an archive holds, or of several the one whose id begins with `given`."""
    chosen = bundles_in(read_archive(path), path, given)
    if len(chosen) > 1:
        what = f"holds {len(chosen)} bundles"
        raise BundleError("several-bundles", what, where=str(path), remedy="choose one: --id ID12")
    return chosen[0]


def bundles_in(files: Mapping[str, bytes], path: Path, given: str = "") -> tuple[PackedFolder, ...]:
    """Return the bundles among an archive's files whose ids begin with `given`; raise `not-a-bundle` for none."""
    roots = [name.removesuffix(statement.FILE) for name in files if re.search(rf"(?:^|/){statement.FILE}$", name)]
    chosen = [root for root in roots if sha256(files[f"{root}{statement.FILE}"]).startswith(given)]
    if not chosen:
        what = f"holds {len(roots)} bundles, none of the id {given}" if roots else f"there is no {statement.FILE} in it"
        raise BundleError("not-a-bundle", what, where=str(path), remedy="name the folder or the archive of a bundle")
    names, found = sorted(files), []  # those of a folder stand together
    for root in chosen:
        first, last = (cut(names, root, key=lambda name: name[: len(root)]) for cut in (bisect_left, bisect_right))
        inside = {name.removeprefix(root): files[name] for name in names[first:last]}
        found.append(PackedFolder(root.rstrip("/").rpartition("/")[2] or SUFFIX.sub("", path.name), inside))
    return tuple(found)


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the files of a zip, a tar, or a gzipped tar by name, without extracting anything."""
    data, shown = read_regular(path.resolve(), str(path), MAX_BYTES), str(path)
    limit = min(max(ALWAYS_INFLATED, MAX_RATIO * len(data)), MAX_BYTES)
    if data.startswith(b"\x1f\x8b"):
        data = _inflated(data, limit, 31, shown)
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    for name, body in _zip(data, limit, shown) if data.startswith(b"PK") else _tar(data, shown):
        kept = name.removesuffix("/").removeprefix("./")
        if kept in ("", ".") and name.endswith("/"):
            continue  # the folder that was archived
        if UNSAFE.search(kept):
            _refuse(f"a member's name leads elsewhere or cannot be written everywhere: {quoted(name)}", shown)
        if kept.casefold() in seen or len(seen) == MAX_MEMBERS:
            _refuse(f"two members have one name but for letter case, or there are too many: {quoted(name)}", shown)
        seen.add(kept.casefold())
        files |= {} if name.endswith("/") else {kept: body}
    return files


def _refuse(what: str, where: str, code: str = "archive-member") -> NoReturn:
    raise BundleError(code, what, where=where, remedy=AGAIN)


def _inflated(data: bytes, limit: int, window: int, where: str) -> bytes:
    """Return what deflated bytes inflate to: all of it, and no more than `limit`."""
    stream = zlib.decompressobj(window)
    try:
        whole = stream.decompress(data, limit + 1)
    except zlib.error:
        _refuse("is damaged: it does not inflate", where, "archive")
    if len(whole) > limit:
        raise BundleError("too-large", f"inflates to more than {limit} bytes", where=where)
    if not stream.eof or stream.unused_data:
        _refuse("is cut short, or bytes follow its end", where, "archive")
    return whole


def _zip(data: bytes, left: int, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the members that the directory at the end of a zip lists, each compared with its own header."""
    end = data.rfind(b"PK\x05\x06")
    if end < 0 or end + END.size > len(data):
        _refuse("is a zip without an end: it is cut short", where, "archive")
    _, disk, first, here, count, size, at, comment = END.unpack_from(data, end)
    if disk or first or here != count or at + size != end or end + END.size + comment != len(data):
        _refuse("is a zip whose directory does not fit the file", where, "archive")
    for _ in range(count):
        if at + ENTRY.size > end or data[at : at + 4] != b"PK\x01\x02":
            _refuse("is a zip whose directory is damaged", where, "archive")
        fields = ENTRY.unpack_from(data, at)
        flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
        raw, header = data[at + ENTRY.size : at + ENTRY.size + fields[10]], fields[16]
        at += ENTRY.size + sum(fields[10:13])
        kind = stat.S_IFMT(fields[15] >> 16)
        name = _decoded(raw, where)
        if flags & ENCRYPTED or method not in (STORED, DEFLATED) or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            _refuse(f"a member is encrypted, packed in an unusual way, or no file: {quoted(name)}", where)
        if header + LOCAL.size > end or data[header : header + 4] != b"PK\x03\x04":
            _refuse("is a zip whose directory leads nowhere", where, "archive")
        local = LOCAL.unpack_from(data, header)
        start = header + LOCAL.size + local[9] + local[10]
        if local[3] != method or data[header + LOCAL.size :][: local[9]] != raw or start + packed > end:
            _refuse(f"is a zip whose directory and header differ on {quoted(name)}", where, "archive")
        if size > left:
            raise BundleError("too-large", f"inflates to more than {left} bytes", where=where)
        body = data[start : start + packed]
        body = body if method == STORED else _inflated(body, size, -15, where)
        if len(body) != size or zlib.crc32(body) != crc:
            _refuse(f"is a zip in which {quoted(name)} is damaged", where, "archive")
        left -= size
        yield name, body


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        _refuse("a member's name is not UTF-8", where)


def _tar(data: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    """Yield the members of a tar, as POSIX, GNU tar and Python write them; the name of a folder ends in a slash."""
    at, longer = 0, ""
    while header := data[at : at + BLOCK].rstrip(b"\0"):
        header = header.ljust(min(BLOCK, len(data) - at), b"\0")
        total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
        if len(header) < BLOCK or header[148:156] != b"%06o\0 " % total:
            _refuse(f"is no zip and no tar, or its header at byte {at} is damaged", where, "archive")
        if not re.fullmatch(rb"[0-7]{11}[ \0]", header[124:136]):
            _refuse(f"has a member of no usable size at byte {at}", where, "archive")
        size, kind = int(header[124:135], 8), header[156:157]
        body, padding = data[at + BLOCK : at + BLOCK + size], -size % BLOCK
        after = at + BLOCK + size + padding
        if after > len(data) or data[after - padding : after].strip(b"\0"):
            _refuse(f"is cut short, or holds bytes of no member, at byte {at}", where, "archive")
        head = header[345:500].rstrip(b"\0") if header[257:263] == b"ustar\0" else b""
        named = header[:100].partition(b"\0")[0]
        name = longer or _decoded(b"/".join(filter(None, (head, named))), where)
        longer, at = "", after
        if kind in (b"0", b"\0", b"5"):
            yield (f"{name.rstrip('/')}/" if kind == b"5" else name), body
        elif kind == b"L":
            longer = _decoded(body.rstrip(b"\0"), where)
        elif kind == b"x":
            records = dict(re.findall(rb"\d+ ([^=\n]+)=([^\n]*)\n", body))
            if records.keys() & {b"size", b"linkpath"} or any(key.startswith(b"GNU.sparse") for key in records):
                _refuse("a member whose size or target is given in extended records", where)
            longer = _decoded(records.get(b"path", b""), where)
        elif kind != b"g" or re.search(rb"(?:^|\n)\d+ (?:path|size|linkpath)=", body):
            _refuse(f"a link, a device or something else that is no file: {quoted(name)}", where)
    if at + 2 * BLOCK > len(data) or data[at:].strip(b"\0"):
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
