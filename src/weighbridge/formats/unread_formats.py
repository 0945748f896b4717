"""Name files of formats that are not read, by their bytes, so that none is taken for a damaged file of another."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from weighbridge.core import SubjectError, quoted
from weighbridge.storage.readable import Folder, ReadableFile

HEAD = 512  # bytes: a block of a tar archive
MAX_MEMBERS = 64  # of a tar archive, looked at for weights
MAX_FILES = 32  # of a folder
SAVED_MODEL = "saved_model.pb"  # of TensorFlow, whose other files are no checkpoints
WEIGHTS = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin", ".onnx", ".npz", ".distcp")
SAVE = "save the weights in one of these formats; safetensors is the safest"
UNPACK = "unpack it, and bind the file in it that holds the weights"
CONVERT = "bind the checkpoint that it was converted from, or {}"
EXPORT = CONVERT.format("export its weights as safetensors")
GGUF = CONVERT.format("convert that to GGUF again")
TAR = 257, b"ustar"
TABLE_END = bytes.fromhex("57fb808b247547db")  # of the index of a TensorFlow checkpoint, as of every LevelDB table
# Patterns of first bytes, what a file that begins so is, and what to do.
SIGNS: tuple[tuple[bytes, str, str], ...] = (
    (rb"\x80[\x02-\x05]", "a Python pickle, but not of PyTorch", SAVE),
    (rb"(?i)\s*<(!doctype|html)", "a web page", "fetch the file itself: this is what a server answered in its place"),
    (rb"version https://git-lfs", "a Git LFS pointer", "run `git lfs pull` in that repository"),
    (rb"ggml|lmgg|fmgg|tjgg|algg", "a GGML file, older than GGUF", GGUF),
    (rb"APRN", "an APR file of version 1", SAVE),
    (rb"APR2", "an APR file in a layout that no writer uses", SAVE),
    (rb"\x89HDF\r\n", "an HDF5 file, as Keras (.h5) and h5py write it", SAVE),
    (rb".{4}TFL[23]", "a TensorFlow Lite model", EXPORT),
    (rb".{4}ET\d\d", "an ExecuTorch program", EXPORT),
    (rb"[fp]trt", "a TensorRT engine", EXPORT),
    # Version, then a message whose first field is a message; in ONNX the name of the producer stands there.
    (rb"\x08\x01\x12[\x80-\xff]*[\0-\x7f]\n", "a TensorFlow SavedModel, or a Core ML model of version 1", EXPORT),
    (rb"\x08[\x02-\x20]\x12[\x80-\xff]*[\0-\x7f]\n", "a Core ML model", EXPORT),
    (rb'\s*\{\s*"fileFormatVersion"', "the manifest of a Core ML package", EXPORT),
    (rb"[\x01-\x20]\0{3}.\0\w{3,}Spec\0", "a CTranslate2 model", EXPORT),
    (rb"(?:[\x81-\x8f]|\xde..|\xdf.{4})(?:[\xa1-\xbf]|\xd9.|\xda..)[ -~]", "MessagePack, as Flax writes it", SAVE),
    (rb".{257}ustar", "a tar archive, as NeMo (.nemo) writes it", UNPACK),
    (rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf", "a compressed file, as .nemo and .tar.gz are", UNPACK),
    (rb"PAR1|ARROW1", "a table of data (Parquet or Arrow)", "bind the file that holds the weights"),
    (rb"\x7fELF|MZ", "a program; a llamafile is one, with its GGUF file packed inside", UNPACK),
)


class Unread(NamedTuple):
    """What a file is that is not read, and what to do about it."""

    what: str
    remedy: str


def begins(head: bytes) -> Unread | None:
    """Return what a file of these first bytes is; None where no sign is known."""
    found = (Unread(what, remedy) for pattern, what, remedy in SIGNS if re.match(pattern, head, re.DOTALL))
    return next(found, None)


def named(file: ReadableFile) -> Unread | None:
    """Return what a file is that is of a known format and not read; None where it is of no such format."""
    head = bytes(file.read(0, HEAD))
    found = begins(head)
    if found and head[TAR[0] :].startswith(TAR[1]):
        return Unread(found.what, unpack(_members(file)))
    if found is None and bytes(file.read(file.size - len(TABLE_END), file.size)) == TABLE_END:
        return Unread("the index of a TensorFlow checkpoint", SAVE)
    if found is None and re.search(r"\.data-\d{5}-of-\d{5}", file.name):
        return Unread("a part of a TensorFlow checkpoint, by its name", SAVE)
    return found


def unpack(names: Iterable[str]) -> str:
    """Return the advice to unpack an archive, with the first member that a checkpoint may be."""
    found = next((name for name in names if name.endswith(WEIGHTS)), None)
    return UNPACK if found is None else f"unpack it, and bind {quoted(found)}"


def in_folder(folder: Folder) -> Iterator[tuple[str, Unread]]:
    """Yield the files of a folder that are of a known format and not read, each with its name, sorted."""
    for name in sorted(folder.names())[:MAX_FILES]:
        try:
            found = named(folder.open(name))
        except SubjectError:  # an empty file, or one that may not be opened
            continue
        if found:
            yield name, found


def folders_with_weights(folder: Folder) -> list[str]:
    """Return the folders below this one that hold weights, as a pipeline's parts and a trainer's checkpoints do."""
    with contextlib.suppress(SubjectError):  # more than are looked at
        return sorted({name.rpartition("/")[0] for name in folder.below() if "/" in name and name.endswith(WEIGHTS)})
    return []


def _members(file: ReadableFile) -> Iterator[str]:
    at = 0
    for _ in range(MAX_MEMBERS):
        block = bytes(file.read(at, at + HEAD))
        size = block[124:135].strip(b" \0")
        if not re.fullmatch(rb"[0-7]+", size):  # the end, or a size that is written otherwise
            return
        yield str(block[:100].rstrip(b"\0"), "utf-8", "replace")
        at += HEAD + -(-int(size, 8) // HEAD) * HEAD
