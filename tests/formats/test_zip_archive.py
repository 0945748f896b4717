"""ZIP archives are mapped in place: directory and headers must agree, and every byte must belong to something."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from verifiers.specimens.make_formats import archive

from weighbridge.core.errors import SubjectError
from weighbridge.formats.zip_archive import MAX_COMMENT, checksums, content, members
from weighbridge.storage.mapped_file import MappedFile

TWO = archive({"a/data.pkl": b"hello", "a/data/0": bytes(100)})
DIRECTORY = TWO.index(b"PK\x01\x02")
SECOND = TWO.index(b"PK\x03\x04", 4)


def written(path: Path, data: bytes) -> MappedFile:
    path.write_bytes(data)
    return MappedFile(path)


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(SubjectError) as caught:
        members(written(path, data))
    return f"{caught.value.code} {caught.value.what}"


def put(data: bytes, at: int, replacement: bytes) -> bytes:
    return data[:at] + replacement + data[at + len(replacement) :]


@pytest.mark.slow
@settings(max_examples=50)
@given(
    content_of=st.dictionaries(st.text(st.characters(categories=["L", "N"]), min_size=1), st.binary(), max_size=4),
    comment=st.binary(max_size=50),
)
def test_finds_what_zipfile_writes(tmp_path: Path, content_of: dict[str, bytes], comment: bytes) -> None:
    written_by_library = io.BytesIO()
    with zipfile.ZipFile(written_by_library, "w") as library:
        for name, data in content_of.items():
            library.writestr(name, data)
        library.comment = comment
    file = written(tmp_path / "x", written_by_library.getvalue())
    found = members(file)
    assert {name: bytes(content(file, member, 1 << 20)) for name, member in found.items()} == content_of
    assert all(checksum.found(file) == checksum.stored for checksum in checksums(file, found))


def test_64_bit_sizes_are_read(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as library, library.open("a", "w", force_zip64=True) as member:
        member.write(b"hello")
    raw = data.getvalue()
    entry, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    wide = struct.pack("<2H3Q", 1, 24, 5, 5, 0)
    entries = put(put(raw[entry:end], 20, b"\xff" * 8), 30, struct.pack("<H", 28))
    entries = put(entries, 42, b"\xff" * 4)[:47] + wide
    printed = struct.pack("<Q2H2I4Q", 44, 45, 45, 0, 0, 1, 1, len(entries), entry)
    locator = struct.pack("<IQI", 0, entry + len(entries), 1)
    last = struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    whole = raw[:entry] + entries + b"PK\x06\x06" + printed + b"PK\x06\x07" + locator + b"PK\x05\x06" + last
    file = written(tmp_path / "x", whole)
    assert bytes(content(file, members(file)["a"], 10)) == b"hello"
    assert refusal(tmp_path / "x", whole.replace(b"PK\x06\x06", b"PK\x06\x05")).startswith(
        "zip-directory no 64-bit end"
    )
    assert refusal(tmp_path / "x", whole.replace(b"PK\x06\x07", b"PK\x06\x05")).startswith(
        "zip-directory the directory of 4294967295 bytes"
    )
    assert refusal(tmp_path / "x", whole.replace(wide, b"\x02" + wide[1:])).endswith("are missing from an entry")


HOSTILE = {
    "cut by a byte": (TWO[:-1], "zip-truncated no end record at the end of the archive"),
    "a byte behind": (TWO + b"!", "zip-truncated no end record at the end of the archive"),
    "bytes before": (
        b"PK\x03\x04" + TWO,
        "zip-directory the directory of 110 bytes at byte 228 does not end at byte 342",
    ),
    "too many members": (
        put(put(TWO, len(TWO) - 14, b"\xff\0"), len(TWO) - 12, b"\xff\0"),
        "zip-directory 255 members do not fit into a directory of 110 bytes",
    ),
    "another volume": (put(TWO, len(TWO) - 18, b"\1"), "zip-directory is one volume of a split archive"),
    "a directory of 4 GiB": (
        put(TWO, len(TWO) - 10, b"\xfe\xff\xff\xff"),
        "zip-directory the directory of 4294967294 bytes at byte 228 does not end at byte 338",
    ),
    "no entry": (put(TWO, DIRECTORY, b"XX"), "zip-directory an entry of the directory is missing"),
    "an entry too long": (put(TWO, DIRECTORY + 28, b"\xff\xff"), "zip-directory an entry runs beyond the directory"),
    "fewer members than entries": (
        put(put(TWO, len(TWO) - 14, b"\1"), len(TWO) - 12, b"\1"),
        "zip-directory 54 bytes of the directory belong to no entry",
    ),
    "twice": (archive({"a": b"1", "b": b"2"}).replace(b"b", b"a"), "zip-twice the member 'a' is there twice"),
    "compressed": (
        archive({"a": b"1"}, method=8),
        "zip-compressed a member is compressed, so it cannot be mapped: 'a'",
    ),
    "encrypted": (archive({"a": b"1"}, flags=1), "zip-encrypted a member is encrypted: 'a'"),
    "two sizes": (
        put(TWO, DIRECTORY + 24, b"\6"),
        "zip-compressed a member is compressed, so it cannot be mapped: 'a/data.pkl'",
    ),
    "no UTF-8": (archive({"a": b"1"}, flags=0).replace(b"a", b"\xff"), "zip-name a member's name is not UTF-8"),
    "no local header": (put(TWO, SECOND, b"XX"), f"zip-header no local header of 'a/data/0' at byte {SECOND}"),
    "a header beyond the file": (
        put(TWO, DIRECTORY + 42, b"\0\0\0\x70"),
        "zip-header no local header of 'a/data.pkl' at byte 1879048192",
    ),
    "another local name": (
        put(TWO, 30, b"b"),
        "zip-header the local header is of another member than 'a/data.pkl'",
    ),
    "a member beyond the directory": (
        put(TWO, DIRECTORY + 20, b"\xff\xff\0\0\xff\xff\0\0"),
        "zip-truncated 'a/data.pkl' ends 65371 bytes inside the directory",
    ),
    "overlapping": (
        put(TWO, DIRECTORY + 20, b"\x40\0\0\0\x40\0\0\0"),
        "zip-overlap the member 'a/data/0' overlaps the member before it by 59 bytes",
    ),
    "a hole": (
        put(TWO, DIRECTORY + 56 + 20, b"\1\0\0\0\1\0\0\0"),
        "zip-hole 99 bytes before the directory belong to no member",
    ),
}


@each("data, message", HOSTILE.values(), ids=HOSTILE)
def test_a_directory_that_disagrees_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "x", data).startswith(message)


def test_an_end_record_hidden_in_a_comment_is_not_the_end(tmp_path: Path) -> None:
    comment = b"PK\x05\x06" + bytes(60)
    data = TWO[:-2] + struct.pack("<H", len(comment)) + comment
    assert set(members(written(tmp_path / "x", data))) == {"a/data.pkl", "a/data/0"}
    assert len(comment) < MAX_COMMENT


def test_a_small_member_is_read_only_whole(tmp_path: Path) -> None:
    file = written(tmp_path / "x", TWO.replace(b"hello", b"hellp"))
    member = members(file)["a/data.pkl"]
    with pytest.raises(SubjectError, match="zip-checksum 'a/data.pkl' has the CRC-32"):
        content(file, member, 5)
    with pytest.raises(SubjectError, match="zip-size 'a/data.pkl' has 5 bytes, more than the 4 that are read"):
        content(file, member, 4)
