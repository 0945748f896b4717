from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from weighbridge.core.errors import BundleError
from weighbridge.evidence.disk import digest_regular, link_new, make_folders, read_regular, write_folder, write_new


def test_a_file_that_exists_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_new(path, b"old")
    for write in (write_new, link_new):
        with pytest.raises(FileExistsError):
            write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "link", b"x")
    assert not (tmp_path / "target").exists()


def test_short_writes_are_written_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def short(handle: int, data: Any) -> int:
        return real(handle, bytes(data)[:3])

    monkeypatch.setattr(os, "write", short)
    write_new(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_folder_of_files_appears_whole(tmp_path: Path) -> None:
    files = {"a.json": b"1", "logs/b.txt": b"2"}
    target = write_folder(tmp_path / "deep" / "store", "bundle", files)
    assert {
        path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()
    } == files
    assert [path.name for path in target.parent.iterdir()] == ["bundle"]


def test_what_is_written_lies_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, done = tmp_path / "store", list[tuple[str, str]]()
    real = os.rename

    def synced(handle: int) -> None:
        done.append(("sync", Path(f"/proc/self/fd/{handle}").readlink().name))

    def renamed(old: Path, new: Path) -> None:
        done.append(("rename", new.name))
        real(old, new)

    into.mkdir()
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    write_folder(into, "bundle", {"a.json": b"1", "logs/b.txt": b"2"})
    at = done.index(("rename", "bundle"))
    before = {name for _, name in done[:at]}
    assert before >= {"a.json", "b.txt", "logs"}
    assert any(name.startswith(".stage-") for name in before)
    assert done[at + 1 :] == [("sync", "store")]


def test_what_a_killed_writer_left_is_swept_by_the_next_one_and_a_living_one_s_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".stage-dead").mkdir()
    (tmp_path / ".stage-dead" / "a.json").write_bytes(b"1")
    real, seen = os.rename, list[list[str]]()

    def renamed(old: Path, new: Path) -> None:
        if new.name == "outer":
            write_folder(tmp_path, "inner", {"a.json": b"1"})
        seen.append(sorted(path.name[:7] for path in tmp_path.iterdir()))
        real(old, new)

    monkeypatch.setattr(os, "rename", renamed)
    write_folder(tmp_path, "outer", {"a.json": b"1"})
    assert seen == [[".stage-", ".stage-"], [".stage-", "inner"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner", "outer"]


def test_a_file_whose_time_was_set_back_after_a_rewrite_is_not_digested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rewritten"
    path.write_bytes(b"12345")
    real = hashlib.file_digest

    def rewriting(*arguments: Any) -> Any:
        before, digest = path.stat(), real(*arguments)
        path.write_bytes(b"54321")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return digest

    assert digest_regular(path) == hashlib.sha256(b"12345").hexdigest()
    monkeypatch.setattr(hashlib, "file_digest", rewriting)
    with pytest.raises(BundleError, match="changed-while-read"):
        digest_regular(path)


def test_folders_are_made_once(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b")
    make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"12345")
    real, grown = os.read, [False]

    def growing(handle: int, size: int) -> bytes:
        if not grown[0]:
            grown[0] = True
            path.write_bytes(b"1234567890")
        return real(handle, size)

    monkeypatch.setattr(os, "read", growing)
    with pytest.raises(BundleError, match="growing: changed-while-read changed while it was read"):
        read_regular(path, "growing", 100)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a file that hides its size")
def test_a_file_that_hides_its_size_is_refused() -> None:
    with pytest.raises(BundleError, match="changed-while-read"):
        read_regular(Path("/proc/self/status"), "status", 100)


def test_a_file_at_its_bound_is_read_and_one_beyond_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_regular(tmp_path / "a", "a", 5) == b"12345"
    with pytest.raises(BundleError, match="a: too-large has 5 bytes, at most 4 are read"):
        read_regular(tmp_path / "a", "a", 4)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "a")
    with pytest.raises(BundleError, match="a: not-regular is not a regular file"):
        read_regular(tmp_path / "a", "a", 100)


def test_a_missing_file_and_a_link_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("missing")
    with pytest.raises(BundleError, match="link: not-regular is a symbolic link"):
        read_regular(tmp_path / "link", "link", 100)
    with pytest.raises(BundleError, match="missing: missing-file is missing"):
        read_regular(tmp_path / "missing", "missing", 100)
