"""Tell a checkpoint file's format from its first bytes, never from its suffix, and have it read by its reader."""

from __future__ import annotations

import struct
from collections.abc import Callable

from weighbridge.errors import SubjectError
from weighbridge.formats import apr_file, gguf_file, npy_file, onnx_file, safetensors_file, torch_legacy, zipped
from weighbridge.formats.contents import Reading
from weighbridge.storage import zip_archive
from weighbridge.storage.readable import ReadableFile

HEAD = 32  # bytes
READ = "safetensors, GGUF, PyTorch (torch.save and distributed), APR, ONNX and NumPy files"


def read(file: ReadableFile) -> Reading:
    """Read one file of any format that is read here.

    Raises:
        SubjectError: foreign, malformed or hostile, with a stable code, offset and reason.
    """
    reader = reader_of(bytes(file.read(0, HEAD)))
    if reader is None:
        _refuse_foreign(file)
        reader = _safetensors
    return reader(file)


def reader_of(head: bytes) -> Callable[[ReadableFile], Reading] | None:
    """Choose the reader that these first bytes call for, or none."""
    if head.startswith(gguf_file.MAGIC):
        return _gguf
    if head[8:9] == b"{" and struct.unpack_from("<Q", head)[0] <= safetensors_file.MAX_HEADER:
        return _safetensors
    if head.startswith(zip_archive.MAGICS):
        return zipped.read
    if head.startswith(apr_file.MAGIC):
        return apr_file.read
    if head.startswith(npy_file.MAGIC):
        return npy_file.read
    if torch_legacy.begins(head):
        return torch_legacy.read
    if onnx_file.begins(head):
        return onnx
    return None


def looks_like_json(file: ReadableFile) -> bool:
    """Tell an index from a safetensors file, which begins with a length whose last byte is zero."""
    head = bytes(file.read(0, 8))
    return head.lstrip().startswith(b"{") and 0 not in head


def _safetensors(file: ReadableFile) -> Reading:
    tensors, metadata = safetensors_file.parse(file)
    return Reading(format="safetensors", tensors=tensors, metadata=dict(metadata))


def _gguf(file: ReadableFile) -> Reading:
    tensors, metadata = gguf_file.parse(file)
    return Reading(format="gguf", tensors=tensors, metadata=metadata)


def onnx(file: ReadableFile) -> Reading:
    """Read an ONNX model that has all its data in itself."""
    return onnx_file.parse(file, None)[0]


def _refuse_foreign(file: ReadableFile) -> None:
    """Name the formats that people bind by mistake, before a header's length makes no sense."""
    head = bytes(file.read(0, HEAD))
    foreign = next((name for magic, name in FOREIGN.items() if head.startswith(magic)), "")
    if foreign:
        raise SubjectError(
            "checkpoint-format",
            f"is {foreign}; {READ} are read",
            where=file.name,
            remedy="save the weights in one of these formats; safetensors is the safest",
        )


FOREIGN = {
    b"\x80\x02": "a Python pickle, but not of PyTorch",
    b"\x80\x03": "a Python pickle, but not of PyTorch",
    b"\x80\x04": "a Python pickle, but not of PyTorch",
    b"\x80\x05": "a Python pickle, but not of PyTorch",
    b"\x89HDF": "an HDF5 file",
    b"APRN": "an APR file of version 1",
    b"APR2": "an APR file in a layout that no writer uses",
    b"vers": "a Git LFS pointer",
    b"<!DO": "a web page",
    b"<!do": "a web page",
    b"<htm": "a web page",
    b"ggml": "a GGML file, older than GGUF",
}
