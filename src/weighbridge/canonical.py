"""Exact bytes: JSON that has one form, parsed strictly; float64 and int64 arrays as `.npy`; SHA-256.

Floats are written as the shortest decimal that reads back to the same bits; NaN and the infinities, which JSON cannot
say, as `{"$num": "nan"}`. Reading refuses what a lenient parser would let through: doubled keys, bare NaN, overflow.
"""

from __future__ import annotations

import array
import json
import math
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from weighbridge.errors import WeighbridgeError
from weighbridge.model import Json

NUM = "$num"
SPELLED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
MAX_DIGITS = 64
NPY_MAGIC = b"\x93NUMPY\x01\x00"
NPY_TYPES = {"<f8": "d", "<i8": "q"}


def sha256(data: bytes | memoryview) -> str:
    """Digest bytes as 64 hexadecimal digits."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def dumps(value: Json) -> bytes:
    """Write a value in its one form: sorted keys, compact, ASCII, one trailing newline."""
    text = json.dumps(_spell(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def _spell(value: Any) -> Any:
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {NUM: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, Mapping):
        if len(value) == 1 and NUM in value:
            raise WeighbridgeError("json", f"a mapping whose only key is {NUM!r} would be read back as a number")
        return {key: _spell(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_spell(item) for item in value]
    return value


def loads(data: bytes | str, *, where: str = "", spelled: bool = True) -> Any:
    """Parse JSON strictly; only where numbers are `spelled` is `{"$num": "nan"}` one.

    Raises:
        WeighbridgeError: `json` with the reason, for doubled keys, bare NaN or infinity, numbers that overflow,
            text that is not UTF-8, or nesting beyond the parser.
    """
    pairs = _spelled if spelled else unique
    try:
        return json.loads(
            data, object_pairs_hook=pairs, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_bounded
        )
    except (ValueError, RecursionError) as problem:
        what = "nested too deep" if isinstance(problem, RecursionError) else str(problem)
        raise WeighbridgeError("json", f"not strict JSON: {what}", where=where) from None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries by key, for the hook of a JSON decoder.

    Raises:
        ValueError: a key is given twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        doubled = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {doubled[:60]!r} is given twice")
    return value


def _spelled(pairs: list[tuple[str, Any]]) -> Any:
    value = unique(pairs)
    return _unspell(value[NUM]) if len(value) == 1 and NUM in value else value


def _unspell(word: object) -> float:
    if not isinstance(word, str) or word not in SPELLED:
        raise ValueError(f"{NUM} must be one of nan, inf, -inf")
    return SPELLED[word]


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} overflows a double")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def npy(values: array.array[Any]) -> bytes:
    """Write a one-dimensional array of float64 (`d`) or int64 (`q`) as `.npy` version 1.0."""
    descr = next(code for code, kind in NPY_TYPES.items() if kind == values.typecode)
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    padding = -(len(NPY_MAGIC) + 2 + len(head) + 1) % 64
    header = head.encode("ascii") + b" " * padding + b"\n"
    return NPY_MAGIC + struct.pack("<H", len(header)) + header + _little(values).tobytes()


def read_npy(data: bytes, *, where: str = "") -> array.array[Any]:
    """Read what `npy` writes, and nothing else: one dimension, `<f8` or `<i8`, exactly as long as it says."""
    match = re.fullmatch(
        rb"\{'descr': '(<f8|<i8)', 'fortran_order': False, 'shape': \((\d{1,12}),\), \} *\n", _npy_header(data, where)
    )
    if match is None:
        raise WeighbridgeError("npy", "not a one-dimensional <f8 or <i8 array", where=where)
    values: array.array[Any] = array.array(NPY_TYPES[match[1].decode()])
    body = data[len(NPY_MAGIC) + 2 + len(_npy_header(data, where)) :]
    if len(body) != int(match[2]) * values.itemsize:
        raise WeighbridgeError("npy", f"{len(body)} bytes of data for {int(match[2])} elements", where=where)
    values.frombytes(body)
    return _little(values)


def _npy_header(data: bytes, where: str) -> bytes:
    start = len(NPY_MAGIC) + 2
    if not data.startswith(NPY_MAGIC) or len(data) < start:
        raise WeighbridgeError("npy", "not an .npy file of version 1.0", where=where)
    return data[start : start + struct.unpack_from("<H", data, len(NPY_MAGIC))[0]]


def _little(values: array.array[Any]) -> array.array[Any]:
    if sys.byteorder == "little":
        return values
    swapped = array.array(values.typecode, values)
    swapped.byteswap()
    return swapped
