"""Small traces for tests, written as another stack would write them: byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.modules import module_at

from weighbridge.formats.trace_key import KEY
from weighbridge.forward.trace_file import Trace, open_trace

EXAMPLES = Path(__file__).parents[2] / "spec" / "examples"
TOKENS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


def facts(**changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"stack": "an engine", "dtype": "float32", "device": {"requested": "cpu"}}
    said |= {"tokens": TOKENS, "order": ["embed", "logits"]}
    return {key: value for key, value in {**said, **changes}.items() if value is not None}


def written(path: Path, said: Any = None, metadata: Any = None, body: bytes | None = None, **entries: Any) -> Path:
    """Write a trace of two points of 4 and 6 channels; `entries` replace its header's, None leaves one out."""
    given = {"embed": entry(4, 0), "logits": entry(6, 160), **entries}
    text = said if isinstance(said, str) else json.dumps(facts() if said is None else said)
    header = {"__metadata__": {KEY: text} if metadata is None else metadata}
    raw = json.dumps({**header, **{name: one for name, one in given.items() if one is not None}}).encode()
    payload = np.arange(100, dtype="<f4").tobytes() if body is None else body
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + payload)
    return path


def entry(channels: int, at: int, dtype: str = "F32", shape: Any = None) -> dict[str, Any]:
    shape = [2, 5, channels] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [at, at + 40 * channels]}


def example() -> Any:
    """Return the writer in NumPy that users copy."""
    return module_at(EXAMPLES / "write_trace.py")


def trace(path: Path, points: Mapping[str, Any], dtype: str = "float32", **more: Any) -> Trace:
    """Write arrays by the example, and open them."""
    rows, length = next(iter(points.values())).shape[:2]
    tokens = [[(7 * row + 3 * n) % 50 for n in range(length)] for row in range(rows)]
    said = {"stack": "NumPy", "dtype": dtype, "tokens": tokens, "device": "cpu", **more}
    example().write_trace(path, points, **said)
    return open_trace(path)
