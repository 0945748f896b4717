"""Read a checkpoint file in the format that its first bytes tell, never its suffix."""

from __future__ import annotations

import struct
from collections.abc import Callable

from weighbridge.errors import SubjectError
from weighbridge.formats import apr_file, gguf_file, npy_file, onnx_file, safetensors_file, torch_file, torch_legacy
from weighbridge.formats.contents import Reading
from weighbridge.storage import zip_archive
from weighbridge.storage.readable import ReadableFile

HEAD = 32  # bytes
READ = "safetensors, GGUF, PyTorch (torch.save and distributed), APR, ONNX and NumPy files"
SAVE = "save the weights in one of these formats; safetensors is the safest"
BIND = "bind a file that one of them wrote, or save the weights as safetensors"


def read(file: ReadableFile) -> Reading:
    """Read one file of any format that is read here.

    Raises:
        SubjectError: foreign, malformed or hostile, with a stable code, offset and reason.
    """
    head = bytes(file.read(0, HEAD))
    reader = reader_of(head)
    # Formats that people bind by mistake are told before a header's length makes no sense.
    foreign = next((name for magic, name in FOREIGN.items() if head.startswith(magic)), "")
    if reader is None and foreign:
        raise SubjectError("checkpoint-format", f"is {foreign}; {READ} are read", where=file.name, remedy=SAVE)
    return (reader or safetensors_file.read)(file)


def reader_of(head: bytes) -> Callable[[ReadableFile], Reading] | None:
    """Choose the reader that these first bytes call for, or none."""
    for magic, reader in READERS.items():
        if head.startswith(magic):
            return reader
    if head[8:9] == b"{" and struct.unpack_from("<Q", head)[0] <= safetensors_file.MAX_HEADER:
        return safetensors_file.read
    if torch_legacy.begins(head):
        return torch_legacy.read
    if onnx_file.begins(head):
        return onnx
    return None


def looks_like_json(file: ReadableFile) -> bool:
    """Return whether a file is an index, not a safetensors file, whose length's last byte is zero."""
    head = bytes(file.read(0, 8))
    return head.lstrip().startswith(b"{") and 0 not in head


def onnx(file: ReadableFile) -> Reading:
    """Read an ONNX model that has all its data in itself."""
    return onnx_file.parse(file, None)[0]


def _zipped(file: ReadableFile) -> Reading:
    """Read an archive of torch.save or numpy.savez, as its members tell."""
    members = zip_archive.members(file)
    root = torch_file.root_of(members)
    if root is not None:
        return torch_file.parse(file, members, root)
    if members and all(name.endswith(npy_file.SUFFIX) for name in members):
        return npy_file.parse(file, members)
    what = f"is a ZIP archive of {len(members)} members, not one that torch.save or numpy.savez wrote"
    raise SubjectError("checkpoint-format", what, where=file.name, remedy=BIND)


READERS = {
    gguf_file.MAGIC: gguf_file.read,
    apr_file.MAGIC: apr_file.read,
    npy_file.MAGIC: npy_file.read,
    **dict.fromkeys(zip_archive.MAGICS, _zipped),
}
FOREIGN = {
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), "a Python pickle, but not of PyTorch"),
    **dict.fromkeys((b"<!DO", b"<!do", b"<htm"), "a web page"),
    b"\x89HDF": "an HDF5 file",
    b"APRN": "an APR file of version 1",
    b"APR2": "an APR file in a layout that no writer uses",
    b"vers": "a Git LFS pointer",
    b"ggml": "a GGML file, older than GGUF",
}
