"""A file of another tool is called by its name, never a damaged safetensors file; archives say what to unpack.

The first bytes are those that msgpack, coremltools and ctranslate2 wrote, and else those that each format documents.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.cases import each
from tests.formats.files import framed

from weighbridge.core.errors import SubjectError
from weighbridge.views.checkpoint import open_checkpoint

MESSAGEPACK = "MessagePack, as Flax writes it"
HEADS = {
    bytes.fromhex("81a6706172616d7381a177c73e01939203"): MESSAGEPACK,
    bytes.fromhex("de0014a76c617965725f3081a177c73e01"): MESSAGEPACK,
    bytes.fromhex("080412180a0a0a0178"): "a Core ML model",
    bytes.fromhex("080112180a0a0a0178"): "a TensorFlow SavedModel, or a Core ML model of version 1",
    b'{\n  "fileFormatVersion": "1.0.0",': "the manifest of a Core ML package",
    bytes.fromhex("06000000 1000 5472616e73666f726d65725370656300 07000000"): "a CTranslate2 model",
    b"\x1c\0\0\0TFL3": "a TensorFlow Lite model",
    b"\x80\0\0\0ET12": "an ExecuTorch program",
    b"ftrt": "a TensorRT engine",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file, as Keras (.h5) and h5py write it",
    struct.pack("<I", 0x67676A74): "a GGML file, older than GGUF",
    b"version https://git-lfs.github.com/spec/v1\n": "a Git LFS pointer",
    b"\n<!doctype html>": "a web page",
    b"\x1f\x8b\x08\0": "a compressed file, as .nemo and .tar.gz are",
    b"PAR1": "a table of data (Parquet or Arrow)",
    b"\x7fELF": "a program; a llamafile is one, with its GGUF file packed inside",
}


def refusal(path: Path) -> SubjectError:
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return caught.value


@each("head", HEADS)
def test_a_format_that_is_not_read_is_named(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(head.ljust(64, b"\1") + bytes(600))
    if not head.startswith(b"{"):  # which is read as an index
        error = refusal(tmp_path / "model.safetensors")
        assert (error.code, error.what.partition("; safetensors, GGUF")[0]) == (
            "checkpoint-format",
            f"is {HEADS[head]}",
        )
    (tmp_path / "model.safetensors").rename(tmp_path / "model")
    error = refusal(tmp_path)
    assert error.code == "checkpoint-none"
    assert error.what.endswith(f"; 'model' is {HEADS[head]}")
    assert "bind one file of it" not in error.remedy
    (tmp_path / "step=1.ckpt").write_bytes(b"{}")
    assert "; or bind one file of it ('step=1.ckpt'), or the folder" in refusal(tmp_path).remedy


def test_a_tensorflow_checkpoint_is_recognised_by_the_end_of_its_index_and_the_name_of_its_data(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt.index").write_bytes(b"\0\0\0\0" * 20 + bytes.fromhex("57fb808b247547db"))
    assert refusal(tmp_path / "model.ckpt.index").what.startswith("is the index of a TensorFlow checkpoint; ")
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(b"\x3f\x80" * 100)
    printed = "is a part of a TensorFlow checkpoint, by its name; "
    assert refusal(tmp_path / "model.ckpt.data-00000-of-00001").what.startswith(printed)


def test_an_archive_says_which_of_its_files_to_bind(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.nemo", "w") as archive:
        for name, content in (("./model_config.yaml", b"a: 1"), ("./model_weights.ckpt", bytes(700))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    error = refusal(tmp_path / "a.nemo")
    assert error.what.startswith("is a tar archive, as NeMo (.nemo) writes it; ")
    assert error.remedy == "unpack it, and bind './model_weights.ckpt'"
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        packed.writestr("README.md", "")
        packed.writestr("model.gguf", b"GGUF")
    assert refusal(tmp_path / "b.zip").remedy == "unpack it, and bind 'model.gguf'"


def test_a_keras_file_is_recognised_by_its_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as packed:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            packed.writestr(name, "{}")
    assert refusal(tmp_path / "a.keras").what.startswith("is a Keras model (.keras), not one that")


def test_a_safetensors_file_whose_length_looks_like_another_format_is_read(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "x").write_bytes(framed(header.ljust(0xA181), b"\0"))  # MessagePack begins 81 a1
    assert open_checkpoint(tmp_path / "x").names() == ("w",)
