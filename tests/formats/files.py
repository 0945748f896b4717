"""Write checkpoints byte by byte, the damaged ones too, which no library would write."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weighbridge.views.checkpoint import CheckpointView

Entry = tuple[str, Sequence[int], bytes]


def safetensors_bytes(tensors: Mapping[str, Entry], metadata: Mapping[str, str] | None = None) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        body += data
    return framed(json.dumps(header).encode(), body)


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + body


def safetensors(path: Path, tensors: Mapping[str, Entry], metadata: Mapping[str, str] | None = None) -> Path:
    path.write_bytes(safetensors_bytes(tensors, metadata))
    return path


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def info(name: str, dims: Sequence[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_bytes(
    keys: Sequence[bytes] = (), infos: Sequence[bytes] = (), body: bytes = b"", *, version: int = 3, alignment: int = 32
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    return head + b"\0" * (-len(head) % alignment) + body


def joined(view: CheckpointView, name: str, size: int = 3) -> bytes:
    return b"".join(bytes(chunk) for chunk in view.chunks(name, size))
