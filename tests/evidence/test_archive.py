"""Bundles in one file: the same bundle gives the same bytes, every form that CI writes is read, nothing else is."""

from __future__ import annotations

import array
import gzip
import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.cases import each
from tests.evidence import drafts

from weighbridge.core import Series
from weighbridge.core.errors import BundleError
from weighbridge.evidence.archive import pack, read_archive
from weighbridge.evidence.bundle import Bundle, files_of, seal, unseal, whole
from weighbridge.evidence.disk import PackedFolder
from weighbridge.evidence.review import Against, State, verify


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    measured = {drafts.PAIRS: drafts.pairs(drafts.pair("a"), drafts.pair("b")), "column.run.default": drafts.series()}
    return seal(drafts.draft(measured), tmp_path / "bundles", drafts.REDACTOR)


def packed(path: Path) -> bytes:
    opened = whole(path)
    return pack(PackedFolder(opened.folder.name, files_of(opened)))


def test_packing_what_was_packed_gives_the_same_bytes(bundle: Bundle, tmp_path: Path) -> None:
    first = packed(bundle.path)
    (tmp_path / "any name.tar").write_bytes(first)
    assert packed(tmp_path / "any name.tar") == first == packed(bundle.path)
    with tarfile.open(tmp_path / "any name.tar") as file:
        names = file.getnames()
    assert names == sorted(f"{bundle.path.name}/{name}" for name in files_of(whole(bundle.path)))


def by_tar(*words: str) -> Callable[[Path, Path], None]:
    def write(folder: Path, archive: Path) -> None:
        subprocess.run(["tar", *words, "-cf", archive, f"./{folder.name}"], cwd=folder.parent, check=True)

    return write


def by_python(form: int) -> Callable[[Path, Path], None]:
    def write(folder: Path, archive: Path) -> None:
        with tarfile.open(archive, "w:gz", format=form) as file:
            file.add(folder, f"{'deep/' * 20}.weighbridge/bundles/{folder.name}")

    return write


def by_zip(flat: bool, method: int) -> Callable[[Path, Path], None]:
    def write(folder: Path, archive: Path) -> None:
        with zipfile.ZipFile(archive, "w", method) as file:
            for path in sorted(folder.rglob("*")):
                file.write(path, path.relative_to(folder if flat else folder.parent))

    return write


def streamed_zip(folder: Path, archive: Path) -> None:
    """Write a zip whose sizes follow the members, as what cannot seek does."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    archive.write_bytes(pipe.getvalue())


@pytest.mark.parametrize(
    "write",
    [
        by_tar(), by_tar("-z"), by_tar("--format=ustar"), by_tar("--format=posix"),
        by_python(tarfile.GNU_FORMAT), by_python(tarfile.PAX_FORMAT),
        by_zip(True, zipfile.ZIP_DEFLATED), by_zip(False, zipfile.ZIP_STORED), streamed_zip,
    ],
)  # fmt: skip
def test_what_continuous_integration_writes_is_read(
    write: Callable[[Path, Path], None], bundle: Bundle, tmp_path: Path
) -> None:
    archive = tmp_path / f"{bundle.path.name}.zip"
    write(bundle.path, archive)
    assert unseal(archive).verdicts == bundle.verdicts
    assert packed(archive) == packed(bundle.path)


def test_of_several_bundles_the_id_chooses(bundle: Bundle, tmp_path: Path) -> None:
    other = seal(drafts.draft(command=("another",)), tmp_path / "bundles", drafts.REDACTOR)
    by_zip(False, zipfile.ZIP_DEFLATED)(tmp_path / "bundles", tmp_path / "all.zip")
    with pytest.raises(BundleError, match="several-bundles holds 2 bundles"):
        unseal(tmp_path / "all.zip")
    assert unseal(tmp_path / "all.zip", other.id[:12]).id == other.id
    with pytest.raises(BundleError, match="not-a-bundle holds 2 bundles, none of the id 000000000000"):
        unseal(tmp_path / "all.zip", "0" * 12)


# --- Hostile archives -------------------------------------------------------------------------------------------------


def tar_of(*members: tuple[str, bytes, bytes]) -> bytes:
    """Write a tar by hand: name, type, and content of each member."""
    data = b""
    for name, kind, body in members:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(body)
        info.linkname = "statement.json" if kind in (b"1", b"2") else ""
        data += info.tobuf(tarfile.USTAR_FORMAT) + body + b"\0" * (-len(body) % 512)
    return data + b"\0" * 1024


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    whole_zip = io.BytesIO()
    with zipfile.ZipFile(whole_zip, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members:
            file.writestr(name, body)
    return whole_zip.getvalue()


def linked(mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("statement.json")
    info.external_attr = (mode | 0o777) << 16
    return info


def resized(size: bytes) -> bytes:
    """Write a tar whose only member has another size in its header, with the checksum that fits."""
    header = bytearray(tarfile.TarInfo("statement.json").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + b"\0" * 1024


def renamed(old: bytes, new: bytes) -> bytes:
    data = zip_of((old.decode(), b"x"))
    at = data.rfind(old)
    return data[:at] + new + data[at + len(old) :]


FILE, LINK, HARD, CHAR, FIFO, LONG, PAX, GLOBAL, SPARSE = b"0", b"2", b"1", b"3", b"6", b"L", b"x", b"g", b"S"
X = "statement.json"
HOSTILE: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "absolute": (tar_of(("/etc/" + X, FILE, b"{}")), "archive-member"),
    "parent": (tar_of(("a/../../" + X, FILE, b"{}")), "archive-member"),
    "dot inside": (tar_of(("a/./" + X, FILE, b"{}")), "archive-member"),
    "empty part": (tar_of(("a//" + X, FILE, b"{}")), "archive-member"),
    "backslash": (tar_of(("a\\" + X, FILE, b"{}")), "archive-member"),
    "newline": (tar_of(("a\n" + X, FILE, b"{}")), "archive-member"),
    "escape code": (tar_of(("\x1b[2J" + X, FILE, b"{}")), "archive-member"),
    "symbolic link": (tar_of((X, LINK, b"")), "archive-member"),
    "hard link": (tar_of((X, HARD, b"")), "archive-member"),
    "device": (tar_of((X, CHAR, b"")), "archive-member"),
    "fifo": (tar_of((X, FIFO, b"")), "archive-member"),
    "sparse": (tar_of((X, SPARSE, b"")), "archive-member"),
    "twice": (tar_of((X, FILE, b"{}"), (X, FILE, b"{}")), "archive-member"),
    "letter case": (tar_of((X, FILE, b"{}"), (X.upper(), FILE, b"{}")), "archive-member"),
    "long name that leads out": (tar_of(("l", LONG, b"../" + X.encode() + b"\0"), ("a", FILE, b"")), "archive-member"),
    "extended name that leads out": (tar_of(("l", PAX, b"25 path=../statement.json\n"), ("a", FILE, b"")),
                                     "archive-member"),
    "extended size": (tar_of(("l", PAX, b"13 size=9999\n"), (X, FILE, b"{}")), "archive-member"),
    "global name": (tar_of(("l", GLOBAL, b"13 path=a/b/\n"), (X, FILE, b"{}")), "archive-member"),
    "negative size": (resized(b"-0000000001\0"), "archive"),
    "size of 8 GiB": (resized(b"\x80" + b"\0" * 6 + b"\2\0\0\0\0"), "archive"),
    "longer than it is": (resized(b"00000100000\0"), "archive"),
    "cut": (tar_of((X, FILE, b"{}"))[:700], "archive"),
    "more behind": (tar_of((X, FILE, b"{}")) + b"x", "archive"),
    "no end": (tar_of((X, FILE, b"{}"))[:1024], "archive"),
    "junk": (os.urandom(3_000), "archive"),
    "empty": (b"", "archive"),
    "no bundle": (tar_of(("a", FILE, b"{}")), "not-a-bundle"),
    "gzip in gzip": (gzip.compress(gzip.compress(tar_of((X, FILE, b"{}")))), "archive"),
    "gzip bomb": (lambda: gzip.compress(b"\0" * (65 << 20), 1), "too-large"),
    "cut gzip": (gzip.compress(tar_of((X, FILE, b"{}")))[:-9], "archive"),
    "two gzips": (gzip.compress(tar_of((X, FILE, b"{}"))) * 2, "archive"),
    "zip: parent": (zip_of(("../" + X, b"{}")), "archive-member"),
    "zip: absolute": (zip_of(("/" + X, b"{}")), "archive-member"),
    "zip: symbolic link": (zip_of((linked(stat.S_IFLNK), b"/etc/passwd")), "archive-member"),
    "zip: device": (zip_of((linked(stat.S_IFCHR), b"")), "archive-member"),
    "zip: letter case": (zip_of((X, b"{}"), (X.upper(), b"{}")), "archive-member"),
    "zip: other name inside": (renamed(b"statement.json", b"Statement.json"), "archive"),
    "zip: bomb": (lambda: zip_of(*((f"{name}.json", b"\0" * (33 << 20)) for name in ("a", "statement"))), "too-large"),
    "zip: cut": (zip_of((X, b"{}"))[:-3], "archive"),
    "zip: more behind": (zip_of((X, b"{}")) + b"x", "archive"),
    "zip: more before": (b"PK" + zip_of((X, b"{}")), "archive"),
    "zip: directory of 65535": (zip_of((X, b"{}"))[:-14] + struct.pack("<2H", 65535, 65535)
                                + zip_of((X, b"{}"))[-10:], "archive"),
}  # fmt: skip


def hostile(name: str) -> tuple[bytes, str]:
    """Return a hostile archive and the code of its refusal; a bomb is made when it is asked for."""
    data, code = HOSTILE[name]
    return data if isinstance(data, bytes) else data(), code


@each("name", HOSTILE)
def test_a_hostile_archive_is_refused_whole(name: str, tmp_path: Path) -> None:
    data, code = hostile(name)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(data)
    with pytest.raises(BundleError) as caught:
        unseal(tmp_path / "in" / "a.tar")
    assert caught.value.code == code
    assert all(char.isprintable() or char == "\n" for char in str(caught.value))
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.tar"]


def many() -> bytes:
    """Return a zip of many members with long names in wide letters."""
    whole_zip = io.BytesIO()
    with zipfile.ZipFile(whole_zip, "w") as file:
        for number in range(1 << 14):
            file.writestr(f"{'ж' * 255}{number:05}", b"")
    return whole_zip.getvalue()


def of_zeros(members: int, size: int, form: str) -> bytes:
    body = b"\0" * size
    if form == "zip":
        return zip_of((X, b"{}"), *((f"{at}.npy", body) for at in range(members)))
    return gzip.compress(tar_of((X, FILE, b"{}"), *((f"{at}.npy", FILE, body) for at in range(members))), 1)


BOMBS: dict[str, Callable[[], bytes]] = {
    "a zip of 63 MiB in one member": lambda: zip_of((X, b"\0" * (63 << 20))),
    "a zip of 60 MiB in 60 members": lambda: of_zeros(60, 1 << 20, "zip"),
    "a gzipped tar of 60 MiB in 60 members": lambda: of_zeros(60, 1 << 20, "gzip"),
    "a gzip of a hundred times what it is": lambda: gzip.compress(os.urandom(1 << 20) + b"\0" * (99 << 20), 1),
    "a name of 60 MiB in a tar": lambda: tar_of(("l", LONG, b"x" * (60 << 20)), (X, FILE, b"{}")),
    "records of 60 MiB in a gzipped tar": lambda: gzip.compress(tar_of(("l", PAX, b" " * (60 << 20)), (X, FILE, b""))),
    "bundles in bundles": lambda: zip_of(*((f"{'a/' * at}{X}", b"{}") for at in range(1000))),
    "names without end": many,
}


@pytest.mark.exhaustive
@each("name", BOMBS)
def test_an_archive_does_not_decide_how_much_memory_is_used(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(BOMBS[name]())
    tracemalloc.start()
    try:
        with pytest.raises(BundleError):
            unseal(tmp_path / "a.zip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.slow
@pytest.mark.parametrize("form", ["zip", "gzip", "tar"])
def test_a_bundle_as_large_as_is_inflated_is_read_in_bounded_memory(form: str, tmp_path: Path) -> None:
    columns = (Series(array.array("q", range(at, at + 500_000)), array.array("d", [at] * 500_000)) for at in (1, 2))
    measured = {f"column.run{one.step[0]}.default": replace(drafts.series(), value=one) for one in columns}
    large = seal(drafts.draft(measured), tmp_path / "bundles", drafts.REDACTOR)
    write = {"zip": by_zip(False, zipfile.ZIP_DEFLATED), "gzip": by_tar("-z"), "tar": by_tar()}[form]
    write(large.path, tmp_path / "a.zip")
    tracemalloc.start()
    try:
        assert verify(tmp_path / "a.zip", Against(now=datetime.now(UTC))).integrity.state is State.HOLDS
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 15 << 20 < peak < 64 << 20


@pytest.mark.slow
def test_what_is_packed_inflates_to_16_mib_at_most_and_unpacked_it_is_read(tmp_path: Path) -> None:
    column = Series(array.array("q", range(1_100_000)), array.array("d", range(1_100_000)))
    measured = {"column.run.default": replace(drafts.series(), value=column)}
    large = seal(drafts.draft(measured), tmp_path / "bundles", drafts.REDACTOR)
    by_zip(False, zipfile.ZIP_DEFLATED)(large.path, tmp_path / "a.zip")
    with pytest.raises(BundleError, match="too-large inflates to more than 16777216 bytes\n  if you trust it"):
        unseal(tmp_path / "a.zip")
    (tmp_path / "a.tar").write_bytes(packed(large.path))
    assert unseal(tmp_path / "a.tar").verdicts == unseal(large.path).verdicts


def test_two_members_of_one_name_in_a_zip_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        (tmp_path / "a.zip").write_bytes(zip_of((X, b"{}"), (X, b"[]")))
    with pytest.raises(BundleError, match="archive-member two members have one name"):
        read_archive(tmp_path / "a.zip")


def test_an_archive_that_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tar")
    with pytest.raises(BundleError, match="not-a-bundle"):
        unseal(tmp_path / "a.tar")


def test_a_bundle_may_lie_anywhere_in_an_archive_and_be_a_link_to_it(bundle: Bundle, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "ci"), "zip", tmp_path)
    (tmp_path / "latest").symlink_to(tmp_path / "ci.zip")
    assert unseal(tmp_path / "latest").id == bundle.id
