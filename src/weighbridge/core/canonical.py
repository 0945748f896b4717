"""Exact values and bytes, as `spec/bundle.md` has them: dataclasses from plain JSON of one form; `.npy`; SHA-256."""

import array
import functools
import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from weighbridge.core.errors import BundleError, WeighbridgeError
from weighbridge.core.limits import NOTHING, LimitsError, Omitted, Path, read
from weighbridge.core.model import Json

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
SCALARS = (str, int, float, bool, type(None))
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


def loads(data: bytes | str, *, where: str = "", spelled: bool = True, lenient: bool = False) -> Any:
    """Parse JSON strictly, or raise `json` with the reason; only where numbers are `spelled` is `{"$num": "nan"}` one.

    `lenient` reads a bare Infinity, which Python writes, as transformers 5 writes it: `{"__float__": "Infinity"}`.
    """
    pairs, constant = _spelled if spelled else unique, functools.partial(_constant, lenient)
    parse = functools.partial(json.loads, parse_float=_finite, parse_int=_bounded, parse_constant=constant)
    try:
        return parse(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as problem:
        what = "nested too deep" if isinstance(problem, RecursionError) else str(problem)
        raise WeighbridgeError("json", f"not strict JSON: {what}", where=where) from None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's entries by key, for the hook of a JSON decoder; a ValueError where a key is given twice."""
    value = dict(pairs)
    if len(value) != len(pairs):
        doubled = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {doubled[:60]!r} is given twice")
    return value


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return all that goes with each key, in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return groups


def _spelled(pairs: list[tuple[str, Any]]) -> Any:
    value = unique(pairs)
    if len(value) != 1 or NUM not in value:
        return value
    if value[NUM] not in tuple(SPELLED):
        raise ValueError(f"{NUM} must be one of nan, inf, -inf")
    return SPELLED[value[NUM]]


def _constant(lenient: bool, word: str) -> dict[str, str]:
    if word == "NaN" or not lenient:
        raise ValueError(f"{word} is not JSON")
    return {"__float__": word}


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} overflows a double")
    return value


def _bounded(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def npy(values: "array.array[Any]") -> bytes:
    """Write a one-dimensional array of float64 (`d`) or int64 (`q`) as `.npy` version 1.0."""
    descr = next(code for code, kind in NPY_TYPES.items() if kind == values.typecode)
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    padding = -(len(NPY_MAGIC) + 2 + len(head) + 1) % 64
    header = head.encode("ascii") + b" " * padding + b"\n"
    return b"".join((NPY_MAGIC, struct.pack("<H", len(header)), header, _little(values)))


def read_npy(data: bytes, *, where: str = "") -> "array.array[Any]":
    """Read what `npy` writes, and nothing else: one dimension, `<f8` or `<i8`, exactly as long as it says."""
    start = len(NPY_MAGIC) + 2
    if not data.startswith(NPY_MAGIC) or len(data) < start:
        raise WeighbridgeError("npy", "not an .npy file of version 1.0", where=where)
    end = start + struct.unpack_from("<H", data, len(NPY_MAGIC))[0]
    form = rb"\{'descr': '(<f8|<i8)', 'fortran_order': False, 'shape': \((\d{1,12}),\), \} *\n"
    if (match := re.fullmatch(form, data[start:end])) is None:
        raise WeighbridgeError("npy", "not a one-dimensional <f8 or <i8 array", where=where)
    values: array.array[Any] = array.array(NPY_TYPES[match[1].decode()])
    body = memoryview(data)[end:]
    if len(body) != int(match[2]) * values.itemsize:
        raise WeighbridgeError("npy", f"{len(body)} bytes of data for {int(match[2])} elements", where=where)
    values.frombytes(body)
    return _little(values)


def _little(values: "array.array[Any]") -> "array.array[Any]":
    if sys.byteorder == "little":
        return values
    swapped = array.array(values.typecode, values)
    swapped.byteswap()
    return swapped


# --- Values: dataclasses as `limits.plain` writes them, and back ------------------------------------------------------


def build(cls: type[T], data: object, omitted: Omitted = NOTHING, at: Path = ()) -> T:
    """Return the dataclass that `plain` wrote, or raise `structure` with a JSON pointer to what is not as it writes."""
    try:
        return read(cls, data, at, exact=True, omitted=omitted)
    except LimitsError as error:
        first = error.problems[0]
        raise wrong(first.what, first.path[:-1] if first.at_key else first.path) from None


def closed(data: object, keys: Collection[str], at: Path = ()) -> Mapping[str, Any]:
    """Return a mapping that has exactly these keys."""
    if not isinstance(data, Mapping):
        raise wrong("not a mapping", at)
    found = [f"missing key {key!r}" for key in keys if key not in data]
    found += [f"unknown key {key!r}" for key in data if key not in keys]
    if found:
        raise wrong(found[0], at)
    return data


def wrong(what: str, at: Path) -> BundleError:
    """Return the error that says what is wrong at a JSON pointer."""
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in at)
    return BundleError("structure", f"{pointer or 'the root'}: {what}")


def at_pointer(value: Any, pointer: str) -> Any:
    """Return what a JSON pointer names in a value; a KeyError where there is nothing."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise KeyError(pointer)
    return value


def json_value(data: object, at: Path = ()) -> Json:
    """Return a value that is plain JSON, so that what is sealed was measured; `structure` at what is not."""
    inside: Iterable[tuple[Any, object]] = ()
    if isinstance(data, Mapping):
        inside = data.items()
        for key in (key for key in data if not isinstance(key, str)):
            raise wrong(f"the key {key!r} is not a text", at)
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        inside = enumerate(data)
    elif not isinstance(data, SCALARS):
        raise wrong(f"a {type(data).__name__} is not plain JSON", at)
    for key, item in inside:
        if type(item) not in SCALARS:
            json_value(item, (*at, key))
    return cast(Json, data)
