"""Write a trace (spec/trace.md) from NumPy arrays. Needs NumPy alone; copy it into your engine."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np

STORED = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint16": "BF16"}


def weight_digest(weight):
    """Return the digest of one weight, an array in the dtype that the stack computes in."""
    shape = json.dumps(list(weight.shape), separators=(",", ":"))
    return hashlib.sha256(shape.encode() + np.ascontiguousarray(weight).tobytes()).hexdigest()


def write_trace(path, points, *, stack, dtype, tokens, device, observed="", weights=None):
    """Write what a forward pass held.

    points: id -> array [sequences, tokens, channels], in the order of computing; uint16 holds the bits of bfloat16.
    tokens: token ids [sequences, tokens]. observed: where the values lay, as asked of the stack: `cpu`, `cuda`.
    weights: name -> array, by the reference's names; left out, weights cannot be compared.
    """
    facts = {
        "format": "trace/v0",
        "stack": stack,
        "dtype": dtype,
        "device": {"requested": device, "observed": observed},
        "tokens": np.asarray(tokens).tolist(),
        "order": list(points),
        "weights": {name: weight_digest(weight) for name, weight in (weights or {}).items()},
    }
    header, at = {"__metadata__": {"weighbridge.trace": json.dumps(facts)}}, 0
    for name, values in points.items():
        span = [at, at + values.nbytes]
        header[name] = {"dtype": STORED[values.dtype.name], "shape": list(values.shape), "data_offsets": span}
        at = span[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in points.values():
            file.write(np.ascontiguousarray(values).tobytes())
