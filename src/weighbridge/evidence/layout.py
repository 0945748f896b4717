"""Where things stand in a bundle: the names of its files, and what goes into each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weighbridge.canonical import dumps, sha256
from weighbridge.evidence.codec import encode_measured
from weighbridge.model import Fields, Measured

CONTRACT_YAML = "contract.yaml"
CONTRACT_JSON = "contract.json"
VERDICTS = "verdicts.json"
CANARIES = "canaries.json"
ENVIRONMENT = "environment.json"
MEASUREMENTS = "measurements/"
LOGS = "logs/"
LOG_TAIL = 256 << 10
SLUG_LENGTH = 80

# What may be told about the machine; nothing else is sealed, whatever is handed in.
TELLABLE = frozenset((
    "python", "implementation", "system", "machine", "weighbridge", "torch", "numpy", "safetensors", "gguf",
    "ml_dtypes", "cuda", "cudnn", "driver", "device_name", "device_capability", "visible_devices", "cpu_count",
    "deterministic", "matmul_precision", "default_dtype", "num_threads", "omp_num_threads", "mkl_num_threads",
    "locale", "timezone",
))  # fmt: skip


def measurement_file(key: str) -> str:
    """Return the file of a measurement; a key that is no safe name in any letter case is told apart by its digest."""
    slug = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:SLUG_LENGTH]
    safe = slug == key and key == key.lower() and re.match(r"[a-z0-9_]", key) is not None
    return f"{MEASUREMENTS}{slug if safe else f'm_{slug}.{sha256(key.encode())[:8]}'}.json"


def measurement_files(measured: Mapping[str, Measured]) -> dict[str, bytes]:
    """Write every measurement, and each array that they hold once, named by its digest."""
    arrays: dict[str, bytes] = {}
    files: dict[str, bytes] = {}
    for key, item in measured.items():
        body, held = encode_measured(item)
        files[measurement_file(key)] = dumps({"key": key, "measured": body})
        arrays |= held
    return files | {f"{MEASUREMENTS}{digest}.npy": data for digest, data in arrays.items()}


def environment_file(environment: Fields) -> bytes:
    """Write what may be told about the machine."""
    told: dict[str, Any] = {key: value for key, value in environment.items() if key in TELLABLE}
    return dumps(told)


def log_file(name: str) -> str:
    """Return the file of a log."""
    return f"{LOGS}{re.sub(r'[^A-Za-z0-9._-]', '_', name).lstrip('.-') or '_'}.txt"


def log_tail(text: str) -> bytes:
    """Keep the end of a log, whole lines of it, and say how much was cut."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= LOG_TAIL:
        return data
    tail = data[-LOG_TAIL:].split(b"\n", 1)[-1]
    return f"[{len(data) - len(tail)} bytes before this were cut]\n".encode() + tail
