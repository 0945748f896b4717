"""Read NumPy's .npy and .npz files where they lie: headers are matched, never evaluated; object arrays are refused."""

import re
import struct
from functools import partial

from weighbridge.core import quoted
from weighbridge.formats import zip_archive
from weighbridge.formats.tensor import FLOATS, INTEGERS, Reading, Tensor, row_major, span, strides_of
from weighbridge.formats.zip_archive import Member
from weighbridge.storage.readable import ReadableFile, refuse_at

MAGIC = b"\x93NUMPY"
SUFFIX = ".npy"
WHOLE = "tensor"  # the name of a lone array, as of a lone tensor in a PyTorch file
MAX_HEADER = 1 << 16
MAX_RANK = 32  # NumPy before 2 reads no more
SAVE_AGAIN = "save it again with numpy.save as a plain little-endian array, or as safetensors"
_refuse = partial(refuse_at, form="npy", remedy=SAVE_AGAIN)
DTYPES = {kind.lstrip("<"): dtype for dtype, kind in (INTEGERS | FLOATS).items()} | {"b1": "BOOL", "c8": "C64"}
ITEM = re.compile(
    r"""\s*(['"])(?P<key>descr|fortran_order|shape)\1\s*:\s*"""
    r"""(?P<value>'[^'\\]*'|"[^"\\]*"|True|False|\((?:\s*\d{1,19}L?\s*,)*(?:\s*\d{1,19}L?)?\s*\)|\[)\s*(?P<more>,?)"""
)


def read(file: ReadableFile) -> Reading:
    """Read a lone array; refuse with `npy-…`, the byte offset and the reason."""
    return Reading(format="npy", tensors={WHOLE: _array(file, 0, file.size, WHOLE)})


def parse(file: ReadableFile, members: dict[str, Member]) -> Reading:
    """Read the arrays of an .npz archive by name; refuse with `npy-…`, the byte offset and the reason."""
    arrays = {name.removesuffix(SUFFIX): member for name, member in members.items()}
    tensors = {name: _array(file, member.start, member.stop, name) for name, member in arrays.items()}
    return Reading(format="npz", tensors=tensors, checksums=zip_archive.checksums(file, members))


def _array(file: ReadableFile, start: int, stop: int, name: str) -> Tensor:
    """Return the array that lies between two bytes of the file, which it must fill."""
    text, data = _header(file, start, stop, name)
    given = _items(text, file, start, name)
    dtype = _dtype(given["descr"], file, start, name)
    shape = tuple(int(number) for number in re.findall(r"\d+", given["shape"]))
    if len(shape) > MAX_RANK:
        _refuse("shape", f"{quoted(name)} has {len(shape)} dimensions, at most {MAX_RANK} are read", file, start)
    if (size := span(dtype, shape)) != stop - data:
        needed = "more bytes than can be counted" if size is None else f"{size} bytes"
        what = f"{quoted(name)}: {dtype} {list(shape)[:8]} takes {needed}, there are {stop - data}"
        _refuse("span", what, file, data)
    strides = strides_of(shape, row_major(shape[::-1])[::-1]) if given["fortran_order"] == "True" else None
    return Tensor(name=name, dtype=dtype, shape=shape, nbytes=size, offset=data, file=file.name, strides=strides)


def _header(file: ReadableFile, start: int, stop: int, name: str) -> tuple[str, int]:
    lead = start + len(MAGIC)
    if stop - start < len(MAGIC) + 2 or bytes(file.read(start, lead)) != MAGIC:
        _refuse("header", f"{quoted(name)} is no array: it does not begin with NumPy's mark", file, start)
    version = file.read(lead, lead + 1)[0]
    form = {1: "<H", 2: "<I", 3: "<I"}.get(version)
    if form is None:
        _refuse("header", f"{quoted(name)} has version {version}; versions 1 to 3 are read", file, lead)
    if (begin := lead + 2 + struct.calcsize(form)) > stop:
        _refuse("header", f"{quoted(name)} ends inside the length of its header", file, lead)
    (length,) = struct.unpack(form, file.read(lead + 2, begin))
    if length > min(stop - begin, MAX_HEADER):
        what = f"{quoted(name)} has a header of {length} bytes; {stop - begin} are left, at most {MAX_HEADER} are read"
        _refuse("header", what, file, lead + 2)
    return str(file.read(begin, begin + length), "latin-1"), begin + length


def _items(text: str, file: ReadableFile, at: int, name: str) -> dict[str, str]:
    """Match the header's three items, each once, in any order, and nothing else."""
    found: dict[str, str] = {}
    opening = re.match(r"\s*\{", text)
    place, more = (opening.end() if opening else 0), bool(opening)
    while more and (item := ITEM.match(text, place)) and item["key"] not in found:
        if item["value"] == "[":
            _refuse("dtype", f"{quoted(name)} is an array of records, not of numbers", file, at)
        found[item["key"]] = item["value"].strip("'\"")
        place, more = item.end(), bool(item["more"])
    kinds = {key: value[:1] for key, value in found.items()}
    fits = kinds.keys() == {"descr", "fortran_order", "shape"} and kinds["shape"] == "("
    if not fits or found["fortran_order"] not in ("True", "False") or text[place:].strip() != "}":
        _refuse("header", f"{quoted(name)} has a header that is not NumPy's three items", file, at)
    return found


def _dtype(descr: str, file: ReadableFile, at: int, name: str) -> str:
    order, kind = descr[:1], descr[1:]
    if kind.startswith("O"):
        _refuse("dtype", f"{quoted(name)} is an array of Python objects, which is a pickle", file, at)
    if kind.startswith("V"):
        what = f"{quoted(name)} has the dtype {quoted(descr)}, bytes without a meaning:"
        _refuse("dtype", f"{what} numpy.save writes bfloat16 as V2 and 8-bit floats as V1", file, at)
    if kind not in DTYPES:
        _refuse("dtype", f"{quoted(name)} has the dtype {quoted(descr)}, which is not read here", file, at)
    if order != "<" and not (order == "|" and kind.endswith("1")):
        _refuse("byteorder", f"{quoted(name)} has the dtype {quoted(descr)}, which is not little-endian", file, at)
    return DTYPES[kind]
