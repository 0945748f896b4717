"""A checkpoint is told by its content, opened without waiting, and damaged without copying."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import resource
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each
from tests.formats.files import gguf_bytes, info, joined, safetensors, safetensors_bytes
from verifiers.specimens.make_formats import View, archive, torch_zip

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Origin
from weighbridge.views.checkpoint import open_checkpoint

ONE = {"w": ("U8", (8,), bytes(range(8)))}
TWO = {"a": ("U8", (8,), bytes(range(8))), "b": ("U8", (8,), bytes(range(8, 16)))}


def refused(path: Path) -> str:
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return f"{caught.value.code} {caught.value.what}"


def test_the_format_is_recognised_by_content_not_by_suffix(tmp_path: Path) -> None:
    safetensors(tmp_path / "x.gguf", ONE)
    (tmp_path / "y.safetensors").write_bytes(gguf_bytes([], [info("w", (8,), 24, 0)], bytes(8)))
    assert open_checkpoint(tmp_path / "x.gguf").format == "safetensors"
    assert open_checkpoint(tmp_path / "y.safetensors").format == "gguf"


def test_every_tensor_of_a_file_of_weights_is_a_weight_whatever_its_name(tmp_path: Path) -> None:
    names = ("a.bias", "a.weight", "blk.0.attn_q.bias", "lm_head.weight", "optimizer.w", "rope_freqs.weight", "w")
    view = open_checkpoint(safetensors(tmp_path / "x", dict.fromkeys(names, ONE["w"])))
    assert view.weights() == view.names() == names


def test_a_fifo_a_socket_a_device_and_a_directory_are_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refused(tmp_path / "fifo") == "file-kind is a FIFO, not a regular file"
    assert refused(Path("/dev/zero")) == "file-kind is a character device, not a regular file"
    assert refused(tmp_path) == "checkpoint-none no file lies in this folder"
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
        assert refused(Path("sock")) == "file-unreadable cannot be opened: No such device or address"


@pytest.mark.slow
def test_too_many_open_files_are_reported_with_the_limit_to_raise(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", ONE)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for spare in (0, 1):  # none for the file, and none for its mapping
        gc.collect()  # so that nothing older is closed meanwhile
        free = os.open(path, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, limits[1]))
        try:
            with pytest.raises(SubjectError, match="file-unreadable cannot be opened: Too many open files") as caught:
                open_checkpoint(path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert caught.value.remedy == "raise the limit of open files (ulimit -n)"


def test_a_missing_an_empty_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "file-missing there is no such file"
    assert refused(tmp_path / "none" / "deeper") == "file-missing there is no such file"
    (tmp_path / "empty").touch()
    assert refused(tmp_path / "empty") == "empty-file the file has no bytes"
    (tmp_path / "zip").write_bytes(archive({"a": b"", "b": b""}))
    assert refused(tmp_path / "zip") == (
        "checkpoint-format is a ZIP archive of 2 members, not one that torch.save or numpy.savez wrote"
    )
    (tmp_path / "pickle").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    assert refused(tmp_path / "pickle") == (
        "checkpoint-format is a Python pickle, but not of PyTorch;"
        " safetensors, GGUF, PyTorch (torch.save and distributed), APR, ONNX and NumPy files are read"
    )


def test_a_header_whose_length_looks_like_a_pickle_s_beginning_is_safetensors(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", ONE, {"padding": ""})
    missing = 0x280 - struct.unpack("<Q", path.read_bytes()[:8])[0]
    safetensors(path, ONE, {"padding": " " * missing})
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert open_checkpoint(path).names() == ("w",)


def test_pytorch_shards_are_read_by_their_index(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stored = View("Byte", "0", 8, (8,), (1,))
        (tmp_path / f"{name}.bin").write_bytes(torch_zip({name: stored}, {"0": TWO[name][2]}))
    index = {"weight_map": {"a": "a.bin", "b": "b.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    view = open_checkpoint(tmp_path)
    assert (view.format, view.names(), joined(view, "b")) == ("torch-sharded", ("a", "b"), bytes(range(8, 16)))
    assert len(view.checksums) == 8


def test_the_only_pytorch_file_of_a_directory_is_read_unless_there_is_safetensors(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(torch_zip({}, {}))
    assert open_checkpoint(tmp_path).format == "torch"
    safetensors(tmp_path / "model.safetensors", ONE)
    assert open_checkpoint(tmp_path).format == "safetensors"


def test_an_endless_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert refused(tmp_path / "loop") == "file-unreadable cannot be opened: Too many levels of symbolic links"


def test_a_directory_holds_one_file_or_an_index(tmp_path: Path) -> None:
    safetensors(tmp_path / "a.safetensors", ONE)
    assert open_checkpoint(tmp_path).names() == ("w",)
    safetensors(tmp_path / "b.safetensors", ONE)
    assert refused(tmp_path) == "checkpoint-ambiguous 2 .safetensors files and no model.safetensors.index.json"


def test_what_else_a_folder_holds_is_reported_with_what_to_bind(tmp_path: Path) -> None:
    for step in range(5):
        (tmp_path / f"step={step}.ckpt").write_bytes(torch_zip({}, {}))
    with pytest.raises(SubjectError, match="checkpoint-none") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.remedy.startswith("bind one file of it ('step=0.ckpt', 'step=1.ckpt', 'step=2.ckpt',")
    assert "'step=3.ckpt', …), or the folder of one checkpoint, such as a trainer's checkpoint-N" in caught.value.remedy
    for name in ("a.safetensors", "b.safetensors"):
        safetensors(tmp_path / name, ONE)
    with pytest.raises(SubjectError, match="checkpoint-ambiguous") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.remedy.startswith("bind one file of it ('a.safetensors', 'b.safetensors'), or the folder")


def test_bytes_of_no_known_format_are_not_called_a_damaged_safetensors_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x1c\0\0\0ABC3" + bytes(40))
    printed = "checkpoint-format is of no format that is known, by its first bytes "
    assert refused(tmp_path / "x").startswith(printed + r"'\x1c\x00\x00\x00ABC3'; safetensors, GGUF")


def shards(folder: Path, weight_map: Any, **files: dict[str, Any]) -> Path:
    for name, tensors in files.items():
        safetensors(folder / name, tensors)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    return path


def test_reads_shards_by_directory_and_by_index(tmp_path: Path) -> None:
    index = shards(tmp_path, {"a": "one", "b": "two"}, one={"a": TWO["a"]}, two={"b": TWO["b"]})
    for path in (tmp_path, index):
        view = open_checkpoint(path)
        assert (view.format, view.names()) == ("safetensors-sharded", ("a", "b"))
        assert joined(view, "b") == bytes(range(8, 16))
    assert set(open_checkpoint(index).digest()) == {"model.safetensors.index.json", "one", "two"}


@each(
    "weight_map, message",
    [
        ({"a": "one", "b": "three"}, "shard-missing the shard 'three' is not beside the index"),
        ({"a": "one", "b": "one"}, "shard-wrong the shard 'one' does not hold 'b'"),
        ({"a": "one"}, ""),
        ({"a": "two", "b": "one"}, "shard-wrong 'a' is in the shard 'one', the index says 'two'"),
        ({"a": "one", "b": "two", "c": "two"}, "shard-wrong the shard 'two' does not hold 'c'"),
        ({"a": "one", "x": "two"}, "shard-wrong 'b' is in the shard 'two', but not in the index"),
        ({"a": "../one"}, "index '../one' is not a plain file name"),
        ({"a": "/etc/passwd"}, "index '/etc/passwd' is not a plain file name"),
        ({"a": "x\0y"}, "index 'x\\x00y' is not a plain file name"),
        ({"a": ".."}, "index '..' is not a plain file name"),
        ({"a": 1}, "index weight_map is not a mapping of tensor names to shards"),
        ([], "index weight_map is not a mapping of tensor names to shards"),
    ],
)
def test_an_index_must_agree_with_its_shards(tmp_path: Path, weight_map: Any, message: str) -> None:
    index = shards(tmp_path, weight_map, one={"a": TWO["a"]}, two={"b": TWO["b"]})
    if message:
        assert refused(index) == message
    else:
        assert open_checkpoint(index).names() == ("a",)


def test_a_name_in_two_shards_is_refused(tmp_path: Path) -> None:
    index = shards(tmp_path, {"a": "one", "b": "two"}, one={"a": TWO["a"]}, two=TWO)
    assert refused(index) == "tensor-twice 'a' is in 'two' and in another shard"


def test_an_index_that_is_not_strict_json_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.write_text('{"weight_map": {"a": "one", "a": "two"}}')
    assert refused(index) == "index not strict JSON: the key 'a' is given twice"


def test_the_digest_is_the_whole_files(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", ONE)
    assert open_checkpoint(path).digest() == {"x": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_checkpoint_is_live_unless_its_maker_or_an_overlay_says_otherwise(tmp_path: Path) -> None:
    live = open_checkpoint(safetensors(tmp_path / "x", ONE))
    fixture = open_checkpoint(safetensors(tmp_path / "y", ONE, {"weighbridge.origin": "fixture"}))
    assert (live.origin, fixture.origin) == (Origin.LIVE, Origin.FIXTURE)
    assert live.cut(["w"]).origin is live.overlaid("w", 0, b"x").origin is Origin.SYNTHETIC


@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_an_overlay_shows_in_every_way_of_looking_and_not_in_the_file(tmp_path: Path, size: int) -> None:
    path = safetensors(tmp_path / "x", TWO)
    view = open_checkpoint(path)
    damaged = view.overlaid("a", 2, b"XYZ").overlaid("a", 4, b"!")
    assert joined(damaged, "a", size) == b"\0\1XY!\5\6\7"
    assert bytes(damaged.read("a", 3, 5)) == b"Y!"
    assert joined(damaged, "b", size) == joined(view, "b", size)
    assert joined(view, "a", size) == bytes(range(8))
    assert path.read_bytes() == safetensors_bytes(TWO)


def test_an_overlay_outside_the_tensor_is_refused(tmp_path: Path) -> None:
    view = open_checkpoint(safetensors(tmp_path / "x", ONE))
    for offset, data in ((-1, b"x"), (8, b"x"), (7, b"xy")):
        with pytest.raises(ValueError, match="inside the tensor"):
            view.overlaid("w", offset, data)


def test_a_cut_keeps_the_last_elements_and_the_damage_on_them(tmp_path: Path) -> None:
    view = open_checkpoint(safetensors(tmp_path / "x", {"w": ("I16", (2, 300), bytes(range(200)) * 6)}))
    cut = view.overlaid("w", 1199, b"!").cut(["w"], 256)
    assert (cut.tensor("w").shape, cut.tensor("w").nbytes) == ((256,), 512)
    assert joined(cut, "w") == (bytes(range(200)) * 6)[-512:-1] + b"!"
    assert joined(cut.overlaid("w", 0, b"?"), "w")[0:1] == b"?"


def test_a_file_written_to_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", ONE)
    view = open_checkpoint(path)
    os.utime(path, ns=(0, 1))
    with pytest.raises(SubjectError) as caught:
        joined(view, "w")
    assert str(caught.value) == (
        f"{path}: subject-changed the file was written to while it was being read\n"
        "  wait until its writer is done, then measure again"
    )


def test_a_file_rewritten_since_it_was_measured_is_noticed_though_its_time_was_set_back(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", ONE)
    view, before = open_checkpoint(path), path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(SubjectError, match="subject-changed"):
        view.digest()


def test_a_file_cut_short_while_it_is_read_is_noticed_before_it_is_touched(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "x", {"w": ("U8", (1 << 16,), bytes(1 << 16))})
    view = open_checkpoint(path)
    os.truncate(path, 4096)
    with pytest.raises(SubjectError, match="subject-changed"):
        joined(view, "w")
