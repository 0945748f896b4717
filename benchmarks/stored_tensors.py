"""Take the tensors of a GGUF file out, as they lie, and write a file of other tensors under its header."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from weighbridge.views.checkpoint import open_checkpoint

ALIGNMENT = 32
KINDS = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as it lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> Any:
        """Read the values of an unpacked dtype, or the bytes of each block, `[blocks, bytes]`."""
        if self.dtype in KINDS:
            return np.frombuffer(self.data, KINDS[self.dtype]).reshape(self.shape)
        size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[self.dtype]][1]
        return np.frombuffer(self.data, np.uint8).reshape(-1, size)

    def holding(self, values: Any) -> Stored:
        """Hold other values in the same dtype; a shape that they have, where the dtype is unpacked."""
        if self.dtype in KINDS:
            return Stored(self.dtype, values.shape, values.astype(KINDS[self.dtype]).tobytes())
        return Stored(self.dtype, self.shape, values.tobytes())


Tensors = dict[str, Stored]


def read(path: Path) -> tuple[bytes, Tensors]:
    """Read a GGUF file: all that stands before its first tensor's entry, and the tensors."""
    view, data = open_checkpoint(path), path.read_bytes()
    tensors = {
        name: Stored(tensor.dtype, tensor.shape, data[tensor.offset : tensor.offset + tensor.nbytes])
        for name, tensor in view.tensors.items()
    }
    first = next(iter(tensors)).encode()
    return data[: data.index(struct.pack("<Q", len(first)) + first)], tensors


def write(path: Path, head: bytes, tensors: Tensors) -> Path:
    """Write a GGUF file with these tensors under the header of another."""
    entries, payload = [], b""
    for name, stored in tensors.items():
        shape = stored.shape[::-1]
        kind = gguf.GGMLQuantizationType[stored.dtype]
        entry = struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        entries.append(entry + struct.pack(f"<{len(shape)}QIQ", *shape, kind, len(payload)))
        payload += stored.data + bytes(-len(stored.data) % ALIGNMENT)
    start = head[:8] + struct.pack("<Q", len(tensors)) + head[16:] + b"".join(entries)
    path.write_bytes(start + bytes(-len(start) % ALIGNMENT) + payload)
    return path
