from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from weighbridge.core.errors import ContractError, SubjectError
from weighbridge.core.local_files import read_regular_file


def refusal(path: Path, limit: int = 100) -> str:
    with pytest.raises(SubjectError) as caught:
        read_regular_file(path, limit, SubjectError)
    return str(caught.value).replace(str(path), "P")


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert read_regular_file(path, 100, SubjectError) == b"x" * 100


def test_one_byte_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 101)
    assert refusal(path) == "P: file-size more than 100 bytes\n  give a smaller file"


def test_an_empty_file_is_empty_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    assert read_regular_file(path, 0, SubjectError) == b""


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    assert read_regular_file(tmp_path / "b", 1, SubjectError) == b"x"


@pytest.mark.parametrize("name", ["absent", "a/b"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").touch()
    assert refusal(tmp_path / name) == "P: file-missing no such file\n  check the path"


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "P: file-kind a directory, not a regular file\n  give a regular file"


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert refusal(path) == "P: file-kind a FIFO, not a regular file\n  give a regular file"


def test_a_device_is_refused() -> None:
    assert refusal(Path("/dev/zero")) == "P: file-kind a character device, not a regular file\n  give a regular file"


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to 107 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("the.sock")
        assert refusal(Path("the.sock")) == "P: file-kind a socket, not a regular file\n  give a regular file"


def test_a_name_that_is_no_path_is_refused() -> None:
    assert refusal(Path("a\0b")) == "a\\x00b: file-unreadable cannot be read: not a path\n  check path and permissions"


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / ("x" * 300))
    assert message == "P: file-unreadable cannot be read: File name too long\n  check path and permissions"


def test_the_error_is_of_the_class_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ContractError):
        read_regular_file(tmp_path, 1, ContractError)
