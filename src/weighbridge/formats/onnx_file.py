"""Read the initializers of an ONNX model where they lie: in it or in plain-named files beside it, without onnx."""

import itertools
import re
from collections.abc import Iterable, Mapping

from weighbridge.core import Scalar, dataclass, field, quoted
from weighbridge.formats.protobuf import FIXED32, FIXED64, LENGTH, VARINT, Field, Message
from weighbridge.formats.tensor import Reading, Tensor, span
from weighbridge.storage.readable import Folder, ReadableFile, is_plain

FORMAT = "onnx"
MAX_TENSORS = 1 << 20
MAX_RANK = 32
MAX_DEPTH = 16  # of graphs inside nodes
MAX_KEPT = 1 << 10  # longer texts of metadata are stepped over
# TensorProto.DataType
DTYPES: Mapping[int, str] = (
    {1: "F32", 2: "U8", 3: "I8", 4: "U16", 5: "I16", 6: "I32", 7: "I64", 9: "BOOL", 10: "F16", 11: "F64", 12: "U32"}
    | {13: "U64", 14: "C64", 16: "BF16", 17: "F8_E4M3", 18: "F8_E4M3FNUZ", 19: "F8_E5M2", 20: "F8_E5M2FNUZ", 23: "F4"}
    | {24: "F8_E8M0", 27: "F6_E2M3", 28: "F6_E3M2"}
)
UNREAD: Mapping[int, str] = {8: "STRING", 15: "COMPLEX128", 21: "UINT4", 22: "INT4", 25: "UINT2", 26: "INT2"}
TEXT, NUMBER = (LENGTH,), (VARINT,)
# Fields by number, with the wire types that they may have, as onnx.proto gives them.
MODEL = {1: NUMBER, 2: TEXT, 3: TEXT, 5: NUMBER, 7: TEXT, 8: TEXT, 14: TEXT, 20: TEXT, 25: TEXT}
NAMED = {1: "ir_version", 2: "producer_name", 3: "producer_version", 5: "model_version"}
ATTRIBUTE = {5: TEXT, 6: TEXT, 10: TEXT, 11: TEXT, 22: TEXT, 23: TEXT}
ENTRY = {1: TEXT, 2: TEXT}
DIMS, DATA_TYPE, SEGMENT, NAME, RAW, EXTERNAL, LOCATION = 1, 2, 3, 8, 9, 13, 14
TENSOR = (
    dict.fromkeys((DIMS, 5, 7, 11), (VARINT, LENGTH))
    | {4: (FIXED32, LENGTH), 10: (FIXED64, LENGTH), DATA_TYPE: NUMBER, LOCATION: NUMBER}
    | dict.fromkeys((SEGMENT, 6, NAME, RAW, EXTERNAL), TEXT)
)
# Typed fields whose packed bytes are the tensor's own, by the dtypes that they are for; varints are not.
IN_PLACE = {4: ("F32", "C64"), 10: ("F64",)}
Found = dict[int, list[Field]]  # the fields of one tensor, by number
TYPED = {4: "float_data", 5: "int32_data", 6: "string_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}


def begins(head: bytes) -> bool:
    """Return whether a file begins as a model does: with its IR version, and a field that may come next."""
    return len(head) > 4 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in b"\x12\x1a\x22\x28\x32\x3a"


def parse(file: ReadableFile, folder: Folder | None) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read initializers by name, metadata, and files by name, none beside it without a folder; refuse with `onnx-…`."""
    model = Message(file, 0, file.size, [0], FORMAT)
    found = model.collected(MODEL, once=(*NAMED, 7))
    if not found[7] or not found[8]:
        model.refuse("model", f"no {'graph' if not found[7] else 'opset_import'}: the file is not a whole model")
    found_in = _Graphs(folder)
    found_in.graph(model.within(found[7][0]), 0)
    for training in map(model.within, found[20]):
        for graph in training.fields({1: TEXT, 2: TEXT}):
            found_in.graph(training.within(graph), 0)
    for function in map(model.within, found[25]):
        for item in function.fields({7: TEXT, 11: TEXT}):
            look = found_in.node if item.number == 7 else found_in.attribute
            look(function.within(item), 0)
    # The very same bytes may have two names.
    placed = sorted((one for one in found_in.tensors.values() if one.nbytes), key=lambda one: (one.file, one.extent))
    for behind, tensor in itertools.pairwise(placed):
        if behind.file == tensor.file and behind.extent[1] > tensor.offset and behind.extent != tensor.extent:
            what = f"{quoted(tensor.name)} starts at byte {tensor.offset}, inside {quoted(behind.name)}"
            model.refuse("overlap", what, tensor.offset)
    metadata: dict[str, Scalar] = {**_entries(model, [item for item in found[14] if item.nbytes <= MAX_KEPT])}
    for number, name in NAMED.items():
        for item in found[number]:
            metadata[f"onnx.{name}"] = item.value if item.wire == VARINT else model.text(item, name)
    metadata |= {"onnx.constants": found_in.constants, "onnx.constant_bytes": found_in.constant_bytes}
    reading = Reading(format=FORMAT, tensors=found_in.tensors, metadata=metadata)
    return reading, {one.name: one for one in (file, *found_in.beside.values())}


@dataclass(slots=True)
class _Graphs:
    """What was found so far; constants are tensors that are values of nodes."""

    folder: Folder | None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    beside: dict[str, ReadableFile] = field(default_factory=dict)
    constants: int = 0
    constant_bytes: int = 0

    def graph(self, graph: Message, depth: int) -> None:
        if depth > MAX_DEPTH:
            graph.refuse("depth", f"graphs are nested more than {MAX_DEPTH} deep")
        for item in graph.fields({1: TEXT, 5: TEXT, 15: TEXT}):
            if item.number == 15:
                graph.refuse("sparse", "an initializer is sparse; dense ones are read", item.at)
            elif item.number == 5:
                self.initializer(graph.within(item))
            else:
                self.node(graph.within(item), depth)

    def node(self, node: Message, depth: int) -> None:
        for attribute in node.fields({5: TEXT}):
            self.attribute(node.within(attribute), depth)

    def attribute(self, attribute: Message, depth: int) -> None:
        for item in attribute.fields(ATTRIBUTE):
            if item.number in (6, 11):
                self.graph(attribute.within(item), depth + 1)
            else:
                self.constants += 1
                self.constant_bytes += item.nbytes

    def initializer(self, message: Message) -> None:
        found = message.collected(TENSOR, once=(DATA_TYPE, SEGMENT, NAME, RAW, LOCATION))
        name = message.text(found[NAME][0], "a name") if found[NAME] else ""
        if not name or name in self.tensors:
            message.refuse("name", f"the initializer {quoted(name)} is given twice" if name else "one has no name")
        if len(self.tensors) >= MAX_TENSORS:
            message.refuse("size", f"more than {MAX_TENSORS} initializers")
        if found[SEGMENT]:
            message.refuse("segment", f"{quoted(name)} is only a segment of a tensor")
        code = found[DATA_TYPE][0].value if found[DATA_TYPE] else 0
        if code not in DTYPES:
            what = f"{quoted(name)} has the dtype {UNREAD.get(code, code)}, which is not read here"
            message.refuse("dtype", what, found[DATA_TYPE][0].at if found[DATA_TYPE] else None)
        if sum(field.nbytes for field in found[DIMS]) > MAX_RANK * 10:
            message.refuse("shape", f"{quoted(name)} has more than {MAX_RANK} dimensions")
        dtype, shape = DTYPES[code], tuple(message.numbers(found[DIMS]))
        nbytes = span(dtype, shape)
        if len(shape) > MAX_RANK or nbytes is None or any(side >> 63 for side in shape):
            what = f"{quoted(name)}: {dtype} {list(shape)[:8]} has too many dimensions or elements, or"
            message.refuse("shape", f"{what} fills no whole bytes")
        if found[LOCATION] and found[LOCATION][0].value:
            file, offset = self.elsewhere(message, found, name, nbytes)
        else:
            file, offset = message.file, _place(message, found, name, dtype, nbytes)
        self.tensors[name] = Tensor(name=name, dtype=dtype, shape=shape, nbytes=nbytes, offset=offset, file=file.name)

    def elsewhere(self, message: Message, found: Found, name: str, nbytes: int) -> tuple[ReadableFile, int]:
        """Find the bytes of a tensor in a file beside the model, which is opened once."""
        inside = next((number for number in (RAW, *TYPED) if found[number]), None)
        if inside is not None:
            message.refuse("external", f"{quoted(name)} has data in the model and beside it", found[inside][0].at)
        if nbytes == 0:
            return message.file, message.start  # a file without bytes, which onnx writes for it, needs no look
        entries = _entries(message, found[EXTERNAL])
        for key in ("offset", "length"):
            if key in entries and not re.fullmatch(r"[0-9]{1,19}", entries[key]):
                what = f"{quoted(name)} has the {key} {quoted(entries[key])}, which is no whole number"
                message.refuse("external", what)
        location, offset = entries.get("location", ""), int(entries.get("offset", 0))
        if not is_plain(location):
            message.refuse("external", f"{quoted(name)} is in {quoted(location)}, which is not a plain file name")
        if location not in self.beside:
            if self.folder is None or not self.folder.holds(location):
                message.refuse("missing", f"{quoted(location)}, which holds {quoted(name)}, is not beside the model")
            self.beside[location] = self.folder.open(location)
        file = self.beside[location]
        length, end = int(entries.get("length", nbytes)), offset + nbytes
        if length != nbytes:
            message.refuse("span", f"{quoted(name)} takes {nbytes} bytes, {length} are declared beside the model")
        if end > file.size:
            what = f"{quoted(name)} ends at byte {end} of {quoted(location)}, the file at byte {file.size}"
            message.refuse("truncated", what)
        return file, offset


def _place(message: Message, found: Found, name: str, dtype: str, nbytes: int) -> int:
    """Return where the bytes of a tensor lie in the model itself."""
    used = [number for number in (RAW, *TYPED) if found[number]]
    if found[EXTERNAL] or len(used) > 1:
        message.refuse("external" if found[EXTERNAL] else "twice", f"{quoted(name)} has its data in two places")
    if not used and nbytes == 0:
        return message.start
    if not used:
        message.refuse("span", f"{quoted(name)} takes {nbytes} bytes, and has none")
    number, first = used[0], found[used[0]][0]
    if number != RAW and dtype not in IN_PLACE.get(number, ()):
        what = f"{quoted(name)} is {dtype} in {TYPED[number]}, whose numbers do not lie as they are"
        message.refuse("typed", f"{what}; store it as raw_data (onnx.numpy_helper.from_array does)", first.at)
    if first.wire != LENGTH or len(found[number]) > 1:
        message.refuse("typed", f"{quoted(name)} has its numbers in several fields, not packed into one", first.at)
    if first.nbytes != nbytes:
        message.refuse("span", f"{quoted(name)} takes {nbytes} bytes, {first.nbytes} are there", first.at)
    return first.start


def _entries(message: Message, fields: Iterable[Field]) -> dict[str, str]:
    """Read pairs of texts, no key twice."""
    found: dict[str, str] = {}
    for inner in map(message.within, fields):
        pair = inner.collected(ENTRY, once=ENTRY)
        key, value = (inner.text(pair[number][0], "an entry") if pair[number] else "" for number in ENTRY)
        if key in found:
            inner.refuse("twice", f"the key {quoted(key)} is given twice")
        found[key] = value
    return found
