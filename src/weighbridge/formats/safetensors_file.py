"""Read a safetensors header, more strictly than the library, which lets doubled names pass; never the payload."""

import struct
from functools import partial

from weighbridge.core import quoted
from weighbridge.formats.strict_json import REMEDY, strict_json
from weighbridge.formats.tensor import SAFETENSORS_UNITS, Reading, Tensor, span
from weighbridge.storage.readable import ReadableFile, refuse_at

PREFIX = 8
MAX_HEADER = 16 << 20
METADATA = "__metadata__"
_refuse = partial(refuse_at, form="safetensors", remedy=REMEDY)


def read(file: ReadableFile) -> Reading:
    """Read the tensors in the order of the header, and the metadata; refuse with `safetensors-…` and the byte."""
    if file.size < PREFIX:
        _refuse("truncated", f"{file.size} bytes cannot hold the header's length (8 bytes)", file, 0)
    (length,) = struct.unpack("<Q", file.read(0, PREFIX))
    start = PREFIX + length
    if start > file.size:
        _refuse("truncated", f"the header says {length} bytes, the file has {file.size - PREFIX} after it", file, 0)
    if length > MAX_HEADER:
        _refuse("header", f"the header says {length} bytes, more than the {MAX_HEADER} that are read", file, 0)
    header = strict_json(file.read(PREFIX, start), "safetensors-header", file, PREFIX)
    if not isinstance(header, dict):
        _refuse("header", "the header is not a JSON object", file, PREFIX)
    given = header.pop(METADATA, None)  # MLX writes null, which the safetensors library takes for none
    metadata = {} if given is None else given
    if not isinstance(metadata, dict) or not all(isinstance(item, str) for item in metadata.values()):
        _refuse("header", f"{METADATA} is not a mapping of texts", file, PREFIX)
    tensors = {name: _tensor(name, entry, start, file) for name, entry in header.items()}
    cursor = start  # the tensors cover the payload: no hole, no overlap, nothing after the last
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset > cursor:
            _refuse("hole", f"{tensor.offset - cursor} bytes before {quoted(tensor.name)} belong to none", file, cursor)
        if tensor.offset < cursor:
            what = f"{quoted(tensor.name)} begins at byte {tensor.offset}, the tensor before it ends at {cursor}"
            _refuse("overlap", what, file, tensor.offset)
        if (cursor := tensor.offset + tensor.nbytes) > file.size:
            what = f"{quoted(tensor.name)} ends at byte {cursor}, the file at byte {file.size}"
            _refuse("truncated", what, file, tensor.offset)
    if cursor < file.size:
        _refuse("trailing", f"{file.size - cursor} bytes after the last tensor", file, cursor)
    file.release(0, start)
    return Reading(format="safetensors", tensors=tensors, metadata=metadata)


def _tensor(name: str, entry: object, start: int, file: ReadableFile) -> Tensor:
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        _refuse("header", f"{quoted(name)} has no dtype, shape and data_offsets", file, PREFIX)
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in SAFETENSORS_UNITS:
        shown = quoted(dtype) if isinstance(dtype, str) else "not a text"
        _refuse("dtype", f"{quoted(name)} has dtype {shown}, which safetensors does not define", file, PREFIX)
    shape = _whole_numbers(entry["shape"])
    offsets = _whole_numbers(entry["data_offsets"])
    if shape is None or offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse("header", f"{quoted(name)}: shape or data_offsets are not whole numbers in order", file, PREFIX)
    size = span(dtype, shape)
    if size is None or size != offsets[1] - offsets[0]:
        needed = "more than can be counted, or no whole bytes" if size is None else f"{size} bytes"
        what = f"{quoted(name)}: {dtype} {list(shape)[:8]} takes {needed}, data_offsets span {offsets[1] - offsets[0]}"
        _refuse("span", what, file, start + offsets[0])
    return Tensor(name=name, dtype=dtype, shape=shape, nbytes=size, offset=start + offsets[0], file=file.name)


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        return None
    return tuple(value)
