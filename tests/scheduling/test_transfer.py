"""A view opens elsewhere as the same view, or not at all."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from tests.formats.files import safetensors

from weighbridge.core.errors import SubjectError
from weighbridge.scheduling.engines import ENDS, pack_view, unpack_view
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

NAME = 8 + len('{"')  # where the first tensor's name stands in the file
DATA = bytes(range(256)) * (3 * ENDS // 256)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return safetensors(tmp_path / "m.safetensors", {"a": ("U8", (4,), b"abcd"), "b": ("U8", (len(DATA),), DATA)})


def opened(view: CheckpointView) -> CheckpointView:
    return unpack_view(pickle.loads(pickle.dumps(pack_view(view))))


def content(view: CheckpointView) -> dict[str, bytes]:
    return {name: bytes(view.read(name, 0, view.tensor(name).nbytes)) for name in view.names()}


def test_a_view_is_the_same_where_it_is_opened_again(path: Path) -> None:
    view = open_checkpoint(path)
    again = opened(view)
    assert (again.tensors, again.origin, content(again)) == (view.tensors, view.origin, content(view))


def test_a_cut_and_damaged_view_travels_with_its_damage(path: Path) -> None:
    view = open_checkpoint(path).cut(["b"], 512).overlaid("b", 511, b"!")
    again = opened(view)
    assert (again.tensors, again.origin, content(again)) == (view.tensors, view.origin, content(view))
    assert content(again)["b"].endswith(b"!")


def test_a_carried_view_holds_no_payload(path: Path) -> None:
    assert len(pickle.dumps(pack_view(open_checkpoint(path)))) < 2000


@pytest.mark.parametrize(
    ("at", "keeps_time"), [(NAME, True), (-1, True), (len(DATA) // 2, False)], ids=["header", "end", "time"]
)
def test_another_file_under_the_same_path_is_refused(path: Path, at: int, keeps_time: bool) -> None:
    packed, found = pack_view(open_checkpoint(path)), path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.unlink()
    path.write_bytes(data)
    if keeps_time:
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(SubjectError) as raised:
        unpack_view(packed)
    assert raised.value.code == "subject-elsewhere"
    assert raised.value.where == str(path)
    assert raised.value.what.startswith(f"a worker found another file under this path: {found.st_size} bytes")
