"""What distinguishes a trace from a checkpoint: both are safetensors files. `compare` asks this before all else."""

import struct
from pathlib import Path

from weighbridge.core import is_file
from weighbridge.formats import safetensors_file
from weighbridge.storage.mapped_file import MappedFile

KEY = "weighbridge.trace"  # of the metadata


def is_trace(path: str) -> bool:
    """Return whether a path names a file that begins as safetensors do; a factory's name does not."""
    if not is_file(path):  # to open a FIFO would wait
        return False
    try:
        with Path(path).open("rb") as file:
            return file.read(9)[8:] == b"{"
    except OSError:
        return False


def names_itself_trace(path: str) -> bool:
    """Return whether a path names a safetensors file whose metadata has the key of a trace."""
    if not is_trace(path):
        return False
    with Path(path).open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        named = KEY.encode() in file.read(min(length, safetensors_file.MAX_HEADER))
    return named and KEY in safetensors_file.read(MappedFile(path)).metadata
