"""Import a safetensors checkpoint to GGUF: once as it should be, and once with a label that lies."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file


def to_gguf(source: Path, target: Path) -> None:
    """Write every BF16 tensor of a safetensors file into a GGUF file, names kept, bits untouched."""
    assert ml_dtypes.bfloat16 is not None  # importing it teaches NumPy the dtype that `load_file` returns
    writer = gguf.GGUFWriter(str(target), arch="gpt2")
    writer.add_block_count(3)
    for name, tensor in sorted(load_file(source).items()):
        words = tensor.view(np.uint8).reshape(*tensor.shape[:-1], -1)
        writer.add_tensor(name, words, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def mislabel(source: Path, target: Path) -> None:
    """Copy a safetensors file with every BF16 label written as F16, the bytes untouched: a real importer's bug."""
    data = source.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    for name, entry in header.items():
        if name != "__metadata__":
            entry["dtype"] = "F16"
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
