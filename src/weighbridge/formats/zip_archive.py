"""Find the members of a ZIP archive in place, headers checked against the directory; decompresses nothing."""

import struct
import zlib
from typing import NoReturn

from weighbridge.core import SubjectError, dataclass, quoted
from weighbridge.formats.tensor import Checksum
from weighbridge.storage.readable import Readable

MAGICS = b"PK\x03\x04", b"PK\x05\x06"  # the second: an archive without members
END, END_64, LOCATOR_64 = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
ENTRY, LOCAL = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
MAX_COMMENT, MAX_MEMBERS = 1 << 16, 1 << 20
MAX_DESCRIPTOR = 24  # bytes that may follow a member's content
FULL = 0xFFFFFFFF
ENCRYPTED, UTF_8 = 0x1, 0x800
WRITE_AGAIN = "write the archive again, or fetch it again and compare its size with the source's"
BIND_DIRECTORY = "bind its directory: a .distcp file holds a part of a distributed checkpoint"
STORE = (
    "write it again without compression (torch.save and numpy.savez store their members); "
    "of a TorchScript program, save torch.jit.load(FILE).state_dict() with torch.save"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One stored member: its content lies from byte `start` to `stop` of the file, its local header at `header`."""

    name: str
    header: int
    start: int
    stop: int
    crc: int

    @property
    def nbytes(self) -> int:
        """Return how many bytes the content has."""
        return self.stop - self.start


def members(file: Readable) -> dict[str, Member]:
    """Find every member, by name in the directory's order; refuse with `zip-…`, the byte offset and the reason."""
    count, at, stop = _directory(file)
    directory, found = at, dict[str, Member]()
    for _ in range(count):
        member, at = _entry(file, at, directory, stop)
        if member.name in found:
            refuse("twice", f"the member {quoted(member.name)} is there twice", file, member.header)
        found[member.name] = member
    if at != stop:
        refuse("directory", f"{stop - at} bytes of the directory belong to no entry", file, at)
    placed = sorted((member.header, member.stop, f"the member {quoted(member.name)}") for member in found.values())
    cursor = 0
    for start, behind, what in (*placed, (directory, stop, "the directory")):
        if start < cursor:
            refuse("overlap", f"{what} overlaps the member before it by {cursor - start} bytes", file, start)
        if start - cursor > (MAX_DESCRIPTOR if cursor else 0):
            refuse("hole", f"{start - cursor} bytes before {what} belong to no member", file, cursor)
        cursor = behind
    return found


def checksums(file: Readable, found: dict[str, Member]) -> tuple[Checksum, ...]:
    """Return the checksum that the directory gives for each member."""
    parts = ((one.name, ((one.start, one.stop),), one.crc) for one in found.values())
    return tuple(Checksum(place=place, file=file.name, parts=part, stored=crc) for place, part, crc in parts)


def content(file: Readable, member: Member, most: int) -> memoryview:
    """Look at all of a small member, which must have its checksum; refuse with `zip-size` or `zip-checksum`."""
    if member.nbytes > most:
        what = f"{quoted(member.name)} has {member.nbytes} bytes, more than the {most} that are read"
        refuse("size", what, file, member.header)
    data = file.read(member.start, member.stop)
    if (crc := zlib.crc32(data)) != member.crc:
        what = f"{quoted(member.name)} has the CRC-32 {crc:08x}, the archive says {member.crc:08x}"
        refuse("checksum", what, file, member.start)
    return data


def _directory(file: Readable) -> tuple[int, int, int]:
    """Find the central directory: its count of entries, its first byte and the byte behind it."""
    at = _end(file)
    stop, (_, disk, first, here, count, size, offset, _) = at, END.unpack(file.read(at, at + END.size))
    # PyTorch writes the 64-bit record always, others where the sizes need it.
    locator = at - LOCATOR_64.size
    if bytes(file.read(max(locator, 0), at)).startswith(b"PK\x06\x07"):
        stop = LOCATOR_64.unpack(file.read(locator, at))[2]
        if stop + END_64.size != locator or bytes(file.read(stop, stop + 4)) != b"PK\x06\x06":
            refuse("directory", f"no 64-bit end record at byte {stop}", file, locator)
        disk, first, here, count, size, offset = END_64.unpack(file.read(stop, locator))[4:]
    if disk or first or here != count:
        refuse("directory", "is one volume of a split archive", file, at)
    if offset + size != stop:
        refuse("directory", f"the directory of {size} bytes at byte {offset} does not end at byte {stop}", file, at)
    if count > min(size // ENTRY.size, MAX_MEMBERS):
        refuse("directory", f"{count} members do not fit into a directory of {size} bytes", file, at)
    return count, offset, stop


def _end(file: Readable) -> int:
    """Find the end record, whose comment must reach to the end of the file."""
    start = max(file.size - END.size - MAX_COMMENT, 0)
    tail = bytes(file.read(start, file.size))
    at = len(tail)
    while (at := tail.rfind(MAGICS[1], 0, at)) >= 0:
        behind = at + END.size
        if behind <= len(tail) and behind + END.unpack_from(tail, at)[-1] == len(tail):
            return start + at
    what = "no end record at the end of the archive: it is cut short, or bytes follow it"
    return refuse("truncated", what, file, file.size)


def _entry(file: Readable, at: int, directory: int, stop: int) -> tuple[Member, int]:
    if at + ENTRY.size > stop or bytes(file.read(at, at + 4)) != b"PK\x01\x02":
        refuse("directory", "an entry of the directory is missing", file, at)
    entry = ENTRY.unpack(file.read(at, at + ENTRY.size))
    flags, method, crc, packed, size, name_size, extra_size, comment_size, *_, header = entry[3:5] + entry[7:]
    name_at = at + ENTRY.size
    extra_at = name_at + name_size
    if (behind := extra_at + extra_size + comment_size) > stop:
        refuse("directory", "an entry runs beyond the directory", file, at)
    raw, extra = bytes(file.read(name_at, extra_at)), bytes(file.read(extra_at, extra_at + extra_size))
    size, packed, header = _wide((size, packed, header), extra, file, at)
    try:
        name = raw.decode("utf-8" if flags & UTF_8 else "ascii")
    except UnicodeDecodeError:
        refuse("name", "a member's name is not UTF-8", file, name_at)
    if flags & ENCRYPTED:
        refuse("encrypted", f"a member is encrypted: {quoted(name)}", file, at)
    if method or size != packed:
        refuse("compressed", f"a member is compressed, so it cannot be mapped: {quoted(name)}", file, at)
    local_name_at = header + LOCAL.size
    if local_name_at > directory or bytes(file.read(header, header + 4)) != MAGICS[0]:
        refuse("header", f"no local header of {quoted(name)} at byte {header}", file, header)
    *_, method, _, _, _, _, _, name_size, extra_size = LOCAL.unpack(file.read(header, local_name_at))
    if method or bytes(file.read(local_name_at, local_name_at + name_size)) != raw:
        refuse("header", f"the local header is of another member than {quoted(name)}", file, header)
    start = local_name_at + name_size + extra_size
    if start + size > directory:
        refuse("truncated", f"{quoted(name)} ends {start + size - directory} bytes inside the directory", file, header)
    return Member(name=name, header=header, start=start, stop=start + size, crc=crc), behind


def _wide(narrow: tuple[int, int, int], extra: bytes, file: Readable, at: int) -> list[int]:
    """Read size, packed size and offset from the entry, or from its 64-bit field where the entry has no room."""
    wide = b""
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        wide = extra[4 : 4 + length] if kind == 1 else wide
        extra = extra[4 + length :]
    needed = sum(value == FULL for value in narrow)
    if needed * 8 > len(wide):
        refuse("directory", "64-bit sizes are missing from an entry", file, at)
    values = iter(struct.unpack_from(f"<{needed}Q", wide))
    return [next(values) if value == FULL else value for value in narrow]


def refuse(code: str, what: str, file: Readable, at: int) -> NoReturn:
    """Refuse an archive with `zip-…` and the byte."""
    remedy = STORE if code == "compressed" else BIND_DIRECTORY if file.name.endswith(".distcp") else WRITE_AGAIN
    raise SubjectError(f"zip-{code}", what, where=f"{file.name} at byte {at}", remedy=remedy)
